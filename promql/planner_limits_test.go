package promql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/stats"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// sampled returns a store with the sealed metrics of a sampler.
func sampled(t *testing.T, eng engine.Engine, change ...func(*storage.Options)) *storage.Store {
	store := storagetest.Open(t, eng, append(change, storagetest.KeepForever)...)
	s := sampler{t: t, rnd: rand.New(rand.NewPCG(3, 4)), store: store}
	s.fill()
	require.NoError(t, store.SealAll(t.Context()))
	return store
}

// answerOf returns the answer of the engine with the planner, and the statistics of its fragments.
func (r *rivals) answerOf(a asked) (answer, []FragmentStats) {
	out, stats, err := a.ask(r.ctx, r.planned, r.q)
	require.NoError(r.t, err)
	return out, stats
}

var wholeRange = asked{start: sampledFrom, end: sampledTo, step: time.Minute}

func (a asked) of(text string) asked { a.text = text; return a }

func TestPlannerPassesStorageErrorsOn(t *testing.T) {
	var broken atomic.Bool
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if broken.Load() && op.Kind == faultengine.Scan && op.Table == engine.Raw {
			return faultengine.Fail(errors.New("the disk is on fire"))
		}
		return faultengine.Pass()
	})
	store := sampled(t, struct{ engine.Engine }{eng}, nil) // It has no versions, so that no chunks are cached.
	r := newRivals(t, NewQueryable(store), nil)
	queries := []string{"temperature", "sum(rate(requests_total[5m]))", "sum(up) + on () topk(1, temperature)",
		"latency"}
	for _, about := range []string{"labels aren't known yet", "labels are known"} {
		broken.Store(true)
		for _, q := range queries {
			d, ok := r.difference(wholeRange.of(q))
			require.True(t, ok)
			require.Empty(t, d, "%s: %s", about, q)
			got, _ := r.answerOf(wholeRange.of(q))
			require.Contains(t, got.err, "the disk is on fire", q)
		}
		broken.Store(false)
		for _, q := range queries { // Now the store caches their labels.
			got, _ := r.answerOf(wholeRange.of(q))
			require.Empty(t, got.err, q)
		}
	}
}

func TestPlannerPassesStorageLimitsOn(t *testing.T) {
	store := sampled(t, memory.New(), func(o *storage.Options) { o.QueryBytes = 20_000 })
	r := newRivals(t, NewQueryable(store), nil)
	failed := 0
	for _, q := range []string{"temperature", "sum(temperature)", `{__name__=~".+"}`, "rate(requests_total[1h])",
		"latency", "up"} {
		d, ok := r.difference(wholeRange.of(q))
		require.True(t, ok)
		require.Empty(t, d, q)
		if got, _ := r.answerOf(wholeRange.of(q)); got.err != "" {
			failed++
		}
	}
	require.NotZero(t, failed)
}

func TestPlannerHoldsNoMoreSamplesThanAllowed(t *testing.T) {
	store := sampled(t, memory.New(), nil)
	const tooMany = "query processing would load too many samples into memory in query execution"
	for _, c := range []struct {
		query string
		limit int
		fails bool
	}{
		{"temperature", 500, true},
		{"temperature", 5000, false},
		{"latency", 5000, true},
		{"rate(requests_total[5m])", 500, true},
		{"sum by (instance) (rate(requests_total[5m]))", 1000, true},
		// Without the planner, the evaluator would hold the points of every series.
		{"sum(rate(requests_total[5m]))", 1000, false},
		{"quantile(0.5, temperature)", 700, true},
		{"topk(10, temperature)", 500, true},
		{"topk(1, temperature)", 500, false},
		{"sum(rate(requests_total[1h]))", 200, true}, // A single series has more samples.
	} {
		r := newRivals(t, NewQueryable(store), func(o *Options) { o.MaxSamples = c.limit })
		got, stats := r.answerOf(wholeRange.of(c.query))
		if c.fails {
			require.Equal(t, tooMany, got.err, "%s within %d", c.query, c.limit)
		} else {
			require.Empty(t, got.err, "%s within %d", c.query, c.limit)
		}
		require.Len(t, stats, 1, c.query)
	}
}

