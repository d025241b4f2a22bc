package storage

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the store's Prometheus metrics.
type metrics struct {
	samples        *prometheus.CounterVec
	exemplars      prometheus.Counter
	repeats        prometheus.Counter
	overloaded     prometheus.Counter
	commitErrors   prometheus.Counter
	commitSeconds  prometheus.Histogram
	ackSeconds     prometheus.Histogram
	stagedBytes    prometheus.Counter
	queueBytes     prometheus.Gauge
	rebuildSeconds prometheus.Gauge
	sealSeconds    prometheus.Histogram
	sealedSamples  prometheus.Counter
	sealedChunks   prometheus.Counter
	leftOut        prometheus.Counter
	droppedWindows prometheus.Counter
	expiredSamples prometheus.Counter
	deletes        prometheus.Counter
	orphans        prometheus.Counter
	corrupt        *prometheus.CounterVec
	longChunks     *prometheus.CounterVec
	leftSeries     *prometheus.CounterVec
}

func newMetrics(s *Store, r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	byLabel := func(name, label, help string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return f.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help,
			Buckets:                     prometheus.ExponentialBuckets(0.0005, 2, 16),
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		})
	}
	gaugeFunc := func(name, help string, value func() float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gaugeFunc("cassia_store_head_series", "Active series in the head.", func() float64 { return float64(s.head.SeriesCount()) })
	gaugeFunc("cassia_store_import_wait_seconds",
		"Longest time for which a running import has been waiting for other work of the store, in seconds; 0 if no "+
			"import waits.", func() float64 { return s.member.Imports.Wait().Seconds() })
	gaugeFunc("cassia_store_head_bytes", "Estimated memory of the head, in bytes.",
		func() float64 { return float64(s.head.Bytes()) })
	gaugeFunc("cassia_store_head_limit_bytes",
		"Size of the head in bytes above which new series are rejected; 0 if there is no limit.",
		func() float64 { return float64(s.opts.HeadBytes) })
	registerClock(gaugeFunc, s)
	s.cache.Register(f)
	return &metrics{
		samples: byLabel("cassia_store_samples_total", "type",
			"Acknowledged samples by type."),
		exemplars:     counter("cassia_store_exemplars_total", "Acknowledged exemplars."),
		repeats:       counter("cassia_store_repeated_samples_total", "Received samples that were already stored (duplicates)."),
		overloaded:    counter("cassia_store_overloaded_total", "Write batches rejected because too many writes were waiting."),
		commitErrors:  counter("cassia_store_commit_errors_total", "Failed commits of write batches; senders retry them."),
		commitSeconds: seconds("cassia_store_commit_seconds", "Duration of commits. A commit writes all waiting batches."),
		ackSeconds: seconds(
			"cassia_store_ack_seconds", "Time from submitting a write batch until it was durable and visible to queries.",
		),
		stagedBytes:    counter("cassia_store_staged_bytes_total", "Bytes written to the staging log."),
		queueBytes:     gauge("cassia_store_queue_bytes", "Bytes of write batches that are waiting for a commit."),
		rebuildSeconds: gauge("cassia_store_rebuild_seconds", "Duration of the last rebuild of the head, in seconds."),
		sealSeconds:    seconds("cassia_store_seal_seconds", "Duration of sealing one slot of one partition."),
		sealedSamples:  counter("cassia_store_sealed_samples_total", "Samples sealed."),
		sealedChunks:   counter("cassia_store_sealed_chunks_total", "Chunks written by sealing."),
		leftOut: counter("cassia_store_rollup_samples_left_out_total",
			"Samples past the raw retention that could not be added to rollups, because their 5-minute bucket already "+
				"contains them, or contains both earlier and later samples."),
		deletes: counter("cassia_store_deletes_total", "Completed deletes of series."),
		droppedWindows: counter("cassia_store_dropped_windows_total",
			"Windows of sealed samples or rollups that were deleted because they were past their retention."),
		expiredSamples: counter(
			"cassia_store_expired_samples_total", "Samples that were past their retention before they were sealed.",
		),
		orphans: counter(
			"cassia_store_orphan_samples_total", "Staged samples that were skipped because their write was never acknowledged.",
		),
		longChunks: byLabel("cassia_store_compacted_chunks_total", "resolution",
			"Rollup chunks that compaction merged into long chunks, by resolution."),
		leftSeries: byLabel("cassia_store_compaction_left_series_total", "resolution",
			"Series that compaction skipped, because a chunk is unreadable or they are too large, by resolution."),
		corrupt: byLabel("cassia_store_corrupt_rows_total", "table",
			"Corrupt rows that were skipped, by table."),
	}
}

// registerClock adds the metrics of the machine's clock.
func registerClock(gauge func(name, help string, value func() float64), s *Store) {
	gauge("cassia_store_clock_doubted",
		"Whether this machine's clock is untrusted (1) or trusted (0). While it is untrusted, no data is deleted.",
		func() float64 {
			if _, doubted := s.clock.Difference(); doubted {
				return 1
			}
			return 0
		})
	gauge("cassia_store_clock_ahead_seconds",
		"Seconds by which this machine's clock is fast compared to the cluster's clock, or on a single machine "+
			"compared to the last time recorded in the store. Negative if it is slow.",
		func() float64 { off, _ := s.clock.Difference(); return off.Seconds() })
}
