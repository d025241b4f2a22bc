package ruler

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"
)

// total returns the bytes of all rules, and of the stored results that takeovers have read.
func (l *ruleLedger) total() int64 {
	results := l.results()
	l.mu.Lock()
	defer l.mu.Unlock()
	return results + l.found
}

// resultOf returns a result of n series of a metric.
func resultOf(n int, at time.Time) promengine.Vector {
	result := make(promengine.Vector, n)
	for i := range result {
		result[i] = promengine.Sample{T: at.UnixMilli(), F: 1, Metric: labels.FromStrings(labels.MetricName, "many",
			"id", fmt.Sprintf("%08d", i), "instance", "host-1.eu-central-1.example.com:9100", "job", "kubernetes-pods")}
	}
	return result
}

// queryMany makes queries for "many" return as many series as *n.
func (p *process) queryMany(n *int) {
	query := p.r.query
	p.r.query = func(ctx context.Context, q string, at time.Time) (promengine.Vector, error) {
		if strings.HasPrefix(q, "many") {
			return resultOf(*n, at), nil
		}
		return query(ctx, q, at)
	}
}

// ruleNamed returns the rule with this name.
func (p *process) ruleNamed(name string) rules.Rule {
	for _, g := range p.groups {
		for _, rule := range g.Rules() {
			if rule.Name() == name {
				return rule
			}
		}
	}
	require.FailNow(p.t, "no rule "+name)
	return nil
}

func (p *process) evaluateNext() {
	p.now = p.now.Add(time.Minute)
	p.evaluate()
}

// TestRuleResultsAreBounded checks that a rule fails, with an error that names the rule and the limit, if its result
// would need more memory than rules may hold, and that other rules are still evaluated.
func TestRuleResultsAreBounded(t *testing.T) {
	t.Parallel()
	for kind, rule := range map[string]string{
		"recording rule": `{record: "a:many", expr: many}`,
		"alerting rule":  `{alert: "a:many", expr: many, annotations: {text: "{{ $labels.instance }} is down"}}`,
	} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t)
			r.file("groups: [{name: g, rules: [" + rule + ", {record: small, expr: vector(1)}]}]")
			p := r.process()
			p.r.ledger.limit = 4 << 20
			n := 20_000
			p.queryMany(&n)
			p.evaluate()
			for range 3 {
				many := p.ruleNamed("a:many")
				require.ErrorIs(t, many.LastError(), errRulesTooLarge)
				require.Regexp(t, `rule "a:many" needs \d+ bytes .* maximum is 4194304 bytes.*--memory.max-bytes`,
					many.LastError().Error())
				require.Equal(t, rules.HealthBad, many.Health())
				require.Equal(t, rules.HealthGood, p.ruleNamed("small").Health())
				require.Less(t, p.r.ledger.total(), int64(1000))
				require.Zero(t, p.r.ledger.passing)
				p.evaluateNext()
			}
			n = 1000
			p.evaluateNext()
			require.NoError(t, p.ruleNamed("a:many").LastError(), "a smaller result fits")
			require.Equal(t, float64(p.r.ledger.total()), gaugeOf(t, p, "cassia_rules_memory_bytes"))
		})
	}
}

// TestManyRulesAreBoundedTogether checks that the bound applies to the results of all rules together, that a rule whose
// first evaluation fits also fits later, and that the charges don't grow when the same results are stored again.
func TestManyRulesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var text strings.Builder
	text.WriteString("groups: [{name: g, rules: [")
	for i := range 200 {
		fmt.Fprintf(&text, `{record: "r%03d", expr: many},`, i)
	}
	text.WriteString("]}]")
	r.file(text.String())
	p := r.process()
	const limit = 8 << 20
	p.r.ledger.limit = limit
	n := 200
	p.queryMany(&n)
	p.evaluate()
	good := func() (n int) {
		for i := range 200 {
			if p.ruleNamed(fmt.Sprintf("r%03d", i)).Health() == rules.HealthGood {
				n++
			}
		}
		return n
	}
	fitting, held := good(), p.r.ledger.total()
	require.Greater(t, fitting, 50)
	require.Less(t, fitting, 200)
	require.LessOrEqual(t, held, int64(limit))
	require.Greater(t, held, int64(limit*9/10))
	for range 10 {
		p.evaluateNext()
		require.Equal(t, fitting, good())
		require.Equal(t, held, p.r.ledger.total())
	}
	n = 0
	p.evaluateNext()
	require.Equal(t, 200, good())
	require.Zero(t, p.r.ledger.total())
}

