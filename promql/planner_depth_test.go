package promql

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// chain returns n operations with the same operator, such as a + a + a.
func chain(n int, operator, operand string) string {
	return operand + strings.Repeat(" "+operator+" "+operand, n)
}

// TestDeepQueriesCostNoMoreThanTheirSize checks that the cost of a query is linear or quadratic in its size, for all
// kinds of nesting. No pass may visit both sides of an expression more than once, and no text may contain the texts of
// two others.
func TestDeepQueriesCostNoMoreThanTheirSize(t *testing.T) {
	store := growingStore(t, 1<<30)
	r := newRivals(t, NewQueryable(store), func(o *Options) { o.Parser.EnableBinopFillModifiers = true })
	kinds := map[string]func(n int) string{
		"set operators": func(n int) string {
			return "small" + strings.Repeat(" and small or small unless on (nothing) small", n/3)
		},
		"other selectors":     func(n int) string { return chain(n/2, "+ on (id)", `small{a!="x"} + on (id) small{a!="y"}`) },
		"on the right":        func(n int) string { return nested(n, "small + (", "small", ")") },
		"on both sides":       func(n int) string { return nested(n/2, "small + (", "small", ") * small") },
		"powers":              func(n int) string { return chain(n, "^", "small") },
		"numbers":             func(n int) string { return chain(n, "+ 1 +", "small") },
		"numbers on the left": func(n int) string { return nested(n, "1 - (", "small", ")") },
		"constants":           func(n int) string { return "small + " + nested(n, "(1 + ", "1", ")") },
		"constants that are none": func(n int) string {
			return nested(n, "small + (1 + (", "vector(1) + "+nested(n, "(1 + ", "time()", ")"), "))")
		},
		"join":              func(n int) string { return "small" + strings.Repeat(" + on (id) group_left (a) small", n) },
		"join on the right": func(n int) string { return nested(n, "small + on (id) group_right (a) (", "small", ")") },
		"join that varies": func(n int) string {
			return nested(n, `label_replace(`, "small * on (id) group_left (a) small", `, "b", "x", "a", ".*")`)
		},
		"aggregations of sums": func(n int) string { return nested(n, "small + on () group_left () sum(", "small", ")") },
		"fill":                 func(n int) string { return "small" + strings.Repeat(" + on (id) fill (0) small", n) },
		"histograms":           func(n int) string { return nested(n, "histogram_quantile(0.9, ", "small", " + 1)") },
		"quantiles":            func(n int) string { return nested(n, "quantile(scalar(", "small", "), small)") },
		"counts of values":     func(n int) string { return nested(n/3, `count_values("v", `, "small", ")") },
		"absent":               func(n int) string { return nested(n, "absent(", "small", ")") },
		"absent over time":     func(n int) string { return nested(n/3, "absent_over_time(", "small", "[2m:1m])") },
		"subqueries":           func(n int) string { return nested(n/3, "max_over_time(", "small", "[2m:1m])") },
		"subqueries of sums":   func(n int) string { return nested(n/6, "max_over_time((", "small", " + small)[2m:1m])") },
		"fixed times":          func(n int) string { return nested(n, "small + (", "small @ 600", " + small @ end())") },
		"label_join":           func(n int) string { return nested(n, `label_join(`, "small", `, "b", "", "a")`) },
		"info":                 func(n int) string { return nested(n/2, "info(", "small", ")") },
		"info of sums":         func(n int) string { return nested(n/6, "info(", "small", " + on (id) small)") },
		"limitk":               func(n int) string { return nested(n, "limitk(5, ", "small", ")") },
		"scalar":               func(n int) string { return nested(n, "vector(scalar(", "small", "))") },
		"clamp":                func(n int) string { return nested(n, "clamp(", "small", ", scalar(small), 1 + 1)") },
		"label in a text":      func(n int) string { return chain(n, "+", `{__name__="small",a!="\"\\\""}`) },
		"no series":            func(n int) string { return chain(n, "+", "nothing") },
	}
	for _, op := range []string{
		"+", "-", "*", "/", "%", "atan2", "== bool", "!= bool", "> bool", "<= bool", "==", "- on (id)",
		"* ignoring (a)", "and", "or", "unless",
	} {
		kinds[op] = func(n int) string { return chain(n, op, "small") }
		kinds["sums "+op] = func(n int) string { return chain(n, op, "sum by (id, a) (small)") }
		kinds["rates "+op] = func(n int) string { return chain(n, op, "rate(small[5m])") }
	}
	for _, around := range []string{
		"(", "-(", "abs(", "sum(", "max by (id) (", "avg without (a) (", "topk(3, ", "sort(", "round(", "timestamp(",
		"group(", "histogram_quantile(0.9, ",
	} {
		kinds[around+"…)"] = func(n int) string { return nested(n, around, "small", ")") }
		kinds[around+"… + small)"] = func(n int) string { return nested(n/2, around, "small", " + on (id) small)") }
	}
	for kind, text := range kinds {
		for _, span := range []time.Duration{0, 20 * time.Minute} {
			a := asked{start: 600_000}
			if span > 0 {
				a.end, a.step = a.start+span.Milliseconds(), time.Minute
			}
			cost := func(n int) int64 {
				q, err := a.of(text(n)).query(r.ctx, r.planned, r.q)
				require.NoError(t, err, kind)
				defer q.Close()
				return allocated(func() {
					if result := q.Exec(r.ctx); result.Err != nil {
						require.NotContains(t, result.Err.Error(), "timed out", kind)
					}
				})
			}
			if d, ok := r.difference(a.of(text(12))); ok {
				require.Empty(t, d, kind)
			}
			last := cost(15)
			for _, n := range []int{15, 18, 24, 30, 60} {
				next := cost(n)
				require.Less(t, next, 5*last+1<<20, "%s: the last was %d, one with %d has %d", kind, last, n, next)
				last = next
			}
			t.Logf("%-30s %s: %d", kind, span, last)
		}
	}
}

