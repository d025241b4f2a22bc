package promql

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/soak"
)

var allSyntax = parser.Options{EnableExperimentalFunctions: true, ExperimentalDurationExpr: true,
	EnableExtendedRangeSelectors: true}

// asked is a query and its times. end is 0 for an instant query.
type asked struct {
	text       string
	start, end int64
	step       time.Duration
}

func (a asked) String() string {
	if a.end == 0 {
		return fmt.Sprintf("%s at %d", a.text, a.start)
	}
	return fmt.Sprintf("%s from %d to %d every %s", a.text, a.start, a.end, a.step)
}

// answer is a query's result in a comparable form.
type answer struct {
	err   string
	notes []string
	rows  promengine.Matrix
}

func (a asked) query(ctx context.Context, e *Engine, q *Queryable) (promengine.Query, error) {
	return a.with(ctx, e, q)
}

func (a asked) with(ctx context.Context, e promengine.QueryEngine, q promstorage.Queryable) (promengine.Query, error) {
	if a.end == 0 {
		return e.NewInstantQuery(ctx, q, nil, a.text, time.UnixMilli(a.start))
	}
	return e.NewRangeQuery(ctx, q, nil, a.text, time.UnixMilli(a.start), time.UnixMilli(a.end), a.step)
}

func (a asked) ask(ctx context.Context, e *Engine, q *Queryable) (answer, []FragmentStats, error) {
	query, err := a.query(ctx, e, q)
	if err != nil {
		return answer{}, nil, err
	}
	defer query.Close()
	out, err := a.answer(query.Exec(ctx))
	return out, planOf(query), err
}

// answer copies a result to an answer, because the memory of the result belongs to the query.
func (a asked) answer(result *promengine.Result) (out answer, err error) {
	if result.Err != nil {
		out.err = result.Err.Error()
		return out, nil
	}
	w, i := result.Warnings.AsStrings(a.text, 0, 0)
	out.notes = slices.Concat(w, i)
	slices.Sort(out.notes)
	switch v := result.Value.(type) {
	case promengine.Matrix:
		for _, s := range v { // The slices belong to the query.
			s.Floats, s.Histograms = slices.Clone(s.Floats), slices.Clone(s.Histograms)
			out.rows = append(out.rows, s)
		}
	case promengine.Vector:
		for _, s := range v {
			row := promengine.Series{Metric: s.Metric}
			if s.H != nil {
				row.Histograms = []promengine.HPoint{{T: s.T, H: s.H}}
			} else {
				row.Floats = []promengine.FPoint{{T: s.T, F: s.F}}
			}
			out.rows = append(out.rows, row)
		}
	case promengine.Scalar:
		out.rows = append(out.rows, promengine.Series{Floats: []promengine.FPoint{{T: v.T, F: v.V}}})
	default:
		return answer{}, fmt.Errorf("a result of type %T", result.Value)
	}
	sort.SliceStable(out.rows, func(i, j int) bool {
		return labels.Compare(out.rows[i].Metric, out.rows[j].Metric) < 0
	})
	return out, nil
}

// tolerated returns the max relative difference of two answers. It isn't 0 on processors that can multiply and add in
// one step, because the compiler may then round once or twice.
func tolerated() float64 {
	if runtime.GOARCH == "amd64" {
		return 0
	}
	return 1e-12
}

