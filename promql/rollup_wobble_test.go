package promql

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn/bucketfntest"
)

// An answer may be computed from multiple fragments, and each may be off by the tolerance. The resulting error depends
// on the computation: rate(a)/rate(b) changes little, but ceil, topk and == may jump. So these functions change the
// fragments' values from raw samples at random, by up to a tenth of the tolerance, and measure the change of the
// answer.
const (
	wobbles      = 6
	wobbleBy     = tolerance / 10
	wobbleFactor = 30 // tolerance / wobbleBy, and a factor for the effects of chance
)

// wobblyPlan changes the results of a plan's fragments.
type wobblyPlan struct {
	*plan
	move func(*plan)
}

func (w wobblyPlan) Querier(mint, maxt int64) (promstorage.Querier, error) {
	q, err := w.queryable.Querier(mint, maxt)
	if err == nil {
		err = w.computeFragments()
	}
	if err != nil {
		return nil, err
	}
	w.move(w.plan)
	w.computeOperations()
	return planQuerier{Querier: q, results: w.results, ordered: !w.unordered && dependsOnOrder(w.stmt)}, nil
}

// wobbled returns the answer of a query on raw samples whose fragments' values are changed at random.
func (d *rollupDuel) wobbled(a asked, r *rand.Rand) answer {
	largest := d.largestOfParts(a)
	return d.answerOf(a, func(p *plan) {
		for placeholder, result := range p.results {
			at, err := strconv.Atoi(placeholder.Value)
			require.NoError(d.t, err)
			bound, ok := largest[p.replaced[at].was.String()]
			if !ok {
				continue
			}
			for _, s := range result.series {
				wobble(s, bound(s.metric), r)
			}
		}
	})
}

// answerOf runs a query on the reference with a planner. move, if not nil, may change the results of fragments.
func (d *rollupDuel) answerOf(a asked, move func(*plan)) answer {
	p := &plan{queryable: d.reference, budget: budget{limit: int64(d.planned.opts.MaxSamples)}}
	inner, err := a.with(d.t.Context(), d.planned.engine, wobblyPlan{p, move})
	require.NoError(d.t, err)
	p.stmt = inner.Statement().(*parser.EvalStmt)
	q := &plannedQuery{Query: inner, engine: d.planned, plan: p}
	defer q.Close()
	out, err := a.answer(q.Exec(d.in("raw")))
	require.NoError(d.t, err)
	return out
}

// largestOfParts returns, for each fragment that may round, a function that returns the largest absolute value that
// enters the computation of a series. The keys are the texts of the fragments.
func (d *rollupDuel) largestOfParts(a asked) map[string]func(labels.Labels) float64 {
	fragments, _ := d.fragments(a)
	all := map[string]func(labels.Labels) float64{}
	for _, c := range fragments {
		bound := func(metric labels.Labels) float64 { return d.truths.boundOfAll(c, metric) }
		if c.over == nil {
			if !bucketfntest.BitExact[c.function] {
				all[(*c.at).String()] = bound
			}
			continue
		}
		if !bucketfntest.BitExact[c.function] || !slices.Contains([]parser.ItemType{parser.MIN, parser.MAX,
			parser.COUNT, parser.GROUP}, c.over.expr.Op) {
			all[(*c.at).String()] = bound
		}
		if inner := c; !bucketfntest.BitExact[c.function] { // The evaluator computes aggregations of histograms.
			inner.over = nil
			all[(*c.inner).String()] = func(metric labels.Labels) float64 { return d.truths.boundOfAll(inner, metric) }
		}
	}
	return all
}

// wobble changes the values of a series at random.
func wobble(s *fragmentSeries, largest float64, r *rand.Rand) {
	s.v = slices.Clone(s.v)
	for i, v := range s.v {
		if !isMissingValue(v) && !math.IsInf(v, 0) {
			s.v[i] = v + (2*r.Float64()-1)*wobbleBy*max(largest, math.Abs(v))
		}
	}
	s.h = slices.Clone(s.h)
	for i, h := range s.h {
		if h != nil {
			s.h[i] = h.Copy().Mul(1 + (2*r.Float64()-1)*wobbleBy)
		}
	}
}

// steady reports whether only values of an answer change if the fragments' values change, and not its series or times.
// spread contains the size of the changes.
func (d *rollupDuel) steady(a asked, want answer) (spread map[point]float64, ok bool) {
	spread = map[point]float64{}
	r := rand.New(rand.NewPCG(1, 2))
	for range wobbles {
		got := d.wobbled(a, r)
		if want.err != got.err || !slices.Equal(want.notes, got.notes) || len(want.rows) != len(got.rows) {
			return nil, false
		}
		for i, x := range want.rows {
			if !labels.Equal(x.Metric, got.rows[i].Metric) || !spreads(x, got.rows[i], spread) {
				return nil, false
			}
		}
	}
	return spread, true
}

// point identifies a value in an answer: its series and its time.
type point struct {
	series uint64
	t      int64
}

func spreads(want, got promengine.Series, spread map[point]float64) bool {
	if len(want.Floats) != len(got.Floats) || len(want.Histograms) != len(got.Histograms) {
		return false
	}
	series := want.Metric.Hash()
	for i, p := range want.Floats {
		q := got.Floats[i]
		if p.T != q.T || math.IsNaN(p.F) != math.IsNaN(q.F) || (math.IsInf(p.F, 0) || math.IsInf(q.F, 0)) &&
			p.F != q.F {
			return false
		}
		at := point{series, p.T}
		spread[at] = max(spread[at], math.Abs(p.F-q.F))
	}
	for i, p := range want.Histograms {
		q := got.Histograms[i]
		if p.T != q.T || p.H.Schema != q.H.Schema || p.H.CounterResetHint != q.H.CounterResetHint {
			return false
		}
		at := point{series, p.T}
		spread[at] = max(spread[at], apart(p.H, q.H))
	}
	return true
}

// apart returns the largest difference between the sums, counts or buckets of two histograms.
func apart(a, b *histogram.FloatHistogram) float64 {
	most := max(math.Abs(a.Sum-b.Sum), math.Abs(a.Count-b.Count))
	x, y := bucketfntest.BucketCounts(a), bucketfntest.BucketCounts(b)
	for at := range x {
		most = max(most, math.Abs(x[at]-y[at]))
	}
	if math.IsNaN(most) || math.IsInf(most, 0) {
		return max(math.Abs(a.Count-b.Count), tolerance*math.Abs(a.Count))
	}
	return most
}

// boundOfSpread returns a bound for differsBy that allows the given changes of values.
func boundOfSpread(spread map[point]float64) boundFunc {
	return func(metric labels.Labels, t int64) float64 {
		return wobbleFactor * spread[point{metric.Hash(), t}] / tolerance
	}
}