// planned returns the computed plan of a query, with a budget that meters its memory.
func planned(t *testing.T, r *rivals, a asked) *plan {
	query, err := a.query(t.Context(), r.planned, r.q)
	require.NoError(t, err)
	p := &plan{ctx: t.Context(), queryable: r.q, stmt: query.Statement().(*parser.EvalStmt)}
	p.budget = budget{limit: 1e9, ctx: p.ctx, read: &read{gate: &gate{largeBytes: math.MaxInt64}}}
	q, err := p.Querier(0, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	return p
}

// TestOperandsAreReleased checks that a plan holds the results that the evaluator reads, and releases the operands from
// which these results are computed.
func TestOperandsAreReleased(t *testing.T) {
	r := newRivals(t, NewQueryable(growingStore(t, 1<<30)), nil)
	for _, a := range []asked{{start: 600_000}, {start: 600_000, end: 900_000, step: time.Minute}} {
		p := planned(t, r, a.of("sum("+chain(20, "+ 1 -", "small")+") / sum("+chain(20, "*", "(small)")+")"))
		held := 0
		for _, result := range p.results {
			if len(result.series) > 0 || result.read != nil {
				held++
			}
		}
		require.Equal(t, 2, held)
		require.Len(t, p.operations, 2)
	}
}

// TestOperationsWithoutSeriesCount checks that the values that an operation holds for each step count toward the
// query's memory, even if the operation has no series.
func TestOperationsWithoutSeriesCount(t *testing.T) {
	r := newRivals(t, NewQueryable(growingStore(t, 1<<30)), nil)
	a := asked{start: 600_000, end: 6_600_000, step: time.Second}
	p := planned(t, r, a.of(chain(10, "or", "(nothing + nothing)")))
	require.Len(t, p.operations, 11)
	require.GreaterOrEqual(t, p.budget.read.bytes.Load(), int64(11*6001*meteredValue))
}
