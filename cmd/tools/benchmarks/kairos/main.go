// Kairos sends the same samples to a real KairosDB and to Cassia, both on the same real Cassandra, and prints the CPU
// time, disk usage and duration of each as a Markdown table:
//
//	bin/tools/benchmarks/kairos -cassia bin/cassia
//
//	              JSON, gzip         ┌──────────┐ CQL
//	          ┌──────────────────────► KairosDB ├──────┐
//	dataset ──┤                      └──────────┘      ▼ keyspace kairosdb
//	          │   remote write       ┌──────────┐   Cassandra
//	          └──────────────────────►  Cassia  ├──────▲ keyspace cassia
//	                                 └──────────┘
//
// Both systems first receive a part of the data to warm up, because Java compiles frequently executed code. Then the
// systems are measured one after another, each while the other one is stopped: the system receives the load and
// completes its own work on it (Cassia seals), and its keyspace is flushed and compacted. The table compares the CPU
// time and the disk usage of these steps. Finally, a query that both systems support is timed, and the results are
// compared.
//
// The benchmark requires Java 17 and Maven, see docker/cassandra/local and docker/kairosdb/local.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
)

// settings holds the flags.
type settings struct {
	cassia, dir, only  string
	commitLog, heap    string
	config             string
	series             int
	hours, warmHours   float64
	interval           time.Duration
	senders, requestOf int
	repeat             int
	kairosBatch        int
	cassiaFirst        bool
}

func main() {
	var s settings
	flag.StringVar(&s.cassia, "cassia", "bin/cassia", "Cassia's binary")
	flag.StringVar(&s.dir, "dir", "", "folder for the data; a temporary one, removed at the end, if empty")
	flag.StringVar(&s.only, "only", "", "measure just the system of this name: kairosdb or cassia")
	flag.StringVar(&s.commitLog, "commitlog", "group", "Cassandra's commit log: group, batch or periodic")
	flag.StringVar(
		&s.config, "cassandra-config", "", "more lines of cassandra.yaml, such as commitlog_disk_access_mode: direct",
	)
	flag.StringVar(&s.heap, "heap", "1G", "Cassandra's heap")
	flag.IntVar(&s.series, "series", 1000, "series")
	flag.Float64Var(&s.hours, "hours", 6, "hours of data that are measured")
	flag.Float64Var(&s.warmHours, "warm-hours", 1.5, "hours of data before those, to warm up")
	flag.DurationVar(&s.interval, "interval", 15*time.Second, "time between two samples of a series")
	flag.IntVar(&s.senders, "senders", 4, "requests at one time")
	flag.IntVar(&s.requestOf, "request-samples", 2000, "samples in a request")
	flag.IntVar(&s.repeat, "repeat", 7, "how often the query is timed, after two that warm up")
	flag.IntVar(&s.kairosBatch, "kairosdb-batch", 200, "points that KairosDB sends to Cassandra at once; 200 is its "+
		"default, and its documentation says that 10000 is fastest")
	flag.BoolVar(&s.cassiaFirst, "cassia-first", false, "measure Cassia first, to see what the order does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// kairosConfig contains the settings for Cassandra that KairosDB's documentation recommends. Without them, Cassandra
// logs a long line for each batch of either system, and rejects large batches.
const kairosConfig = `
batch_size_warn_threshold: 2MiB
batch_size_fail_threshold: 4MiB
unlogged_batch_across_partitions_warn_threshold: 65535
`

// compare measures both systems and prints the table.
func compare(ctx context.Context, s settings) error {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "cassia-kairos")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.dir = dir
	}
	warm, measured, err := s.datasets(time.Now())
	if err != nil {
		return err
	}
	cluster, err := cassandratest.Start(s.dir, 1, cassandratest.Options{
		CommitLog: s.commitLog, Heap: s.heap, Measured: true, Config: kairosConfig + "\n" + s.config,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := cluster.Wipe(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	rigs, err := s.rigs(cluster)
	if err != nil {
		return err
	}
	for _, r := range rigs {
		progress("%s: warming up with %d samples", r.name(), warm.samples())
		if err := r.warm(ctx, warm); err != nil {
			return fmt.Errorf("%s: %w", r.name(), err)
		}
	}
	var results []*result
	if s.cassiaFirst {
		slices.Reverse(rigs)
	}
	for _, r := range rigs {
		progress("%s: %d samples", r.name(), measured.samples())
		result, err := r.measure(ctx, measured, warm.samples())
		if err != nil {
			return fmt.Errorf("%s: %w", r.name(), err)
		}
		results = append(results, result)
	}
	if s.cassiaFirst {
		slices.Reverse(results)
	}
	fmt.Print(table(s, results))
	if len(results) == 2 {
		return results[0].sums.difference(results[1].sums)
	}
	return nil
}

// rigs returns the systems in the order in which they are measured, each with its own folder.
func (s settings) rigs(cluster *cassandratest.Cluster) ([]*rig, error) {
	var out []*rig
	for _, sys := range []system{kairosdb{batch: s.kairosBatch}, cassia{path: s.cassia}} {
		if s.only != "" && s.only != sys.name() {
			continue
		}
		r := &rig{system: sys, cluster: cluster, settings: s, dir: filepath.Join(s.dir, sys.name())}
		if err := os.MkdirAll(r.dir, 0o700); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, errors.New("nothing to measure: -only must be kairosdb or cassia")
	}
	return out, nil
}

// datasets returns the data for the warm-up and the measured data. The second follows the first immediately and ends
// about now.
func (s settings) datasets(now time.Time) (warm, measured *dataset, err error) {
	w := bench.Workload{Series: s.series, IntervalMs: s.interval.Milliseconds()}
	steps := func(hours float64) int { return int(hours * float64(time.Hour) / float64(s.interval)) }
	begin := now.Add(-time.Duration(steps(s.hours)) * s.interval).Truncate(bucket)
	w.Steps, w.StartMs = steps(s.hours), begin.UnixMilli()
	if measured, err = newDataset(w); err != nil {
		return nil, nil, err
	}
	w.Steps = steps(s.warmHours)
	w.StartMs -= int64(w.Steps) * w.IntervalMs
	warm, err = newDataset(w)
	return warm, measured, err
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "== "+strings.TrimSpace(format)+"\n", args...)
}