// TestChargesDontLeak checks that the charges of a group are the same after 100 evaluations, also if rules fail, alerts
// are resolved, and templates query.
func TestChargesDontLeak(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.file(`groups: [{name: g, rules: [
		{record: "a:many", expr: many},
		{record: twice, expr: many or on() vector(1), labels: {job: "", instance: "", id: ""}},
		{record: invalid, expr: "many + on() many"},
		{alert: Many, expr: many, labels: {severity: page},
			annotations: {text: "{{ range query \"many\" }}{{ .Labels.id }}{{ end }}"}},
		{alert: Kept, expr: many, keep_firing_for: 2m}]}]`)
	p := r.process()
	n := 20
	p.queryMany(&n)
	p.evaluate()
	sizes := map[int]int64{}
	for i := range 100 {
		n = []int{20, 20, 0, 20}[i%4]
		p.evaluateNext()
		require.Zero(t, p.r.ledger.passing)
		require.Zero(t, p.r.ledger.found)
		if i >= 20 {
			if known, ok := sizes[i%4]; ok {
				require.Equal(t, known, p.r.ledger.held, i)
			}
			sizes[i%4] = p.r.ledger.held
		}
	}
	n = 0
	for range 20 { // Prometheus keeps resolved alerts for 15 minutes.
		p.evaluateNext()
	}
	require.Zero(t, p.r.ledger.total())
}

// TestResolvedAlertsAreCharged checks that alerts count until Prometheus deletes them, and that a rule whose resolved
// alerts leave no room for new ones continues when it may delete them.
func TestResolvedAlertsAreCharged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.file(`groups: [{name: g, rules: [{alert: Many, expr: many, labels: {set: "{{ $value }}"}, annotations: {text: "` +
		strings.Repeat("x", 2000) + `"}}]}]`)
	p := r.process()
	set := 0
	p.r.query = func(_ context.Context, _ string, at time.Time) (promengine.Vector, error) {
		result := resultOf(100, at)
		for i := range result {
			result[i].F = float64(set)
		}
		return result, nil
	}
	p.evaluate()
	one := p.r.ledger.total()
	set++
	p.evaluateNext()
	require.Greater(t, p.r.ledger.total(), one*3/2)
	p.r.ledger.limit = 4 * one
	for range 40 {
		set++
		p.evaluateNext()
		require.LessOrEqual(t, p.r.ledger.total(), p.r.ledger.limit)
	}
	failed, succeeded := 0, 0
	for range 40 {
		set++
		p.evaluateNext()
		if p.ruleNamed("Many").Health() == rules.HealthGood {
			succeeded++
		} else {
			failed++
		}
	}
	require.Positive(t, failed)
	require.Positive(t, succeeded)
}

// TestQueriesInTemplatesAreCharged checks that a rule fails if a template queries more than fits.
func TestQueriesInTemplatesAreCharged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.file(`groups: [{name: g, rules: [{alert: Odd, expr: vector(1), annotations: {text:
		"{{ range query \"many1\" }}{{ range query \"many2\" }}{{ end }}{{ end }}"}}]}]`)
	p := r.process()
	p.r.ledger.limit = 4 << 20
	n := 50
	p.queryMany(&n)
	p.evaluate()
	require.NoError(t, p.ruleNamed("Odd").LastError())
	n = 5000
	p.evaluateNext()
	require.ErrorIs(t, p.ruleNamed("Odd").LastError(), errRulesTooLarge)
	require.ErrorContains(t, p.ruleNamed("Odd").LastError(), `annotation "text" of rule "Odd"`)
	require.Zero(t, p.r.ledger.passing)
}

// TestGroupsWaitForEachOther checks that a rule whose result doesn't fit at the moment waits for the evaluations of
// other groups, and holds no result meanwhile.
func TestGroupsWaitForEachOther(t *testing.T) {
	t.Parallel()
	rule := rules.NewRecordingRule("a", nil, labels.EmptyLabels())
	synctest.Test(t, func(t *testing.T) {
		l := &ruleLedger{limit: 100}
		first, second := l.newAccount(), l.newAccount()
		one, two := &charge{}, &charge{}
		first.charges[rule], second.charges[rule] = one, two
		require.NoError(t, first.setPassing(rule, one, 60))
		require.ErrorIs(t, second.setPassing(rule, two, 50), errMustWait)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		var got error
		waiting.Go(func() { got = second.waitForPassing(ctx, rule, two, 50) })
		synctest.Wait()
		require.Equal(t, int64(60), l.total())
		first.setHeld(&one.series, 40)
		first.finishRule(one)
		waiting.Wait()
		require.NoError(t, got)
		require.Equal(t, int64(90), l.total())
		require.ErrorIs(t, second.setPassing(rule, two, 61), errRulesTooLarge)
		require.ErrorIs(t, first.setPassing(rule, one, 20), errMustWait)
		waiting.Go(func() { got = first.waitForPassing(ctx, rule, one, 20) })
		synctest.Wait()
		cancel()
		waiting.Wait()
		require.ErrorIs(t, got, context.Canceled)
		first.release()
		second.release()
		require.Zero(t, l.total())
		require.ErrorIs(t, first.setPassing(rule, one, 20), context.Canceled)
	})
}

