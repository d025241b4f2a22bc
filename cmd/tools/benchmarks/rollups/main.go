// Rollups runs the same queries on Cassia and on a real Prometheus with the same months of samples. It prints the
// duration and the CPU time of each query and the disk usage of the samples, as Markdown tables:
//
//	bin/tools/benchmarks/rollups -prometheus bin/prometheus -cassia bin/cassia
//
// (or `make bench-rollups`).
//
//	            in this process               a new process for every question
//	          ┌─► storage, day by day ─► Pebble ──► cassia serve ──┐
//	dataset ──┤                                                    ├──► HTTP: time, CPU, answers compared
//	          └─► tsdb's BlockWriter ──► blocks ──► prometheus ────┘
//
// Both systems are filled without their network protocols, which bench-compare measures. Cassia is filled day by day
// with a simulated clock, as if the samples had been sent and sealed on these days. Prometheus is filled with blocks of
// the length that its compaction would produce. For every query and resolution, the benchmark starts a process, waits
// until it is idle, runs the query once and stops the process. It does so repeatedly and reports the medians. All files
// are in the page cache.
//
// With -small, both systems run at the same time and serve queries with small results, whose cost is mostly the fixed
// cost of a query.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// settings holds the flags.
type settings struct {
	prometheus, cassia string
	dir, profile, only string
	counters, gauges   int
	metrics, wide      int
	small              bool
	days               int
	interval           time.Duration
	until              string
	repeat             int
	resolutions        string
}

func main() {
	var s settings
	flag.StringVar(&s.prometheus, "prometheus", "bin/prometheus", "Prometheus' binary")
	flag.StringVar(&s.cassia, "cassia", "bin/cassia", "Cassia's binary")
	flag.StringVar(&s.dir, "dir", "",
		"folder for the data of both, kept, and used again if it was filled by the same flags; a temporary one, "+
			"removed at the end, if empty")
	flag.IntVar(&s.counters, "counters", 700, "series of the counter")
	flag.IntVar(&s.gauges, "gauges", 300, "series of the gauge")
	flag.IntVar(&s.days, "days", 90, "days of data")
	flag.DurationVar(&s.interval, "interval", time.Minute, "time between two samples of a series")
	flag.StringVar(
		&s.until, "until", "", "day at whose beginning (UTC) the data end, such as 2026-01-01; today if empty",
	)
	flag.IntVar(&s.repeat, "repeat", 3, "how often each question is asked, of a new process each time")
	flag.StringVar(
		&s.resolutions, "resolutions", "auto,exact,raw", "what Cassia is asked to answer from, with commas between",
	)
	flag.StringVar(&s.only, "only", "", "ask just the questions that contain this text")
	flag.StringVar(&s.profile, "profile", "", "folder for CPU profiles of Cassia; none are made if empty")
	flag.IntVar(&s.metrics, "metrics", 0, "metrics that the gauges are divided among; 0: one")
	flag.IntVar(&s.wide, "wide", 0, "gauges more on the last day, of as many metrics")
	flag.BoolVar(&s.small, "small", false,
		"ask small questions of servers that run, over 58 days every 5 minutes: 500 counters, 1,000 gauges of 200 "+
			"metrics, 10,000 more on the last day")
	flag.Parse()
	if s.small {
		s.counters, s.gauges, s.metrics, s.wide, s.days, s.interval = 500, 1000, 200, 10_000, 58, 5*time.Minute
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	data, err := s.dataset(time.Now())
	if err != nil {
		return err
	}
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "cassia-rollups")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.dir = dir
	}
	costs, err := fill(ctx, s.dir, data)
	if err != nil {
		return err
	}
	disk, err := measureDisk(ctx, s.dir, s.cassia)
	if err != nil {
		return err
	}
	fmt.Print(fillTable(data, disk, costs))
	if s.small {
		return askSmall(ctx, s, data)
	}
	results, err := ask(ctx, s, data)
	if err != nil {
		return err
	}
	var wrong []string
	for _, resolution := range strings.Split(s.resolutions, ",") {
		fmt.Print(queryTable(resolution, results))
		for _, r := range results {
			if d := r.cassia[resolution].wrong(); d != "" {
				wrong = append(wrong, fmt.Sprintf("%s, %s: %s", r.question, resolution, d))
			}
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("answers differ that should be the same:\n%s", strings.Join(wrong, "\n"))
	}
	return nil
}

// dataset returns the dataset that the flags describe.
func (s settings) dataset(now time.Time) (dataset, error) {
	end := now.UTC().Truncate(24 * time.Hour)
	if s.until != "" {
		var err error
		if end, err = time.Parse(time.DateOnly, s.until); err != nil {
			return dataset{}, fmt.Errorf("-until: %w", err)
		}
	}
	d := dataset{
		Counters: s.counters, Gauges: s.gauges, Metrics: s.metrics, Wide: s.wide, Days: s.days,
		IntervalMs: s.interval.Milliseconds(), EndMs: end.UnixMilli(),
	}
	return d, d.validate()
}

// fill fills both stores and returns the costs. If they are already filled, it returns the recorded costs.
func fill(ctx context.Context, dir string, d dataset) (costs, error) {
	file := filepath.Join(dir, "filled.json")
	if done, err := readFilled(file); err == nil {
		if done.Dataset != d {
			return costs{}, fmt.Errorf("%s was filled by other flags: %+v; remove it, or give another folder",
				dir, done.Dataset)
		}
		progress("%s is filled already", dir)
		return done.Costs, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return costs{}, err
	}
	var c costs
	var err error
	progress("filling Cassia with %d samples", d.samples())
	if c, err = fillCassia(ctx, filepath.Join(dir, "cassia"), d); err != nil {
		return c, fmt.Errorf("filling Cassia: %w", err)
	}
	progress("filling Prometheus with %d samples", d.samples())
	if err = fillPrometheus(ctx, filepath.Join(dir, "prometheus"), d); err != nil {
		return c, fmt.Errorf("filling Prometheus: %w", err)
	}
	return c, writeFilled(file, filled{d, c})
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "== "+format+"\n", args...)
}