func TestPlannerStopsWithItsContext(t *testing.T) {
	store := sampled(t, memory.New(), nil)
	q := NewQueryable(store)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := NewEngine(DefaultOptions())
	defer e.Close()
	for _, with := range []*plan{
		{ctx: ctx}, {ctx: deadlineExceeded{t.Context()}},
	} {
		query, err := wholeRange.of("sum(rate(requests_total[5m]))").query(t.Context(), e, q)
		require.NoError(t, err)
		with.queryable, with.stmt, with.budget.limit = q, query.Statement().(*parser.EvalStmt), 1e6
		_, err = with.Querier(0, 1)
		if errors.Is(with.ctx.Err(), context.Canceled) {
			require.Equal(t, promengine.ErrQueryCanceled("expression evaluation"), err)
		} else {
			require.Equal(t, promengine.ErrQueryTimeout("expression evaluation"), err)
		}
	}
}

type deadlineExceeded struct{ context.Context }

func (deadlineExceeded) Err() error { return context.DeadlineExceeded }

// TestPlannedQueriesAreCancelled checks that a query can be canceled while its fragments are computed, and that its
// timeout applies.
func TestPlannedQueriesAreCancelled(t *testing.T) {
	o := DefaultOptions()
	o.Timeout = time.Minute
	e := NewEngine(o)
	defer e.Close()
	synctest.Test(t, func(t *testing.T) {
		for _, timeout := range []bool{false, true} {
			q := &plannedQuery{Query: &stuckQuery{}, engine: e, plan: &plan{}}
			done := make(chan error)
			go func() { done <- q.Exec(t.Context()).Err }()
			synctest.Wait()
			if !timeout {
				q.Cancel()
				require.Equal(t, promengine.ErrQueryCanceled("query execution"), <-done)
			} else {
				require.Equal(t, promengine.ErrQueryTimeout("query execution"), <-done)
			}
		}
	})
}

type stuckQuery struct{ promengine.Query }

func (*stuckQuery) Cancel()                     {}
func (*stuckQuery) String() string              { return "stuck" }
func (*stuckQuery) Statement() parser.Statement { return nil }
func (*stuckQuery) Stats() *stats.Statistics    { return nil }

func (*stuckQuery) Exec(ctx context.Context) *promengine.Result {
	<-ctx.Done()
	return &promengine.Result{Err: ctx.Err()}
}

// TestPlannerSurvivesPanics checks that a panic of a function ends the query as in the evaluator, but not the process.
func TestPlannerSurvivesPanics(t *testing.T) {
	const name = "deriv"
	was := promengine.FunctionCalls[name]
	defer func() { promengine.FunctionCalls[name] = was }()
	promengine.FunctionCalls[name] = func(
		[]promengine.Vector, promengine.Matrix, parser.Expressions, *promengine.EvalNodeHelper,
	) (promengine.Vector, annotations.Annotations) {
		panic(errors.New("division by a cucumber"))
	}
	r := newRivals(t, NewQueryable(sampled(t, memory.New(), nil)), nil)
	for _, q := range []string{"deriv(temperature[5m])", "sum(deriv(temperature[5m]))"} {
		d, _ := r.difference(wholeRange.of(q))
		require.Empty(t, d)
		got, stats := r.answerOf(wholeRange.of(q))
		require.Contains(t, got.err, "cucumber")
		require.Contains(t, stats[0].Refused, "cucumber")
	}
}

