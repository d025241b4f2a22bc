package ruler

import (
	"context"
	"time"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"

	"github.com/cassia-db/cassia/storage/panics"
)

// panicName is the name by which panics of evaluations are counted.
const panicName = "evaluating rules"

// evaluation is one evaluation of a group. It records the rule that is being evaluated, because Prometheus' manager
// passes on the context of the evaluation but not the rule.
type evaluation struct {
	// from is the index of the first rule to evaluate, at the index of the current rule.
	from, at int
	rule     rules.Rule
	// checked is true if the alerts of the current rule have been checked. All further queries are made by its
	// templates. answers caches the results of these queries.
	checked bool
	answers queryCache
}

type evaluationKey struct{}

func evaluationOf(ctx context.Context) *evaluation {
	t, _ := ctx.Value(evaluationKey{}).(*evaluation)
	return t
}

func (e *evaluation) addToContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, evaluationKey{}, e)
}

func (e *evaluation) startRule(at int, rule rules.Rule) {
	e.at, e.rule, e.checked, e.answers = at, rule, false, queryCache{}
}

// ruleTracker is called by Prometheus' manager when a rule starts, and records the rule in the evaluation of the
// context. It makes the manager evaluate the rules one after the other, in order.
type ruleTracker struct{}

// SplitGroupIntoBatches implements rules.RuleConcurrencyController.
func (ruleTracker) SplitGroupIntoBatches(ctx context.Context, g *rules.Group) []rules.ConcurrentRules {
	t := evaluationOf(ctx)
	if t == nil {
		return nil
	}
	t.at = t.from - 1
	var batch rules.ConcurrentRules
	all := g.Rules()
	for i := t.from; i < len(all); i++ {
		batch = append(batch, i)
	}
	if len(batch) == 1 { // Allow isn't called for single rules.
		t.startRule(t.from, all[t.from])
	}
	return []rules.ConcurrentRules{batch}
}

// Allow implements rules.RuleConcurrencyController. It is called before each rule of a batch with multiple rules.
func (ruleTracker) Allow(ctx context.Context, _ *rules.Group, rule rules.Rule) bool {
	if t := evaluationOf(ctx); t != nil {
		t.startRule(t.at+1, rule)
	}
	return false
}

// Done implements rules.RuleConcurrencyController.
func (ruleTracker) Done(context.Context) {}

// EvaluateGroup evaluates a group at the time at, in the same way as a Ruler.
func EvaluateGroup(ctx context.Context, g *rules.Group, at time.Time) {
	evaluateGroup(ctx, g, at, rules.DefaultEvalIterationFunc, nil)
}

// evaluateGroup evaluates a group at the time at with eval. If a rule panics, the error is set as the rule's health and
// counted as a failure in m, and the rules after it are still evaluated.
func evaluateGroup(ctx context.Context, g *rules.Group, at time.Time, eval rules.GroupEvalIterationFunc,
	m *rules.Metrics) {
	all := g.Rules()
	for t := (&evaluation{}); t.from < len(all) || len(all) == 0; t.from = t.at + 1 {
		t.at = t.from - 1
		err := panics.Call(panicName, func() error { eval(t.addToContext(ctx), g, at); return nil })
		if err == nil {
			return
		}
		if t.at < t.from { // The panic wasn't in a rule.
			g.Logger().Error("evaluation of a rule group panicked", "err", err)
			return
		}
		all[t.at].SetHealth(rules.HealthBad)
		all[t.at].SetLastError(err)
		if m != nil {
			m.EvalFailures.WithLabelValues(rules.GroupKey(g.File(), g.Name())).Inc()
		}
		g.Logger().Error("a rule panicked; other rules are still evaluated", "name", all[t.at].Name(), "index", t.at,
			"err", err)
	}
}

// evaluateOnce evaluates a group as rules.DefaultEvalIterationFunc does, without updating that function's metrics.
func evaluateOnce(ctx context.Context, g *rules.Group, at time.Time) { g.Eval(ctx, at) }

// ruleQuery evaluates the expression of a rule, or a query in a template of an alert. It returns an error for the
// expression of an alerting rule if the alerts would exceed the bounds, before Prometheus creates them.
func (r *Ruler) ruleQuery(ctx context.Context, q string, at time.Time) (promengine.Vector, error) {
	t := evaluationOf(ctx)
	if t != nil && t.checked {
		return t.answers.get(q, at, func() (promengine.Vector, error) { return r.query(ctx, q, at) })
	}
	found, err := r.query(ctx, q, at)
	if err != nil || rules.FromOriginContext(ctx).Kind != rules.KindAlerting {
		return found, err
	}
	if t == nil {
		return nil, errNoEvaluation
	}
	rule, ok := t.rule.(*rules.AlertingRule)
	if !ok {
		return nil, errNoEvaluation
	}
	t.checked = true
	return found, r.checkAlerts(ctx, rule, found, at)
}

// maxCachedResults is the maximum number of cached results of queries in templates, maxCachedSamples is the maximum
// number of samples in these results, and maxCachedQueryLength is the maximum length of a query whose result is cached,
// in bytes.
const (
	maxCachedResults     = 1000
	maxCachedSamples     = 100_000
	maxCachedQueryLength = 4096
)

// queryCache caches the results of queries in templates, because the check of an alert and Prometheus expand the same
// templates.
type queryCache struct {
	results map[queryCacheKey]promengine.Vector
	samples int
}

type queryCacheKey struct {
	query string
	at    int64
}

func (c *queryCache) get(q string, at time.Time, find func() (promengine.Vector, error)) (promengine.Vector, error) {
	key := queryCacheKey{q, at.UnixNano()}
	if found, ok := c.results[key]; ok {
		return found, nil
	}
	found, err := find()
	if err == nil && len(q) <= maxCachedQueryLength && len(c.results) < maxCachedResults &&
		c.samples+len(found) <= maxCachedSamples {
		if c.results == nil {
			c.results = map[queryCacheKey]promengine.Vector{}
		}
		c.results[key] = found
		c.samples += len(found)
	}
	return found, err
}
