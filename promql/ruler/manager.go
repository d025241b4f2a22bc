package ruler

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/rules"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/tenant"
)

// manager wraps Prometheus' manager of the rules of one tenant.
type manager struct {
	r      *Ruler
	tenant string
	*rules.Manager
	cancel context.CancelFunc
	ended  chan struct{}
	// files are passed to Prometheus' manager while it is updated.
	files ruleFiles
	// evaluations are the metrics of Prometheus' manager.
	evaluations *rules.Metrics

	// mu guards the fields below, whose keys are rules.GroupKey.
	mu sync.Mutex
	// fresh contains the groups that must continue from stored results at their next evaluation: groups that this
	// process hasn't evaluated since it started to evaluate, and groups that it didn't evaluate for a while.
	fresh map[string]bool
	// done is the newest time at which this process has evaluated each group. behind contains the groups that had
	// missed evaluations before that time.
	done   map[string]time.Time
	behind map[string]bool
	// locks are held while a group is evaluated.
	locks map[string]*sync.Mutex
	// cancels holds the functions that cancel running evaluations. replaced contains the groups that the current update
	// replaces or removes, and that must no longer be evaluated.
	cancels  map[*rules.Group]context.CancelFunc
	replaced map[*rules.Group]bool
	// accounts are the accounts of the groups that have been evaluated. retired are the accounts of removed groups,
	// with the timers that release them.
	accounts map[string]*charges
	retired  map[*charges]*time.Timer

	// resuming waits for the goroutine that takes over groups before they are due. stopResuming cancels it.
	resuming     sync.WaitGroup
	stopResuming context.CancelFunc
}

func (r *Ruler) newEmptyManager(name string) *manager {
	return &manager{
		r: r, tenant: name, ended: make(chan struct{}), stopResuming: func() {},
		fresh: map[string]bool{}, done: map[string]time.Time{}, behind: map[string]bool{},
		locks:   map[string]*sync.Mutex{},
		cancels: map[*rules.Group]context.CancelFunc{}, replaced: map[*rules.Group]bool{},
		accounts: map[string]*charges{}, retired: map[*charges]*time.Timer{},
	}
}

// newManager starts evaluating the rules of a tenant.
func (r *Ruler) newManager(ctx context.Context, name string, files ruleFiles, log *slog.Logger) *manager {
	m := r.newEmptyManager(name)
	ctx, m.cancel = context.WithCancel(tenant.NewContext(ctx, name))
	m.evaluations = r.evaluationMetrics(name)
	m.Manager = rules.NewManager(m.options(ctx, log.With("tenant", name), m.evaluations,
		recordingAppendable{r.o.Appendable, r}))
	if err := m.update(files); err != nil {
		log.Error("can't apply rule files that were valid", "tenant", name, "err", err)
	}
	for _, g := range m.RuleGroups() {
		m.fresh[rules.GroupKey(g.File(), g.Name())] = true
	}
	go func() {
		defer close(m.ended)
		panics.WrapContained(panicName, m.Run)()
	}()
	ctx, m.stopResuming = context.WithCancel(ctx)
	m.resuming.Go(panics.WrapContained(panicName, func() {
		for _, g := range m.RuleGroups() {
			m.runContained(g, func() { m.resumeGroup(ctx, g) })
		}
	}))
	return m
}

// options returns the options of Prometheus' manager. ctx must contain the tenant.
func (m *manager) options(ctx context.Context, log *slog.Logger, evaluations *rules.Metrics,
	into promstorage.Appendable) *rules.ManagerOptions {
	return &rules.ManagerOptions{
		ExternalURL: m.r.externalURL(m.tenant), QueryFunc: m.r.ruleQuery, NotifyFunc: m.r.notifyFunc(m.tenant),
		Context:    ctx,
		Appendable: chargingAppendable{into}, Queryable: m.r.o.Queryable, Logger: log, Metrics: evaluations,
		RuleConcurrencyController: ruleTracker{}, OutageTolerance: outageTolerance, ForGracePeriod: forGracePeriod,
		ResendDelay: resendDelay,
		GroupLoader: loader{func() ruleFiles { return m.files }, m.r.o.Parser}, Parser: m.r.o.Parser,
	}
}

