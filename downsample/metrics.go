package downsample

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics holds the counters. Gauges are computed when they are scraped, so that the lag grows even while the loop is
// blocked.
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
		f.NewCounterFunc(prometheus.CounterOpts{Name: "cassia_downsample_" + name, Help: help}, func() float64 {
			return value().Seconds()
		})
	}
	gauge("waiting_slots",
		"Slots that are due for sealing in the partitions of this process, counted once per partition.",
		func() float64 { n, _ := l.behind(); return float64(n) })
	gauge("lag_seconds", "Time in seconds since the oldest unsealed slot became due for sealing; 0 if no slot is due.",
		func() float64 { _, lag := l.behind(); return lag.Seconds() })
	gauge("lag_limit_seconds",
		"Threshold of the sealing lag for alerts, in seconds: half of the lag at which late sealing starts to lose "+
			"raw samples.",
		func() float64 { return alarmLag.Seconds() })
	gauge("partitions", "Staging partitions that this process seals.", func() float64 { return float64(l.owned()) })
	gauge("stuck_partitions", "Staging partitions of this process whose sealing failed in several consecutive rounds.",
		func() float64 { return float64(len(l.progress.stuck())) })
	gauge("halted", "Whether sealing is stopped because the head could not be rebuilt (1) or not (0).", func() float64 {
		if l.progress.why() != nil {
			return 1
		}
		return 0
	})
	gauge("busy_seconds", "Duration of the current background task in seconds; 0 if no task is running.",
		func() float64 { _, took := l.pacer.longest(); return took.Seconds() })
	gauge("unrolled_windows",
		"Windows of raw samples whose rollups this process still has to create, for example after an interrupted "+
			"import or a delete.",
		func() float64 { return float64(l.backlog.count(l.owns)) })
	gauge("uncompacted_windows", "Complete windows of rollups that are waiting for compaction.",
		func() float64 { return float64(l.compactions.count()) })
	gauge("uncounted_windows",
		"Complete windows of raw samples whose series are not yet counted for the cardinality statistics.",
		func() float64 { return float64(l.uncounted.count()) })
	seconds("worked_seconds_total", "Time in seconds spent on sealing and other background tasks.",
		func() time.Duration { w, _ := l.pacer.spent(); return w })
	seconds("rested_seconds_total",
		"Time in seconds that background tasks paused so that they don't slow down writes and queries.",
		func() time.Duration { _, r := l.pacer.spent(); return r })
	return metrics{
		rounds:   counter("rounds_total", "Sealing rounds over all partitions."),
		failures: counter("failures_total", "Failed steps of sealing rounds; the next round retries them."),
		sealed:   counter("sealed_slots_total", "Sealed slots, counted once per partition."),
		repaired: counter("repaired_slots_total",
			"Slots sealed again because samples arrived late, which also recomputes their rollups. Counted once per "+
				"partition."),
		compacted: counter("compacted_windows_total", "Compacted windows of rollups."),
		counted: counter(
			"counted_windows_total", "Windows of raw samples whose series were counted for the cardinality statistics.",
		),
		rolled: counter("rolled_windows_total", "Windows of raw samples whose missing rollups were created."),
	}
}