// TestChargesEndWithTheirRules checks that a reload moves the charges of rules that remain, and releases the charges of
// rules and groups that it removes.
func TestChargesEndWithTheirRules(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.file(`groups: [{name: g, interval: 10ms, rules: [{record: "a:many", expr: many}, {record: "b:many", expr: many}]},
		{name: h, interval: 10ms, rules: [{record: "c:many", expr: many}]}]`)
	o := r.options()
	ruler, err := New(r.store, o)
	require.NoError(t, err)
	many := resultOf(1000, r.now)
	ruler.query = func(_ context.Context, q string, at time.Time) (promengine.Vector, error) {
		if q == "many" {
			return append(promengine.Vector{}, many...), nil
		}
		return promengine.Vector{{T: at.UnixMilli(), F: 1}}, nil
	}
	ruler.start(t.Context(), o.Logger)
	defer ruler.stop()
	held := func() int64 {
		ruler.ledger.mu.Lock()
		defer ruler.ledger.mu.Unlock()
		return ruler.ledger.held
	}
	one := recordingMemory(rules.NewRecordingRule("a:many", nil, labels.EmptyLabels()), many).kept
	until := func(most int64) {
		require.Eventually(t, func() bool { return held() == most }, time.Minute, time.Millisecond, "%d", most)
	}
	until(3 * one)
	reload := func(text string) {
		r.file(text)
		require.NoError(t, ruler.Reload())
	}
	reload(`groups: [{name: g, interval: 10ms, rules: [{record: "b:many", expr: many}]}]`)
	until(one)
	reload(`groups: [{name: g, interval: 10ms, rules: [{record: small, expr: vector(1)}]}]`)
	require.Eventually(t, func() bool { return held() < 1000 }, time.Minute, time.Millisecond)
	reload(`groups: []`)
	until(0)
	require.Zero(t, ruler.ledger.total())
}

// TestChargesMatchTheHeap compares charges with the memory that a group of Prometheus keeps.
func TestChargesMatchTheHeap(t *testing.T) {
	for kind, rule := range map[string]string{
		"recording rule": `{record: "a:many", expr: many}`,
		"alerting rule": `{alert: Many, expr: many, labels: {severity: page},
			annotations: {text: "{{ $labels.instance }} is down"}}`,
	} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t)
			r.file("groups: [{name: g, rules: [" + rule + "]}]")
			ruler := r.process().r
			n := 20_000
			ruler.query = func(_ context.Context, _ string, at time.Time) (promengine.Vector, error) {
				return resultOf(n, at), nil
			}
			groups, err := ruler.loadGroups(t.Context(), testTenant, ruler.files[testTenant], discardAppendable{},
				func(context.Context, string, ...*rules.Alert) {})
			require.NoError(t, err)
			for _, rule := range groups[0].AlertingRules() {
				rule.SetRestored(true)
			}
			ctx := withAccount(t.Context(), ruler.ledger.newAccount())
			before := heapBytes()
			evaluateGroup(ctx, groups[0], r.now, evaluateOnce, nil)
			kept := heapBytes() - before
			require.InEpsilon(t, kept, ruler.ledger.held, 0.2, "%d bytes are kept and %d charged", kept,
				ruler.ledger.held)
			runtime.KeepAlive(groups)
		})
	}
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func gaugeOf(t *testing.T, p *process, name string) float64 {
	found, err := p.r.o.Registerer.(*prometheus.Registry).Gather()
	require.NoError(t, err)
	for _, f := range found {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.FailNow(t, "no metric "+name)
	return 0
}

// TestTakeoversAreBounded checks that the stored results that a takeover reads are charged and then released, that a
// takeover that reads too much continues without them, and that views of other processes' rules are charged.
func TestTakeoversAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.file(`groups: [{name: g, rules: [{record: "a:many", expr: many}, {alert: Many, expr: many, for: 5m,
		keep_firing_for: 5m}]}]`)
	n := 300
	start := func() *process {
		p := r.process()
		p.queryMany(&n)
		return p
	}
	first := start()
	first.evaluate()
	for range 10 {
		first.evaluateNext()
	}
	for _, limit := range []int64{64 << 20, 1_500_000, 20_000} {
		p := start()
		p.r.ledger.limit = limit
		most := int64(0)
		r.appending = func() { most = max(most, p.r.ledger.found) }
		p.evaluateNext()
		r.appending = nil
		require.LessOrEqual(t, most, limit)
		require.Zero(t, p.r.ledger.found)
		require.Zero(t, p.r.ledger.passing)
		require.LessOrEqual(t, p.r.ledger.held, limit)
		if limit == 64<<20 {
			require.Greater(t, most, int64(n*200))
			require.Equal(t, first.r.ledger.total(), p.r.ledger.total(), "it keeps the same as the first process")
		}
	}
	viewing := start()
	viewing.r.elsewhere = true
	viewing.r.Retriever(viewing.ctx)
	require.Greater(t, viewing.r.ledger.total(), first.r.ledger.total()/2)
	require.Zero(t, viewing.r.ledger.found)
	viewing.r.views.clear()
	require.Zero(t, viewing.r.ledger.total())
}

// TestStartDoesNotWaitForViews starts to evaluate rules while a view of another process' rules is being computed, which
// may take longer than the lease.
func TestStartDoesNotWaitForViews(t *testing.T) {
	p := newRig(t).process()
	p.r.views.mu.Lock()
	p.r.start(t.Context(), slog.New(slog.DiscardHandler))
	p.r.views.mu.Unlock()
	p.r.stop()
}
