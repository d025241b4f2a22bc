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

// Tenant is the tenant of the samples. It is an ordinary tenant, to which limits and retention apply by its name.
const Tenant = "cassia"

// job is the value of the label job of all series.
const job = "cassia"

// Options configure a Monitor. Fields without a default must be set.
type Options struct {
	// Instance is the value of the label instance: host:port, different for every process that shares a store.
	Instance string
	// Gatherer returns the metrics.
	Gatherer prometheus.Gatherer
	// Metadata is called with the metadata of each metric, usually storage.Store's QueueMetadata. If Metadata is nil,
	// metadata isn't stored.
	Metadata func(tenant string, metric []byte, kind string, unit, help []byte)
	// Interval is the time between rounds, default 15 s. Timeout bounds one round, default 10 s.
	Interval, Timeout time.Duration
	// MaxSamples bounds the samples of a round. A larger round stores only its failure (up is 0). Default 20,000.
	MaxSamples int

	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the defaults.
func DefaultOptions() Options {
	return Options{Interval: 15 * time.Second, Timeout: 10 * time.Second, MaxSamples: 20_000, Now: time.Now}
}

// Monitor stores the metrics. It must be used by one goroutine.
type Monitor struct {
	o        Options
	newBatch func(tenant string) adapter.Batch
	metrics  metrics

	// stored holds the series of the last successful round, by the hash of their labels.
	stored map[uint64]labels.Labels
	// isFailing is set if the last round failed. Only the first of consecutive failures is logged.
	isFailing bool
}

type metrics struct {
	samples, rejected prometheus.Counter
	rounds            *prometheus.CounterVec
}

// Results of a round.
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
		rejected: f.NewCounter(prometheus.CounterOpts{Name: "cassia_self_monitoring_refused_samples_total",
			Help: "Samples of Cassia's own metrics that were rejected individually, for example because of a series " +
				"limit."}),
		rounds: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_self_monitoring_rounds_total",
			Help: "Self-monitoring scrapes by result: stored, or skipped because the store was unavailable."},
			[]string{"result"}),
	}}
	m.metrics.rounds.WithLabelValues(roundStored)
	m.metrics.rounds.WithLabelValues(roundSkipped)
	return m
}

// Run stores the metrics immediately and then at each multiple of the interval, until ctx is canceled.
func (m *Monitor) Run(ctx context.Context) {
	last := m.o.Now()
	m.RunRound(ctx, last)
	for {
		now := m.o.Now()
		timer := time.NewTimer(now.Truncate(m.o.Interval).Add(m.o.Interval).Sub(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		// If the clock was set back, two rounds could have the same time.
		if at := m.o.Now().Truncate(m.o.Interval); !at.Equal(last) {
			m.RunRound(ctx, at)
			last = at
		}
	}
}

// RunRound stores the metrics once, with the timestamp at.
func (m *Monitor) RunRound(ctx context.Context, at time.Time) {
	limited, cancel := context.WithTimeout(ctx, m.o.Timeout)
	defer cancel()
	err := m.storeRound(limited, at)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		m.metrics.rounds.WithLabelValues(roundStored).Inc()
		m.isFailing = false
	default:
		m.metrics.rounds.WithLabelValues(roundSkipped).Inc()
		if !m.isFailing {
			m.o.Logger.Warn("can't store Cassia's own metrics; the next scrape retries", "err", err)
		}
		m.isFailing = true
	}
}
