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
	// Shared says that other processes work over the same engine: the partitions are divided among them by
	// leases. Default false: all are this process' own.
	Shared bool
	// Idle makes a process take no leases: it only lets go of what others have sealed. Default false.
	Idle bool
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
	leases  *leases    // nil: all partitions are this process'
	leaseMu sync.Mutex
	swept   time.Time // when the last sweep began
	metrics metrics
}

type metrics struct {
	rounds   prometheus.Counter
	failures prometheus.Counter
	waiting  prometheus.Gauge
	lag      prometheus.Gauge
	owned    prometheus.Gauge
}

// New makes a loop over a store. The store outlives it.
func New(store *storage.Store, opts Options) (*Loop, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	f := promauto.With(opts.Registerer)
	l := &Loop{store: store, opts: opts, metrics: metrics{
		rounds: f.NewCounter(prometheus.CounterOpts{Name: "cassia_downsample_rounds_total",
			Help: "Rounds over all partitions."}),
		failures: f.NewCounter(prometheus.CounterOpts{Name: "cassia_downsample_failures_total",
			Help: "Steps of rounds that failed; the next round tries them again."}),
		waiting: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_downsample_waiting_slots",
			Help: "Settled slots, counted once a partition, that the last round found with unsealed samples and could not seal."}),
		lag: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_downsample_lag_seconds",
			Help: "How long ago the oldest slot ended that is settled and could not be sealed; 0: none waits."}),
		owned: f.NewGauge(prometheus.GaugeOpts{Name: "cassia_downsample_partitions",
			Help: "Partitions whose work this process does."}),
	}}
	if opts.Shared && !opts.Idle {
		l.leases = newLeases(store, opts.Now)
	}
	return l, nil
}

// Run does rounds until ctx ends, the first one once the store is ready.
func (l *Loop) Run(ctx context.Context) {
	if err := l.store.WaitReady(ctx); err != nil {
		if ctx.Err() == nil {
			l.opts.Logger.Error("nothing will be sealed, for the head could not be rebuilt", "err", err)
		}
		return
	}
	more := make(chan struct{}, 1)
	var looking sync.WaitGroup
	if l.leases != nil {
		looking.Go(func() { l.look(ctx, more) })
	}
	defer looking.Wait()
	ticker := time.NewTicker(l.opts.Interval)
	defer ticker.Stop()
	for {
		l.Round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-more:
		case <-ticker.C:
		}
	}
}

// look keeps the leases until ctx ends, and then frees them. It tells more when there are new ones.
func (l *Loop) look(ctx context.Context, more chan<- struct{}) {
	ticker := time.NewTicker(leaseInterval)
	defer ticker.Stop()
	for {
		l.leaseMu.Lock()
		gained, err := l.leases.look(ctx)
		l.metrics.owned.Set(float64(len(l.leases.owned)))
		l.leaseMu.Unlock()
		if err != nil {
			l.failed(ctx, "looking after the leases", err)
		}
		if gained {
			select {
			case more <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			l.leaseMu.Lock()
			defer l.leaseMu.Unlock()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseInterval)
			defer cancel()
			if err := l.leases.free(last); err != nil {
				l.opts.Logger.Warn("the leases could not be freed; others take them when this process isn't heard of", "err", err)
			}
			return
		case <-ticker.C:
		}
	}
}

// owns says whether a partition's work is this process'.
func (l *Loop) owns(partition int) bool {
	if l.leases == nil {
		return !l.opts.Idle
	}
	l.leaseMu.Lock()
	defer l.leaseMu.Unlock()
	return l.leases.owned[partition]
}

// Round seals every settled slot of this process' partitions, oldest first, then tidies up.
func (l *Loop) Round(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, oldest := 0, time.Duration(0)
	for p := range l.store.Partitions() {
		if ctx.Err() != nil {
			return
		}
		if !l.owns(p) {
			if err := l.store.Forget(ctx, p); err != nil {
				l.failed(ctx, "letting go of what others have sealed", err, "partition", p)
			}
			continue
		}
		n, lag := l.partition(ctx, p)
		waiting, oldest = waiting+n, max(oldest, lag)
	}
	l.store.LetGo()
	if l.owns(0) {
		l.expire(ctx)
	}
	l.sweep(ctx)
	l.metrics.rounds.Inc()
	l.metrics.waiting.Set(float64(waiting))
	l.metrics.lag.Set(oldest.Seconds())
}

// sweep looks, once in a long while, for work that no mark and no pending row leads to.
func (l *Loop) sweep(ctx context.Context) {
	now := l.opts.Now()
	if !l.opts.Shared || now.Sub(l.swept) < sweepInterval {
		return
	}
	first := l.swept.IsZero()
	l.swept = now
	if first {
		return // Not while the process starts.
	}
	for p := range l.store.Partitions() {
		if ctx.Err() != nil || !l.owns(p) {
			continue
		}
		n, err := l.store.Sweep(ctx, p)
		if err != nil {
			l.failed(ctx, "sweeping", err, "partition", p)
		}
		if n > 0 {
			l.opts.Logger.Warn("sealed samples that had come back after they were sealed: is the cluster repaired in time?", "partition", p, "slots", n)
		}
	}
}

// sweepInterval is the time between two sweeps.
const sweepInterval = 24 * time.Hour

func (l *Loop) expire(ctx context.Context) {
	if n, err := l.store.Expire(ctx); err != nil {
		l.failed(ctx, "dropping windows past their retention", err)
	} else if n > 0 {
		l.opts.Logger.Info("dropped windows past their retention", "windows", n)
	}
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
		if !l.owns(partition) {
			return waiting, lag // It has passed to another process.
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