// differs describes how two answers differ by more than a relative tolerance, or returns "" if they don't.
func (a answer) differs(b answer, tolerance float64) string {
	if a.err != b.err {
		return fmt.Sprintf("error %q, not %q", b.err, a.err)
	}
	if !slices.Equal(a.notes, b.notes) {
		return fmt.Sprintf("annotations %q, not %q", b.notes, a.notes)
	}
	if len(a.rows) != len(b.rows) {
		return fmt.Sprintf("%d series, not %d", len(b.rows), len(a.rows))
	}
	for i, x := range a.rows {
		y := b.rows[i]
		if !labels.Equal(x.Metric, y.Metric) {
			return fmt.Sprintf("series %s, not %s", y.Metric, x.Metric)
		}
		if len(x.Floats) != len(y.Floats) || len(x.Histograms) != len(y.Histograms) {
			return fmt.Sprintf("%s has %d floats and %d histograms, not %d and %d", x.Metric, len(y.Floats),
				len(y.Histograms), len(x.Floats), len(x.Histograms))
		}
		for k, p := range x.Floats {
			if q := y.Floats[k]; p.T != q.T || !near(p.F, q.F, tolerance) {
				return fmt.Sprintf("%s has %v, not %v", x.Metric, q, p)
			}
		}
		for k, p := range x.Histograms {
			if q := y.Histograms[k]; p.T != q.T || !nearHistograms(p.H, q.H, tolerance) {
				return fmt.Sprintf("%s has %v (%v), not %v (%v)", x.Metric, q, q.H.CounterResetHint, p,
					p.H.CounterResetHint)
			}
		}
	}
	return ""
}

func near(a, b, tolerance float64) bool {
	if a == b {
		return tolerance > 0 || math.Signbit(a) == math.Signbit(b)
	}
	if math.IsNaN(a) && math.IsNaN(b) {
		return true
	}
	return math.Abs(a-b) <= tolerance*max(math.Abs(a), math.Abs(b))
}

func nearHistograms(a, b *histogram.FloatHistogram, tolerance float64) bool {
	near := func(a, b float64) bool { return near(a, b, tolerance) }
	if a.CounterResetHint != b.CounterResetHint || a.Schema != b.Schema || !near(a.Sum, b.Sum) ||
		!near(a.Count, b.Count) || !near(a.ZeroCount, b.ZeroCount) {
		return false
	}
	nearAll := func(a, b []float64) bool { return slices.EqualFunc(a, b, near) }
	return slices.Equal(a.PositiveSpans, b.PositiveSpans) && slices.Equal(a.NegativeSpans, b.NegativeSpans) &&
		nearAll(a.PositiveBuckets, b.PositiveBuckets) && nearAll(a.NegativeBuckets, b.NegativeBuckets) &&
		nearAll(a.CustomValues, b.CustomValues)
}

// rivals are two engines on the same data. One of them has no planner.
type rivals struct {
	t         *testing.T
	ctx       context.Context
	q         *Queryable
	planned   *Engine
	plain     *Engine
	fragments map[string]int // by outcome
	// undecided counts the queries to which the evaluator itself gives different answers.
	undecided int
	// failing counts the queries that return an error, and empty the queries that return no series.
	failing, empty int
}

func newRivals(t *testing.T, q *Queryable, set func(*Options)) *rivals {
	o := DefaultOptions()
	o.Parser, o.NoOrder = allSyntax, true
	if set != nil {
		set(&o)
	}
	r := &rivals{t: t, ctx: t.Context(), q: q, planned: NewEngine(o), fragments: map[string]int{}}
	o.NoPlanner = true
	r.plain = NewEngine(o)
	t.Cleanup(func() { require.NoError(t, r.planned.Close()); require.NoError(t, r.plain.Close()) })
	return r
}

// orders is the maximum number of times that the evaluator repeats a query if the answers differ. It is large because
// some orders of iteration over a small map occur only once in 16 times.
const orders = 500

// difference runs a query on both engines, and describes how the answers differ. It returns false if the query is
// invalid.
func (r *rivals) difference(a asked) (string, bool) {
	want, _, err := a.ask(r.ctx, r.plain, r.q)
	if err != nil {
		return "", false
	}
	got, stats, err := a.ask(r.ctx, r.planned, r.q)
	require.NoError(r.t, err)
	for _, s := range stats {
		r.fragments[s.Refused]++
	}
	switch {
	case want.err != "":
		r.failing++
	case len(want.rows) == 0:
		r.empty++
	}
	d := want.differs(got, tolerated())
	// The evaluator may have more than one answer if it iterates over a map. The comparison is undecided if one of them
	// matches.
	for i := 0; d != "" && i < orders; i++ {
		again, _, err := a.ask(r.ctx, r.plain, r.q)
		require.NoError(r.t, err)
		if want.differs(again, 0) != "" {
			r.undecided++
			return "", true
		}
	}
	return d, true
}

