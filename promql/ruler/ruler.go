package ruler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/logging"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/panics"
)

// Ruler evaluates rules while it owns their lease.
type Ruler struct {
	o     Options
	store *storage.Store
	owner *owner
	// query evaluates the queries of rules, see ruleQuery. growths caches the growth of the texts of alerts.
	query   rules.QueryFunc
	growths sync.Map
	ledger  ruleLedger
	// readings holds an element per group that reads stored results.
	readings chan struct{}
	metrics  metrics
	// evaluations are the metrics of Prometheus' managers, by tenant. They outlive the managers, so that counters
	// continue after a takeover.
	evaluations map[string]*rules.Metrics

	// changing is held while managers start, stop and change, which may take as long as an evaluation. mu guards the
	// fields below, and is held only for short times.
	changing sync.Mutex
	mu       sync.Mutex
	files    map[string]ruleFiles
	// running are the managers, by tenant. nil: this process doesn't evaluate rules.
	running map[string]*manager
	// generation is the number of times that the files were read. elsewhere is true if another process evaluates the
	// rules.
	generation int
	elsewhere  bool

	views views
	// refused counts results that weren't stored because another process may have taken over.
	refused atomic.Uint64
}

type metrics struct {
	caughtUp prometheus.Counter
	changes  *prometheus.CounterVec
}

// New returns a Ruler. It reads and checks the files. An error in the files wraps errRuleFile.
func New(store *storage.Store, o Options) (*Ruler, error) {
	files, err := loadFiles(o.Sources, o.Parser, o.Logger)
	if err != nil {
		return nil, err
	}
	r := &Ruler{o: o, store: store, files: files, query: rules.EngineQueryFunc(o.Engine, o.Queryable),
		evaluations: map[string]*rules.Metrics{}, ledger: ruleLedger{limit: o.MaxBytes},
		readings: make(chan struct{}, maxReadings), views: views{byTenant: map[string]*view{}}}
	if o.Shared {
		r.owner = newOwner(store, o.Now)
	}
	f := promauto.With(o.Registerer)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cassia_rules_evaluated_here",
		Help: "Whether this process evaluates the rules (1) or not (0). Only one of the processes with rule files evaluates them at a time.",
	},
		func() float64 {
			if r.isEvaluating() {
				return 1
			}
			return 0
		})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cassia_rules_memory_bytes",
		Help: "Estimated memory of the results and alerts of rules, in bytes, without the stored results that a takeover reads.",
	}, func() float64 { return float64(r.ledger.results()) })
	r.metrics = metrics{
		caughtUp: f.NewCounter(prometheus.CounterOpts{Name: "cassia_rules_caught_up_evaluations_total",
			Help: "Rule group evaluations that were missed while no process evaluated rules, and were run later."}),
		changes: f.NewCounterVec(prometheus.CounterOpts{Name: "cassia_rules_ownership_changes_total",
			Help: "Number of times that this process started or stopped evaluating rules."}, []string{"to"}),
	}
	return r, nil
}

// isEvaluating reports whether this process evaluates rules.
func (r *Ruler) isEvaluating() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running != nil
}

// isConfirmed reports whether this process has recently confirmed that it owns the rules.
func (r *Ruler) isConfirmed() bool { return r.owner == nil || r.owner.isConfirmed() }

// Run evaluates rules while this process owns them, until ctx ends. Then it cancels running evaluations and releases
// the lease.
func (r *Ruler) Run(ctx context.Context) {
	log := logging.Dedupe(r.o.Logger, repeatLog)
	defer log.Stop()
	defer r.stop() // Also after a panic, because Run is then called again.
	if !r.waitUntilSettled(ctx) {
		return
	}
	if !r.o.Shared {
		r.start(ctx, slog.New(log))
		<-ctx.Done()
		r.stop()
		return
	}
	ticker := time.NewTicker(r.o.LeaseInterval)
	defer ticker.Stop()
	failing := false
	for {
		mine, err := r.owner.renewLease(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if !failing {
				r.o.Logger.Warn("can't determine which process evaluates the rules; missed evaluations are run later",
					"err", err)
			}
		case !mine:
			r.setElsewhere(true)
			if r.isEvaluating() {
				r.o.Logger.Warn("another process evaluates the rules")
				r.stop()
			}
		case !r.isEvaluating():
			r.o.Logger.Info("this process evaluates the rules")
			r.setElsewhere(false)
			r.start(ctx, slog.New(log))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			r.stop()
			r.releaseLease(ctx)
			return
		case <-ticker.C:
		}
	}
}

// waitUntilSettled waits until queries can be answered and senders have caught up. It returns false if ctx has ended.
func (r *Ruler) waitUntilSettled(ctx context.Context) bool {
	if err := r.store.WaitReady(ctx); err != nil {
		if ctx.Err() == nil {
			r.o.Logger.Error("rules are not evaluated, because the head could not be rebuilt", "err", err)
		}
		return false
	}
	timer := time.NewTimer(r.o.SettleTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (r *Ruler) releaseLease(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.LeaseInterval)
	defer cancel()
	if err := r.owner.releaseLease(last); err != nil {
		r.o.Logger.Warn(
			"can't hand over the rules; another process takes them over when the heartbeats of this one stop",
			"err", err,
		)
	}
}

// start starts evaluating the rules of all tenants.
func (r *Ruler) start(ctx context.Context, log *slog.Logger) {
	r.changing.Lock()
	defer r.changing.Unlock()
	running := map[string]*manager{}
	for name, files := range r.files {
		running[name] = r.newManager(ctx, name, files, log)
	}
	r.setRunning(running)
	go panics.WrapContained("releasing rules", r.views.clear)() // A view may be in the making.
	r.metrics.changes.WithLabelValues("here").Inc()
}

// stop cancels the running evaluations. The next process continues their series, so no series is marked as stale.
func (r *Ruler) stop() {
	r.changing.Lock()
	defer r.changing.Unlock()
	running := r.running
	if running == nil {
		return
	}
	r.setRunning(nil)
	var stopping sync.WaitGroup
	for _, m := range running {
		stopping.Go(panics.WrapContained("evaluating rules", m.stop))
	}
	stopping.Wait()
	r.metrics.changes.WithLabelValues("elsewhere").Inc()
}

func (r *Ruler) setRunning(running map[string]*manager) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = running
}

// setElsewhere records whether another process evaluates the rules.
func (r *Ruler) setElsewhere(elsewhere bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.elsewhere = elsewhere
}

// Reload reads the files again. After an error, which wraps errRuleFile, the rules are unchanged.
func (r *Ruler) Reload() error {
	files, err := loadFiles(r.o.Sources, r.o.Parser, r.o.Logger)
	if err != nil {
		return err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	r.growths.Clear()
	r.mu.Lock()
	r.files = files
	r.generation++
	r.mu.Unlock()
	var wrong []error
	for name, m := range r.running {
		wrong = append(wrong, m.update(files[name]))
	}
	return errors.Join(wrong...)
}
