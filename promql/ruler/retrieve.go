package ruler

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/storage/tenant"
)

const (
	// viewAge is the time for which a view of another process' rules is reused.
	viewAge = 30 * time.Second
	// viewTimeout is the maximum time to compute a view.
	viewTimeout = 30 * time.Second
)

// Retriever lists the rules of some tenants for Prometheus' HTTP API.
type Retriever struct{ groups []*rules.Group }

// Retriever returns a Retriever for the tenants of a context. If another process evaluates the rules, this process
// evaluates them for the request at the time at which they were last due. The results are neither stored nor sent.
func (r *Ruler) Retriever(ctx context.Context) Retriever {
	var found Retriever
	for _, name := range tenant.NamesFromContext(ctx) {
		r.mu.Lock()
		m, files, generation, elsewhere := r.running[name], r.files[name], r.generation, r.elsewhere
		r.mu.Unlock()
		switch {
		case m != nil:
			found.groups = append(found.groups, m.RuleGroups()...)
		case len(files) > 0:
			found.groups = append(found.groups, r.views.get(ctx, r, name, files, generation, elsewhere)...)
		}
	}
	return found
}

// RuleGroups lists the groups, in order within a tenant.
func (r Retriever) RuleGroups() []*rules.Group { return r.groups }

// AlertingRules lists the alerting rules.
func (r Retriever) AlertingRules() (all []*rules.AlertingRule) {
	for _, g := range r.groups {
		all = append(all, g.AlertingRules()...)
	}
	return all
}

// views caches a view of the rules per tenant: groups that this process has evaluated for requests, while another
// process evaluates the rules. One view is computed at a time.
type views struct {
	mu       sync.Mutex
	byTenant map[string]*view
}

type view struct {
	// generation is Ruler.generation of the files from which the groups were made.
	generation int
	at         time.Time
	groups     []*rules.Group
	accounts   []*charges
}

// clear releases all views.
func (v *views) clear() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, of := range v.byTenant {
		of.release()
	}
	clear(v.byTenant)
}

func (v *view) release() {
	for _, a := range v.accounts {
		a.release()
	}
}

func (v *views) get(ctx context.Context, r *Ruler, name string, files ruleFiles, generation int,
	elsewhere bool) []*rules.Group {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := r.o.Now()
	if last, ok := v.byTenant[name]; ok && last.generation == generation && now.Sub(last.at) < viewAge {
		return last.groups
	}
	ctx, cancel := context.WithTimeout(tenant.NewContext(context.WithoutCancel(ctx), name), viewTimeout)
	defer cancel()
	groups, err := r.loadGroups(ctx, name, files, discardAppendable{},
		func(context.Context, string, ...*rules.Alert) {})
	if err != nil {
		r.o.Logger.Warn("can't list the rules", "tenant", name, "err", err)
		return nil
	}
	if !elsewhere { // This process or another one will evaluate soon.
		return groups
	}
	if old := v.byTenant[name]; old != nil {
		old.release()
	}
	made := &view{} // It is out of date until it is complete.
	v.byTenant[name] = made
	for _, g := range groups {
		a := r.ledger.newAccount()
		made.accounts = append(made.accounts, a)
		ctx := withAccount(ctx, a)
		at := g.EvalTimestamp(now.UnixNano())
		since := at
		if last, found, err := r.lastStored(ctx, g, at); err == nil && found {
			// At a later time, which the other process hasn't evaluated yet, alerts would seem to have become active
			// later.
			since = last
		}
		r.restoreFiring(ctx, g, since)
		evaluateGroup(ctx, g, since, evaluateOnce, nil)
		r.restoreForState(ctx, g, since)
		evaluateGroup(ctx, g, at, rules.DefaultEvalIterationFunc, nil)
	}
	made.generation, made.at, made.groups = generation, now, groups
	return groups
}

// discardAppendable discards samples.
type discardAppendable struct{}

// Appender implements promstorage.Appendable.
func (discardAppendable) Appender(context.Context) promstorage.Appender { return discardAppender{} }

// discardAppender is an appender with the methods that rules call.
type discardAppender struct{ promstorage.Appender }

// Append implements promstorage.Appender.
func (discardAppender) Append(promstorage.SeriesRef, labels.Labels, int64, float64) (promstorage.SeriesRef, error) {
	return 0, nil
}

// AppendHistogram implements promstorage.Appender.
func (discardAppender) AppendHistogram(
	promstorage.SeriesRef, labels.Labels, int64, *histogram.Histogram, *histogram.FloatHistogram,
) (promstorage.SeriesRef, error) {
	return 0, nil
}

// SetOptions implements promstorage.Appender.
func (discardAppender) SetOptions(*promstorage.AppendOptions) {}

// Commit implements promstorage.Appender.
func (discardAppender) Commit() error { return nil }

// Rollback implements promstorage.Appender.
func (discardAppender) Rollback() error { return nil }