// smallest returns the smallest failing query that it finds among the parts of a failing query.
func (r *rivals) smallest(a asked) (asked, string) {
	why, _ := r.difference(a)
	if a.end != 0 {
		for t := a.start; t <= a.end; t += a.step.Milliseconds() {
			if d, ok := r.difference(asked{text: a.text, start: t}); ok && d != "" {
				return r.smallest(asked{text: a.text, start: t})
			}
		}
	}
	expr, err := parser.NewParser(allSyntax).ParseExpr(a.text)
	require.NoError(r.t, err)
	for child := range parser.ChildrenIter(expr) {
		e, ok := child.(parser.Expr)
		if !ok || e.Type() == parser.ValueTypeString {
			continue
		}
		b := a
		b.text = e.String()
		if d, ok := r.difference(b); ok && d != "" {
			return r.smallest(b)
		}
	}
	return a, why
}

func askedOf(a *asker) asked {
	out := asked{text: a.query(), start: sampledFrom - 600_000 + a.rnd.Int64N(sampledTo-sampledFrom)}
	if a.rnd.IntN(3) > 0 {
		out.step = time.Duration(1+a.rnd.IntN(200)) * time.Second
		if a.rnd.IntN(3) == 0 {
			out.step = time.Minute
			out.start -= out.start % 60_000
		}
		out.end = out.start + out.step.Milliseconds()*a.rnd.Int64N(30) + a.rnd.Int64N(500)
	}
	return out
}

// TestPlannerAnswersAsTheEvaluatorDoes checks that the planner answers every query as Prometheus' evaluator alone does.
func TestPlannerAnswersAsTheEvaluatorDoes(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	for i, c := range []struct {
		about   string
		sealed  bool
		queries int
		set     func(*Options)
	}{
		{"from heads", false, 3000, nil},
		{"sealed", true, 3000, nil},
		{"delayed name removal", false, 800, func(o *Options) { o.DelayedNameRemoval = true }},
		{"start timestamps", true, 500, func(o *Options) { o.StartTimestamps = true }},
		{"a long lookback", true, 500, func(o *Options) { o.LookbackDelta = 20 * time.Minute }},
		{"a short lookback", false, 500, func(o *Options) { o.LookbackDelta = 9 * time.Second }},
	} {
		t.Run(c.about, func(t *testing.T) {
			if testing.Short() {
				c.queries /= 10
			}
			store := readyStore(t)
			s := sampler{t: t, rnd: rand.New(rand.NewPCG(seed, uint64(i))), store: store,
				starts: c.about == "start timestamps"}
			s.fill()
			if c.sealed {
				require.NoError(t, store.SealAll(t.Context()))
			}
			r := newRivals(t, NewQueryable(store), c.set)
			r.ctx = newRollupContext(t, "raw") // The last bits of sums of buckets may differ.
			r.contest(&asker{rnd: rand.New(rand.NewPCG(seed, uint64(100+i)))}, c.queries)
		})
	}
}

// contest runs generated queries on both engines, and reports the queries whose answers differ.
func (r *rivals) contest(a *asker, queries int) {
	asked, failed := 0, 0
	for asked < queries && failed < 10 {
		q := askedOf(a)
		d, ok := r.difference(q)
		if !ok {
			continue
		}
		asked++
		if d != "" {
			failed++
			small, why := r.smallest(q)
			r.t.Errorf("%s\n%s\nsmaller: %s\n%s", q, d, small, why)
		}
	}
	r.t.Logf("%d queries: %d end in an error, %d without a series, %d have no one answer; fragments: %v",
		asked, r.failing, r.empty, r.undecided, r.fragments)
	require.Less(r.t, r.undecided, 10+queries/30)
	require.Less(r.t, r.failing+r.empty, 10+queries*2/3, "hardly a query has an answer")
	require.Greater(r.t, r.fragments[""], queries/4, "hardly a fragment was computed")
}
