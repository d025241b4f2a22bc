package downsample

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/cassia-db/cassia/storage"
)

// Options configure a Loop.
type Options struct {
	// Settle is how long after its end a slot waits for stragglers before it is sealed. Default 15 min.
	Settle time.Duration
	// Interval is the time between rounds. Default 1 min.
	Interval time.Duration
	// Now is the clock.
	Now func() time.Time
	// Logger gets what an operator should know.
	Logger *slog.Logger
	// Registerer gets the loop's metrics; nil: none are kept anywhere.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{Settle: 15 * time.Minute, Interval: time.Minute, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
}

// Validate says what is wrong with the options.
func (o *Options) Validate() error {
	switch {
	case o.Settle < 0:
		return errors.New("downsample: a settling time below zero")
	case o.Interval <= 0:
		return errors.New("downsample: the interval must be above zero")
	case o.Now == nil || o.Logger == nil:
		return errors.New("downsample: Options without a clock or a logger; begin with DefaultOptions")
	}
	return nil
}

// Loop works off what waits.
type Loop struct {
	store   *storage.Store
	opts    Options
	mu      sync.Mutex // one round at a time
	metrics metrics
}

type metrics struct {
	rounds   prometheus.Counter
	failures prometheus.Counter
	waiting  prometheus.Gauge
	lag      prometheus.Gauge
}

// New makes a loop over a store. The store outlives it.
func New(store *storage.Store, opts Options) (*Loop, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	f := promauto.With(opts.Registerer)
	return &Loop{store: store, opts: opts, metrics: metrics{
		rounds: f.NewCounter(prometheus.CounterOpts{Name: "cassia_downsample_rounds_total",
			Help: "Rounds over all partitions."}),
		failures: f.NewCounter(prometheus.CounterOpts{Name: "cassia_downsample_failures_total",
			Help: "Steps of rounds that failed; the next round tries them again."}),
		waiting: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_downsample_waiting_slots",
			Help: "Settled slots, counted once a partition, that the last round found with unsealed samples and could not seal."}),
		lag: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_downsample_lag_seconds",
			Help: "How long ago the oldest slot ended that is settled and could not be sealed; 0: none waits."}),
	}}, nil
}

// Run does rounds until ctx ends, the first one once the store is ready.
func (l *Loop) Run(ctx context.Context) {
	if err := l.store.WaitReady(ctx); err != nil {
		if ctx.Err() == nil {
			l.opts.Logger.Error("nothing will be sealed, for the head could not be rebuilt", "err", err)
		}
		return
	}
	ticker := time.NewTicker(l.opts.Interval)
	defer ticker.Stop()
	for {
		l.Round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Round seals every settled slot, oldest first, then tidies up.
func (l *Loop) Round(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, oldest := 0, time.Duration(0)
	for p := range l.store.Period().Partitions {
		if ctx.Err() != nil {
			return
		}
		n, lag := l.partition(ctx, p)
		waiting, oldest = waiting+n, max(oldest, lag)
	}
	l.store.LetGo()
	if n, err := l.store.Expire(ctx); err != nil {
		l.failed(ctx, "dropping windows past their retention", err)
	} else if n > 0 {
		l.opts.Logger.Info("dropped windows past their retention", "windows", n)
	}
	l.metrics.rounds.Inc()
	l.metrics.waiting.Set(float64(waiting))
	l.metrics.lag.Set(oldest.Seconds())
}

// partition seals what is settled of one partition. It returns how many slots still wait, and how long
// ago the oldest of them ended.
func (l *Loop) partition(ctx context.Context, partition int) (waiting int, lag time.Duration) {
	work, err := l.store.Waiting(ctx, partition)
	if err != nil {
		l.failed(ctx, "listing waiting work", err, "partition", partition)
		return 0, 0
	}
	for _, w := range work {
		if !l.store.Settled(w.Slot, l.opts.Settle.Milliseconds()) {
			continue
		}
		begin := l.opts.Now()
		stats, err := l.store.Seal(ctx, w)
		if err != nil {
			l.failed(ctx, "sealing", err, "partition", partition, "slot", w.Slot)
			waiting++
			lag = max(lag, l.opts.Now().Sub(time.UnixMilli(l.store.SlotEnd(w.Slot))))
			continue
		}
		if stats.Blobs > 0 {
			l.opts.Logger.Debug("sealed", "partition", partition, "slot", w.Slot, "blobs", stats.Blobs, "series", stats.Series,
				"samples", stats.Samples, "bytes", stats.Bytes, "took", l.opts.Now().Sub(begin))
		}
	}
	if err := l.store.Advance(ctx, partition); err != nil {
		l.failed(ctx, "moving the marks", err, "partition", partition)
	}
	return waiting, lag
}

func (l *Loop) failed(ctx context.Context, what string, err error, args ...any) {
	if ctx.Err() != nil {
		return
	}
	l.metrics.failures.Inc()
	l.opts.Logger.Error(what+" failed; the next round tries again", append(args, "err", err)...)
}
