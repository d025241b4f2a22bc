package downsample

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the counters. Gauges are computed when they are scraped, so that a lag grows even
// while nothing moves.
type metrics struct {
	rounds    prometheus.Counter
	failures  prometheus.Counter
	sealed    prometheus.Counter
	repaired  prometheus.Counter
	rolled    prometheus.Counter
	compacted prometheus.Counter
	counted   prometheus.Counter
}

func newMetrics(l *Loop, r prometheus.Registerer) metrics {
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "cassia_downsample_" + name, Help: help})
	}
	gauge := func(name, help string, value func() float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_downsample_" + name, Help: help}, value)
	}
	seconds := func(name, help string, value func() time.Duration) {
		f.NewCounterFunc(prometheus.CounterOpts{Name: "cassia_downsample_" + name, Help: help}, func() float64 { return value().Seconds() })
	}
	gauge("waiting_slots", "Settled slots of this process' partitions, counted once a partition, that hold unsealed samples.",
		func() float64 { n, _ := l.progress.behind(l.opts.Now()); return float64(n) })
	gauge("lag_seconds", "For how long the oldest waiting slot could have been sealed; 0: none waits.",
		func() float64 { _, lag := l.progress.behind(l.opts.Now()); return lag.Seconds() })
	gauge("lag_limit_seconds", "The lag that is an alarm: half of the time in which late sealing loses nothing.",
		func() float64 { return alarmLag.Seconds() })
	gauge("partitions", "Partitions whose work this process does.", func() float64 { return float64(l.owned()) })
	gauge("stuck_partitions", "Partitions of this process whose work has failed in several rounds in a row.",
		func() float64 { return float64(len(l.progress.stuck())) })
	gauge("halted", "1: nothing is sealed, for the head could not be rebuilt.", func() float64 {
		if l.progress.why() != nil {
			return 1
		}
		return 0
	})
	gauge("busy_seconds", "How long the piece of work under way takes; 0: none is.",
		func() float64 { _, took := l.pacer.under(); return took.Seconds() })
	gauge("unrolled_windows", "Windows of raw rows that an earlier release sealed without rollups, which this process is to make.",
		func() float64 { return float64(l.backlog.count(l.owns)) })
	gauge("uncompacted_windows", "Windows of rollups that are over and wait to be compacted.", func() float64 { return float64(l.compactions.count()) })
	gauge("uncounted_windows", "Windows of raw rows that are over and whose series wait to be counted.", func() float64 { return float64(l.uncounted.count()) })
	seconds("worked_seconds_total", "Time spent on working off.", func() time.Duration { w, _ := l.pacer.spent(); return w })
	seconds("rested_seconds_total", "Time spent on resting between, so that writes and queries aren't slowed down.", func() time.Duration { _, r := l.pacer.spent(); return r })
	return metrics{
		rounds:    counter("rounds_total", "Rounds over all partitions."),
		failures:  counter("failures_total", "Steps of rounds that failed; the next round tries them again."),
		sealed:    counter("sealed_slots_total", "Slots sealed, counted once a partition."),
		repaired:  counter("repaired_slots_total", "Slots among them that had been sealed before: samples came late, and rollups were made anew."),
		compacted: counter("compacted_windows_total", "Windows of rollups that were compacted."),
		counted:   counter("counted_windows_total", "Windows of raw rows whose series were counted."),
		rolled:    counter("rolled_windows_total", "Windows of raw rows whose missing rollups were made."),
	}
}
