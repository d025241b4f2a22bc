package selfmonitoring

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
)

// Tenant is whose the samples are: an ordinary tenant, which has the limits and the retention that its name is given.
const Tenant = "cassia"

// Job is the label job of all series.
const Job = "cassia"

// Options set what is stored, and how often. Fields without a default must be set.
type Options struct {
	// Instance is the label instance: host:port, another one for every process that shares a store.
	Instance string
	// Gatherer has the metrics.
	Gatherer prometheus.Gatherer
	// Metadata is called with the metadata of metrics, as storage.Store's NoteMetadata; nil: it isn't kept.
	Metadata func(tenant string, metric []byte, kind string, unit, help []byte)
	// Interval is the time between two rounds, and Timeout how long the store may take for one. Default 15 s and 10 s.
	Interval, Timeout time.Duration
	// MaxSamples bounds a round: one with more stores nothing but that it failed. Default 20,000.
	MaxSamples int

	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the defaults.
func DefaultOptions() Options {
	return Options{Interval: 15 * time.Second, Timeout: 10 * time.Second, MaxSamples: 20_000, Now: time.Now}
}

// Monitor stores the metrics. It is for one goroutine.
type Monitor struct {
	o        Options
	newBatch func(tenant string) adapter.Batch
	metrics  metrics

	// stored are the series that the last round that went well has stored, by the hash of their labels.
	stored map[uint64]labels.Labels
	// failing: the last round didn't go well: only the first of several is logged.
	failing bool
}

type metrics struct {
	samples, refused prometheus.Counter
	rounds           *prometheus.CounterVec
}

// What became of a round.
const (
	roundStored  = "stored"
	roundSkipped = "skipped"
)

// New returns a monitor that writes to store.
func New(store *storage.Store, o Options) *Monitor {
	f := promauto.With(o.Registerer)
	m := &Monitor{o: o, newBatch: func(tenant string) adapter.Batch { return store.NewBatch(tenant) }, metrics: metrics{
		samples: f.NewCounter(prometheus.CounterOpts{Name: "cassia_self_monitoring_samples_total",
			Help: "Samples of Cassia's own metrics that were stored."}),
		refused: f.NewCounter(prometheus.CounterOpts{Name: "cassia_self_monitoring_refused_samples_total",
			Help: "Samples of Cassia's own metrics that were rejected individually, for example because of a series limit."}),
		rounds: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_self_monitoring_rounds_total",
			Help: "Self-monitoring scrapes by result: stored, or skipped because the store was unavailable."}, []string{"result"}),
	}}
	m.metrics.rounds.WithLabelValues(roundStored)
	m.metrics.rounds.WithLabelValues(roundSkipped)
	return m
}

// Run stores the metrics at once, and then at each multiple of the interval until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	last := m.o.Now()
	m.Round(ctx, last)
	for {
		now := m.o.Now()
		timer := time.NewTimer(now.Truncate(m.o.Interval).Add(m.o.Interval).Sub(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		// A clock that was set back would let two rounds have the same time.
		if at := m.o.Now().Truncate(m.o.Interval); !at.Equal(last) {
			m.Round(ctx, at)
			last = at
		}
	}
}

// Round stores the metrics once, as of at.
func (m *Monitor) Round(ctx context.Context, at time.Time) {
	limited, cancel := context.WithTimeout(ctx, m.o.Timeout)
	defer cancel()
	err := m.store(limited, at)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		m.metrics.rounds.WithLabelValues(roundStored).Inc()
		m.failing = false
	default:
		m.metrics.rounds.WithLabelValues(roundSkipped).Inc()
		if !m.failing {
			m.o.Logger.Warn("can't store Cassia's own metrics; the next scrape retries", "err", err)
		}
		m.failing = true
	}
}
