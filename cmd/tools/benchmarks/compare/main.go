// Compare sends the same load to a real Prometheus, a real VictoriaMetrics and Cassia, one after another on this
// machine, and prints the costs of each as a Markdown table:
//
//	bin/tools/benchmarks/compare -prometheus bin/prometheus -victoriametrics bin/victoria-metrics -cassia bin/cassia
//
// (or `make bench-compare`). The load is sent with remote write as fast as the server accepts it, or at -rate. The
// costs include the compaction of Prometheus' blocks, the merging of VictoriaMetrics' parts, Cassia's sealing, and the
// acknowledgement of all samples. Of the three systems, only Cassia syncs samples to disk before it acknowledges them.
//
// -shape selects a load; -series, -hours, -interval and -churn take precedence. With -queries=false, only the CPU, disk
// and memory of the load are measured, without a restart in between. All background sealing is then included.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/bench"
)

// settings holds the flags.
type settings struct {
	prometheus, victoria, cassia, dir, only string
	workload                                bench.Workload
	protocol                                string
	senders, repeat                         int
	verify, queries                         bool
	rest, ask                               time.Duration
	// rate is the max number of samples per second; 0: no limit. empty is set for a run without a load.
	rate  float64
	empty bool
}

// shape describes a load.
type shape struct {
	series   int
	hours    float64
	interval time.Duration
	churn    float64
	rate     float64
}

// shapes contains the loads by their names for -shape.
var shapes = map[string]shape{
	"hours":    {20_000, 6, 15 * time.Second, 0, 0},
	"few":      {5_000, 6, 15 * time.Second, 0, 0},
	"backfill": {500, 60 * 24, time.Minute, 0, 0},
	// Each target exists for 20 samples. There are 512,000 series in total, 20,000 at any time.
	"churn":   {20_000, 512. / 240, 15 * time.Second, 12, 0},
	"million": {1_000_000, 0.1, 15 * time.Second, 0, 0},
	// Five minutes with 50,000 samples per second.
	"steady": {20_000, 3.125, 15 * time.Second, 0, 50_000},
	// No load, to measure the costs of an idle server.
	"empty": {1, 0.1, 15 * time.Second, 0, 0},
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
	name := flag.String("shape", "hours", "of the load: "+strings.Join(slices.Sorted(maps.Keys(shapes)), ", "))
	flag.IntVar(&s.workload.Series, "series", 0, "series at one time; 0: the shape's")
	flag.Float64Var(&hours, "hours", 0, "hours of data; 0: the shape's")
	flag.DurationVar(&interval, "interval", 0, "time between two samples of a series; 0: the shape's")
	flag.Float64Var(&s.workload.ChurnPerHour, "churn", -1,
		"share of the series that are replaced by others in an hour; below 0: the shape's")
	flag.Float64Var(
		&s.rate, "rate", -1, "most samples a second; 0: as fast as the server takes them; below 0: the shape's",
	)
	flag.DurationVar(&s.rest, "rest", time.Minute, "how long a server rests before its disk and memory are looked at")
	flag.BoolVar(&s.queries, "queries", true, "time queries, at the end")
	flag.StringVar(&s.protocol, "protocol", "1.0", "of remote write: 1.0 or 2.0")
	flag.IntVar(&s.senders, "senders", 4, "requests at one time")
	flag.IntVar(&s.repeat, "repeat", 7, "how often at least each query is asked, after one that warms up")
	flag.DurationVar(&s.ask, "ask", time.Second, "how long at least each query is asked, again and again")
	flag.BoolVar(&s.verify, "verify", true, "compare every sample with what was sent, after the load")
	flag.Parse()
	sh, ok := shapes[*name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such shape:", *name)
		os.Exit(2)
	}
	s.workload.Series = cmp.Or(s.workload.Series, sh.series)
	hours, interval = cmp.Or(hours, sh.hours), cmp.Or(interval, sh.interval)
	if s.workload.ChurnPerHour < 0 {
		s.workload.ChurnPerHour = sh.churn
	}
	if s.rate < 0 {
		s.rate = sh.rate
	}
	if s.empty = *name == "empty"; s.empty {
		s.queries, s.verify = false, false
	}
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

func (s settings) load() string {
	if s.empty {
		return "no load"
	}
	out := fmt.Sprintf("%d series, %s every %s, %d samples",
		s.workload.Series, short(time.Duration(s.workload.Steps)*s.workload.Interval()), short(s.workload.Interval()),
		s.workload.Samples())
	if s.rate > 0 {
		out += fmt.Sprintf(", %.0f a second", s.rate)
	}
	return out + fmt.Sprintf(", remote write %s, %d senders", s.protocol, s.senders)
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
	systems := []system{
		prometheus{s.prometheus}, cassia{s.cassia, time.Since(time.UnixMilli(s.workload.StartMs)) > 7*24*time.Hour},
	}
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
		fmt.Fprintf(os.Stderr, "== %s: %s\n", sys.name(), s.load())
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
