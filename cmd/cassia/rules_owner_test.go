package main

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/promql/ruler"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// rulesProcess is one of multiple processes that evaluate rules on one engine.
type rulesProcess struct {
	t        *testing.T
	store    *storage.Store
	ruler    *ruler.Ruler
	registry *prometheus.Registry
	// dead is set to make all operations of the process on the engine fail.
	dead atomic.Bool
	stop func()
}

// startRulesProcess starts a process. ahead is the offset of its clock.
func startRulesProcess(t *testing.T, eng engine.Engine, name, glob string, ahead *atomic.Int64) *rulesProcess {
	p := &rulesProcess{t: t, registry: prometheus.NewRegistry()}
	p.store = storagetest.Start(t, faultengine.Wrap(eng, func(faultengine.Op) faultengine.Action {
		if p.dead.Load() {
			return faultengine.Fail(nil)
		}
		return faultengine.Pass()
	}), storagetest.SharedTarget(name, "all"))
	eo := promql.DefaultOptions()
	evaluator := promql.NewEngine(eo)
	o := ruler.DefaultOptions()
	o.Sources = []ruler.Source{{Tenant: tenant.Default, Glob: glob}}
	o.ExternalURL, o.Engine = &url.URL{}, evaluator
	o.Queryable, o.Parser = promql.NewQueryable(p.store), promql.NewParser(eo.Parser)
	o.Appendable = adapter.NewAppendable(func(tenant string) adapter.Batch { return p.store.NewBatch(tenant) })
	o.Shared, o.LeaseInterval, o.SettleTime, o.Registerer = true, 20*time.Millisecond, 0, p.registry
	o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	var err error
	p.ruler, err = ruler.New(p.store, o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.ruler.Run(ctx); close(ended) }()
	stopped := false
	p.stop = func() {
		if !stopped {
			cancel()
			<-ended
			stopped = true
		}
	}
	t.Cleanup(func() {
		p.stop()
		require.NoError(t, evaluator.Close())
		_ = p.store.Close() // Fails if the process is dead.
	})
	return p
}

func (p *rulesProcess) isEvaluator() bool { return p.metric("cassia_rules_evaluated_here") == 1 }

// metric returns the sum of a gauge or counter over all labels, or 0 if it doesn't exist.
func (p *rulesProcess) metric(name string) (sum float64) {
	families, err := p.registry.Gather()
	require.NoError(p.t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// ticks returns the timestamps of the recorded series, as this process reads them.
func (p *rulesProcess) ticks() []int64 {
	found, err := p.store.Select(p.t.Context(), query.Query{
		Tenant: tenant.Default, MinT: time.Now().Add(-time.Hour).UnixMilli(), MaxT: time.Now().UnixMilli(),
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "tick")},
	})
	require.NoError(p.t, err)
	var samples chunk.Samples
	for _, one := range found {
		require.NoError(p.t, one.Samples(&samples))
	}
	return samples.T
}

// TestOneOfTwoProcessesEvaluatesRules checks that only process a evaluates the rules while a and b run. When a fails, b
// takes over without a gap. When a recovers, b continues to evaluate. When b stops in an orderly way, a takes over
// immediately.
func TestOneOfTwoProcessesEvaluatesRules(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for rules for some seconds: leave -short out")
	}
	t.Parallel() // all of the time is spent waiting
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "r.yml"), []byte(
		"groups: [{name: g, interval: 1s, rules: [{record: tick, expr: vector(time())}, {alert: Always, expr: vector(1), for: 1s}]}]",
	), 0o600))
	wait := func(why string, condition func() bool) {
		t.Helper()
		require.Eventually(t, condition, cassiatest.Patience, 20*time.Millisecond, why)
	}
	eng := memory.New()
	var ahead atomic.Int64
	a := startRulesProcess(t, eng, "a", filepath.Join(dir, "*.yml"), &ahead)
	wait("a begins", a.isEvaluator)
	b := startRulesProcess(t, eng, "b", filepath.Join(dir, "*.yml"), &ahead)
	wait("a has evaluated", func() bool { return len(b.ticks()) >= 3 })
	require.False(t, b.isEvaluator())
	wait("b shows what a does", func() bool {
		groups := b.ruler.Retriever(t.Context()).RuleGroups()
		return len(groups) == 1 && groups[0].AlertingRules()[0].State() == rules.StateFiring
	})

	a.dead.Store(true)
	died := time.Now().UnixMilli()
	wait("some evaluations nobody makes", func() bool { return time.Now().UnixMilli() > died+3000 })
	ahead.Store(int64(membership.LivenessTimeout))
	wait("b takes over", b.isEvaluator)
	wait("b has evaluated", func() bool { n := b.ticks(); return n[len(n)-1] > died+4000 })
	noGap := func() {
		t.Helper()
		n, missing := b.ticks(), int64(0)
		for i := range n[1:] {
			if gap := (n[i+1] - n[i]) / 1000; gap > 2 {
				missing += gap - 1
			}
		}
		// On a busy machine some evaluations are slow. Prometheus' manager skips the evaluations that become due in the
		// meantime.
		const leftOut = "prometheus_rule_group_iterations_missed_total"
		require.LessOrEqual(t, float64(missing), a.metric(leftOut)+b.metric(leftOut),
			"gaps of more than two intervals: %v", n)
	}
	noGap()

	a.dead.Store(false)
	wait("a sees that it isn't its turn", func() bool { return !a.isEvaluator() })
	require.True(t, b.isEvaluator())
	b.stop()
	wait("a goes on", a.isEvaluator)
	last := b.ticks()
	wait("a has evaluated", func() bool { return len(b.ticks()) > len(last)+1 })
	noGap()
}
