package storage

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are what an operator sees of a store.
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
		return f.NewCounter(prometheus.CounterOpts{Name: "cassia_store_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: "cassia_store_" + name, Help: help})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return f.NewHistogram(prometheus.HistogramOpts{
			Name: "cassia_store_" + name, Help: help,
			Buckets:                     prometheus.ExponentialBuckets(0.0005, 2, 16),
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		})
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_store_head_series", Help: "Series in the head."},
		func() float64 { return float64(s.head.SeriesCount()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_store_head_bytes", Help: "Estimated memory of the head."},
		func() float64 { return float64(s.head.Bytes()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_store_head_limit_bytes", Help: "Memory of the head from which new series are refused; 0: no limit."},
		func() float64 { return float64(s.opts.HeadBytes) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_store_clock_doubted", Help: "Whether this machine's clock isn't believed (1): then nothing is removed."},
		func() float64 {
			if _, doubted := s.clock.Off(); doubted {
				return 1
			}
			return 0
		})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_store_clock_ahead_seconds", Help: "By how much this machine's clock is ahead of the cluster's, or on one machine of what the store has seen of time."},
		func() float64 { off, _ := s.clock.Off(); return off.Seconds() })
	s.cache.register(f)
	return &metrics{
		samples: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_store_samples_total",
			Help: "Samples acknowledged, by type."}, []string{"type"}),
		exemplars:      counter("exemplars_total", "Exemplars acknowledged."),
		repeats:        counter("repeated_samples_total", "Samples that were durable already and cost nothing."),
		overloaded:     counter("overloaded_total", "Batches refused because too much was waiting."),
		commitErrors:   counter("commit_errors_total", "Commits that failed; their senders were told to try again."),
		commitSeconds:  seconds("commit_seconds", "Time of a commit, which serves all batches that waited for it."),
		ackSeconds:     seconds("ack_seconds", "Time from when a batch was complete until it was durable and visible."),
		stagedBytes:    counter("staged_bytes_total", "Bytes of blobs written to the stage."),
		queueBytes:     gauge("queue_bytes", "Bytes of batches that wait for a commit."),
		rebuildSeconds: gauge("rebuild_seconds", "Time that the last rebuild of the head took."),
		sealSeconds:    seconds("seal_seconds", "Time of sealing one slot of one partition."),
		sealedSamples:  counter("sealed_samples_total", "Samples sealed."),
		sealedChunks:   counter("sealed_chunks_total", "Chunks written."),
		leftOut:        counter("rollup_samples_left_out_total", "Samples past the raw retention that were not added to the rollups: their 5 minutes have samples before and after them, or the same ones."),
		deletes:        counter("deletes_total", "Deletes of series that were carried out."),
		droppedWindows: counter("dropped_windows_total", "Windows that retention dropped."),
		expiredSamples: counter("expired_samples_total", "Samples that were past their retention before they could be sealed."),
		orphans:        counter("orphan_samples_total", "Samples left out of the stage because the write they came with was never acknowledged."),
		longChunks: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_store_compacted_chunks_total",
			Help: "Rollup chunks that became parts of long chunks, by resolution."}, []string{"resolution"}),
		leftSeries: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_store_compaction_left_series_total",
			Help: "Series that compaction left as they are, since a chunk can't be read or they are too large, by resolution."}, []string{"resolution"}),
		corrupt: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_store_corrupt_rows_total",
			Help: "Rows skipped because they are corrupt, by table."}, []string{"table"}),
	}
}