// evaluationMetrics returns Prometheus' own metrics, with the tenant as a label.
func (r *Ruler) evaluationMetrics(name string) *rules.Metrics {
	if r.evaluations[name] == nil {
		registerer := r.o.Registerer
		if registerer != nil {
			registerer = prometheus.WrapRegistererWith(prometheus.Labels{"tenant": name}, registerer)
		}
		r.evaluations[name] = rules.NewGroupMetrics(registerer)
	}
	return r.evaluations[name]
}

// update replaces the rules by the rules in these files. It must not be called concurrently.
func (m *manager) update(files ruleFiles) error {
	m.stopResuming()
	m.resuming.Wait() // Prometheus' manager replaces groups that have changed.
	m.files = files
	m.cancelReplaced()
	err := m.Update(m.r.o.Interval, files.paths(), m.r.o.ExternalLabels, m.r.externalURL(m.tenant).String(),
		m.iterateGroup)
	m.mu.Lock()
	clear(m.replaced)
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("ruler: tenant %s: %w", m.tenant, err)
	}
	m.retireAccounts()
	return nil
}

// withAccount returns a context whose evaluations are charged to the account of a group.
func (m *manager) withAccount(ctx context.Context, g *rules.Group) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := rules.GroupKey(g.File(), g.Name())
	a := m.accounts[key]
	if a == nil {
		a = m.r.ledger.newAccount()
		m.accounts[key] = a
	}
	return withAccount(ctx, a)
}

// retireAccounts retires the accounts of groups that have been removed, and releases them when Prometheus has stored
// the stale markers of these groups: after two intervals.
func (m *manager) retireAccounts() {
	current := map[string]bool{}
	for _, g := range m.RuleGroups() {
		current[rules.GroupKey(g.File(), g.Name())] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, a := range m.accounts {
		if current[key] {
			continue
		}
		delete(m.accounts, key)
		if a.group == nil {
			continue
		}
		a.retire()
		m.retired[a] = time.AfterFunc(2*a.group.Interval(), func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.retired, a)
			a.release()
		})
	}
}

// releaseAccounts releases the accounts of all groups.
func (m *manager) releaseAccounts() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.accounts {
		a.release()
	}
	for a, timer := range m.retired {
		timer.Stop()
		a.release()
	}
	clear(m.accounts)
	clear(m.retired)
}

// cancelReplaced cancels the evaluations of groups that an update to m.files replaces or removes. Otherwise Prometheus'
// manager would wait for these evaluations, and list no rules in the meantime.
func (m *manager) cancelReplaced() {
	groups, errs := m.LoadGroups(m.r.o.Interval, m.r.o.ExternalLabels, m.r.externalURL(m.tenant).String(),
		m.iterateGroup, false, m.files.paths()...)
	if len(errs) > 0 {
		return // The update fails.
	}
	for _, g := range m.RuleGroups() {
		if next, ok := groups[rules.GroupKey(g.File(), g.Name())]; ok && g.Equals(next) {
			continue
		}
		m.mu.Lock()
		m.replaced[g] = true
		if cancel := m.cancels[g]; cancel != nil {
			cancel()
		}
		m.mu.Unlock()
	}
}

// makeCancelable returns a context for an evaluation of a group. The context is canceled if the group is replaced. The
// returned function must be called after the evaluation.
func (m *manager) makeCancelable(ctx context.Context, g *rules.Group) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancels[g] = cancel
	if m.replaced[g] {
		cancel()
	}
	return ctx, func() {
		cancel()
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.cancels, g)
	}
}

// stop cancels the running evaluations and waits for them.
func (m *manager) stop() {
	m.cancel()
	m.stopResuming()
	m.resuming.Wait()
	m.Stop()
	<-m.ended
	m.releaseAccounts()
}
