// Compare puts the same load into a real Prometheus, a real VictoriaMetrics and Cassia, one after the other on this
// machine, and prints what each took, as a table in Markdown:
//
//	go run ./cmd/internal/bench/compare -prometheus bin/prometheus -victoriametrics bin/victoria-metrics -cassia bin/cassia
//
// (or `make bench-compare`). The load comes by remote write as fast as the server takes it. Prometheus' figures include the
// compaction of its blocks, VictoriaMetrics' the merging of its parts, Cassia's its sealing, and all the load's
// acknowledgement: Cassia's samples are synced to disk then, the others' are not.
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
)

// settings are the flags.
type settings struct {
	prometheus, victoria, cassia, dir, only string
	workload                                bench.Workload
	protocol                                string
	senders, repeat                         int
	verify                                  bool
}

func main() {
	s := settings{workload: bench.Workload{}}
	var hours float64
	var interval time.Duration
	flag.StringVar(&s.prometheus, "prometheus", "bin/prometheus", "Prometheus' binary")
	flag.StringVar(&s.victoria, "victoriametrics", "", "VictoriaMetrics' binary; without, it isn't measured")
	flag.StringVar(&s.cassia, "cassia", "bin/cassia", "Cassia's binary")
	flag.StringVar(&s.dir, "dir", "", "folder for the data of all; a temporary one, removed at the end, if empty")
	flag.StringVar(&s.only, "only", "", "measure just the system of this name")
	flag.IntVar(&s.workload.Series, "series", 20000, "series")
	flag.Float64Var(&hours, "hours", 6, "hours of data")
	flag.DurationVar(&interval, "interval", 15*time.Second, "time between two samples of a series")
	flag.StringVar(&s.protocol, "protocol", "1.0", "of remote write: 1.0 or 2.0")
	flag.IntVar(&s.senders, "senders", 4, "requests at one time")
	flag.IntVar(&s.repeat, "repeat", 7, "how often each query is timed, after one that warms up")
	flag.BoolVar(&s.verify, "verify", true, "compare every sample with what was sent, after the load")
	flag.Parse()
	s.workload.IntervalMs = interval.Milliseconds()
	s.workload.Steps = int(hours * float64(time.Hour) / float64(interval))
	s.workload.StartMs = time.Now().Add(-time.Duration(s.workload.Steps) * interval).Truncate(interval).UnixMilli()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func compare(ctx context.Context, s settings) error {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "cassia-compare")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.dir = dir
	}
	g, err := bench.NewGenerator(s.workload)
	if err != nil {
		return err
	}
	systems := []system{prometheus{s.prometheus}, cassia{s.cassia}}
	if s.victoria != "" {
		systems = slices.Insert(systems, 1, system(victoria{s.victoria}))
	}
	var results []*result
	for _, sys := range systems {
		if s.only != "" && s.only != sys.name() {
			continue
		}
		dir := filepath.Join(s.dir, sys.name())
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "== %s: %d series, %d samples each\n", sys.name(), s.workload.Series, s.workload.Steps)
		r, err := measure(ctx, sys, dir, g, s)
		if err != nil {
			return fmt.Errorf("%s: %w", sys.name(), err)
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return errors.New("nothing was measured: -only must be prometheus, victoriametrics or cassia")
	}
	fmt.Print(table(s, results))
	if differences := disagreements(results); len(differences) > 0 {
		return fmt.Errorf("the answers differ:\n%s", strings.Join(differences, "\n"))
	}
	return nil
}
