package ruler

import (
	"context"
	"errors"
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
	// account is the account of the group; nil: none. appended is true if the results of the current rule are being
	// stored or have been stored.
	account  *charges
	appended bool
	// used are the bytes of the current rule's results, before its alerts have been checked. queried are the bytes of
	// the results that the current template has queried, and peak is the maximum of queried.
	used, queried, peak int64
	// refused are the bytes of the last call of use that has returned an error.
	refused int64
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
	e.finishRule()
	e.at, e.rule, e.appended = at, rule, false
	e.startQuery()
}

// startQuery prepares for the result of the current rule's expression.
func (e *evaluation) startQuery() {
	e.checked, e.answers = false, queryCache{}
	e.used, e.queried, e.peak, e.refused = 0, 0, 0, 0
}

// use reserves n more bytes for the current rule. Its errors are those of charges.setPassing.
func (e *evaluation) use(n int64) error {
	c := e.account.chargeOf(e.rule)
	if c == nil {
		return nil
	}
	if e.used+n > c.passing {
		if err := e.account.setPassing(e.rule, c, e.used+n); err != nil {
			e.refused = n
			return err
		}
	}
	e.used += n
	return nil
}

// useQueried is use for the result of a query in a template.
func (e *evaluation) useQueried(result promengine.Vector) error {
	n := templateMemory(result)
	if err := e.use(n); err != nil {
		return err
	}
	e.queried += n
	e.peak = max(e.peak, e.queried)
	return nil
}

// finishTemplate releases the results that a template has queried. Prometheus expands the same template later, so
// their bytes stay reserved.
func (e *evaluation) finishTemplate() {
	e.used -= e.queried
	e.queried = 0
}

// finishRule charges the memory that the current rule keeps. It is called before the next rule starts, and after the
// last one.
func (e *evaluation) finishRule() {
	c := e.account.chargeOf(e.rule)
	if c == nil {
		return
	}
	if rule, ok := e.rule.(*rules.AlertingRule); ok {
		e.account.setHeld(&c.alerts, measureAlerts(rule, time.Time{}))
	}
	e.account.finishRule(c)
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
	all, t := g.Rules(), &evaluation{account: accountOf(ctx)}
	t.account.adoptGroup(g)
	defer t.finishRule()
	for ; t.from < len(all) || len(all) == 0; t.from = t.at + 1 {
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
// expression of a rule if the result would need too much memory, and for the expression of an alerting rule if the
// alerts would exceed the bounds, before Prometheus creates series and alerts.
func (r *Ruler) ruleQuery(ctx context.Context, q string, at time.Time) (promengine.Vector, error) {
	t := evaluationOf(ctx)
	if t != nil && t.checked {
		return t.answers.get(q, at, t.use, func() (promengine.Vector, error) { return r.query(ctx, q, at) })
	}
	isAlerting := rules.FromOriginContext(ctx).Kind == rules.KindAlerting
	for {
		found, err := r.query(ctx, q, at)
		if err != nil {
			return nil, err
		}
		if isAlerting && (t == nil || !t.isAlerting()) {
			return nil, errNoEvaluation
		}
		if t == nil {
			return found, nil
		}
		needed, err := r.admitResult(ctx, t, found, at)
		if !errors.Is(err, errMustWait) {
			return found, err
		}
		found = nil // The result would hold memory while the rule waits.
		t.startQuery()
		if err := t.account.waitForPassing(ctx, t.rule, t.account.chargeOf(t.rule), needed); err != nil {
			return nil, err
		}
	}
}

func (e *evaluation) isAlerting() bool {
	_, ok := e.rule.(*rules.AlertingRule)
	return ok
}

// admitResult checks the alerts of a result, and reserves the memory that the current rule needs for the result. It
// returns errMustWait if the rule must wait until more bytes are available, and then query again. needed is the number
// of these bytes.
func (r *Ruler) admitResult(ctx context.Context, t *evaluation, found promengine.Vector,
	at time.Time) (needed int64, err error) {
	c := t.account.chargeOf(t.rule)
	reserve := func(need reservation) error {
		if c == nil {
			return nil
		}
		needed = need.passing(c)
		return t.account.setPassing(t.rule, c, needed)
	}
	rule, ok := t.rule.(*rules.AlertingRule)
	if !ok {
		return needed, reserve(recordingMemory(t.rule, found))
	}
	if c != nil {
		t.account.setHeld(&c.alerts, measureAlerts(rule, at))
	}
	t.checked = true
	if err = t.use(vectorMemory(found)); err == nil {
		err = r.checkAlerts(ctx, rule, found, at, func(texts alertTexts) error {
			need := alertingMemory(rule, found, texts, c)
			need.transient += t.answers.bytes + t.peak
			return reserve(need)
		})
	}
	t.answers.full = true
	return max(needed, t.used+t.refused), err
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
	bytes   int64
	// full is true if no more results may be cached.
	full bool
}

type queryCacheKey struct {
	query string
	at    int64
}

// get returns the result of a query. If the result isn't cached, get calls find, and caches the result unless use,
// which reserves its bytes, returns an error.
func (c *queryCache) get(q string, at time.Time, use func(int64) error,
	find func() (promengine.Vector, error)) (promengine.Vector, error) {
	key := queryCacheKey{q, at.UnixNano()}
	if found, ok := c.results[key]; ok {
		return found, nil
	}
	found, err := find()
	if err != nil || c.full || len(q) > maxCachedQueryLength || len(c.results) >= maxCachedResults ||
		c.samples+len(found) > maxCachedSamples {
		return found, err
	}
	bytes := vectorMemory(found) + int64(len(q)) + resultBytes
	if use(bytes) != nil {
		return found, nil
	}
	if c.results == nil {
		c.results = map[queryCacheKey]promengine.Vector{}
	}
	c.results[key] = found
	c.samples, c.bytes = c.samples+len(found), c.bytes+bytes
	return found, nil
}