func TestPlanTellsItsFragments(t *testing.T) {
	r := newRivals(t, NewQueryable(sampled(t, memory.New(), nil)), nil)
	for query, want := range map[string][]string{
		"1 + 1": nil,
		"sum by (job) (rate(requests_total[5m] offset 1m)) / on (job) group_right () temperature > 3": {
			"sum by (job) (rate(requests_total[5m] offset 1m))", "temperature",
		},
		"sum(rate(latency[5m]))":                            {"rate(latency[5m])"}, // The evaluator sums histograms.
		"absent(temperature)":                               {"temperature"},
		"absent(temperature > 1)":                           {"temperature"},
		"timestamp(temperature)":                            nil,
		"absent_over_time(temperature[5m])":                 nil,
		"limitk(2, temperature)":                            {"temperature"},
		"info(temperature)":                                 {"temperature"},
		"info(temperature offset 1m)":                       nil,
		"max_over_time(rate(requests_total[1m])[5m:1m])":    {"rate(requests_total[1m])"},
		"temperature @ 11000 + up":                          {"temperature @ 11000.000", "up"},
		"predict_linear(temperature[5m], time())":           nil,
		"rate(requests_total[5m] anchored)":                 nil,
		"count_values(\"v\", up)":                           {"up"},
		"topk(scalar(count(up) or vector(1)), temperature)": {"temperature", "count(up)"},
		"histogram_quantile(0.9, sum by (le) (rate(size_bucket[5m])))": {
			"sum by (le) (rate(size_bucket[5m]))",
		},
	} {
		got, stats := r.answerOf(wholeRange.of(query))
		require.Empty(t, got.err, query)
		var exprs []string
		for _, s := range stats {
			exprs = append(exprs, s.Expr)
			require.Equal(t, "raw", s.Segments[0].Resolution)
			require.Empty(t, s.Refused)
			require.NotZero(t, s.Series, s.Expr)
			require.NotZero(t, s.Samples, s.Expr)
		}
		require.ElementsMatch(t, want, exprs, query)
	}
}

// TestPlanRestoresTheStatement checks that the statement of a query is restored at its end, because logs contain the
// statement.
func TestPlanRestoresTheStatement(t *testing.T) {
	r := newRivals(t, NewQueryable(sampled(t, memory.New(), nil)), nil)
	const text = "sum(rate(requests_total[5m])) * on () group_right () temperature @ 11000.000"
	query, err := wholeRange.of(text).query(t.Context(), r.planned, r.q)
	require.NoError(t, err)
	defer query.Close()
	before := query.Statement().String()
	require.NoError(t, query.Exec(t.Context()).Err)
	require.Len(t, planOf(query), 2)
	require.Equal(t, before, query.Statement().String())
}

func TestInOrderUsesResultsInOrder(t *testing.T) {
	for _, workers := range []int{1, 2, 5} {
		for _, n := range []int{workers, 7, 200} {
			ahead := min(n, 3*workers)
			ring := make([]int, ahead)
			var got []int
			err := computeInOrder(t.Context(), workers, ahead, n, func(worker, i int) error {
				if worker >= workers {
					return fmt.Errorf("worker %d of %d", worker, workers)
				}
				ring[i%ahead] = i * i
				return nil
			}, func(i int) error { got = append(got, ring[i%ahead]); return nil })
			require.NoError(t, err)
			require.Len(t, got, n)
			for i, v := range got {
				require.Equal(t, i*i, v)
			}
		}
	}
}

func TestInOrderEndsWithTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	for _, workers := range []int{1, 4} {
		nothing := func(int) error { return nil }
		failsAt := func(at int) func(_, i int) error {
			return func(_, i int) error {
				if i == at {
					return broken
				}
				return nil
			}
		}
		require.ErrorIs(t, computeInOrder(t.Context(), workers, 12, 100, failsAt(50), nothing), broken)
		require.ErrorIs(t, computeInOrder(t.Context(), workers, 12, 100, failsAt(-1), func(i int) error {
			if i == 70 {
				return broken
			}
			return nil
		}), broken)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(
		t, computeInOrder(ctx, 3, 9, 100, func(int, int) error { return ctx.Err() }, func(int) error { return nil }),
		context.Canceled,
	)
}

// planOf returns the statistics of a query's fragments after the query was executed. The statistics are empty if the
// query has no fragments or wasn't created by an Engine.
func planOf(q promengine.Query) []FragmentStats {
	ours, ok := q.(*plannedQuery)
	if !ok || ours.plan == nil {
		return nil
	}
	ours.plan.mu.Lock()
	defer ours.plan.mu.Unlock()
	return append([]FragmentStats(nil), ours.plan.stats...)
}
