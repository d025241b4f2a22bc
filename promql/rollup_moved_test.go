package promql

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/rollup/expand"
)

// A fragment whose windows were moved or widened must have, at each step, the value that Prometheus' evaluator returns
// for the window used, scaled if the function grows with its window. Only the samples between the edges may make it
// differ from the value for the requested window. If buckets can't answer a series, its value is computed for the
// requested window from raw samples. After these have expired it has no value, and there is an info.

// movedFragment is a query that consists of one fragment, and the resolutions that answered its steps.
type movedFragment struct {
	d *rollupDuel
	a asked
	candidate
	segments []*segment
	want     answer              // for the requested windows
	memo     map[[3]int64]answer // by right edge, span, and evaluation time
}

// segmentAt returns the segment that answers step k.
func (m *movedFragment) segmentAt(k int) *segment {
	for _, l := range m.segments {
		if k < l.ToStep {
			return l
		}
	}
	return m.segments[len(m.segments)-1]
}

// window returns the window that was used for step k.
func (m *movedFragment) window(k int) (from, to int64) {
	return m.segmentAt(k).Segment.Window(m.edges.timeAt(k))
}

// valuesAt holds the values of an answer, by series and time.
type valuesAt map[point]valueAt

type valueAt struct {
	metric labels.Labels
	f      float64
	h      *histogram.FloatHistogram
}

func valuesOf(rows promengine.Matrix) valuesAt {
	all := valuesAt{}
	for _, s := range rows {
		for _, p := range s.Floats {
			all[point{s.Metric.Hash(), p.T}] = valueAt{metric: s.Metric, f: p.F}
		}
		for _, p := range s.Histograms {
			all[point{s.Metric.Hash(), p.T}] = valueAt{metric: s.Metric, h: p.H}
		}
	}
	return all
}

// expected returns the expected values of the fragment's steps, given the values for the requested windows.
func (m *movedFragment) expected(asked valuesAt) (valuesAt, string) {
	all := valuesAt{}
	for i, t := range m.times() {
		k := min(i, m.edges.n-1)
		var now answer
		switch l := m.segmentAt(k); {
		case l.IsExact():
			for at, v := range asked {
				if at.t == t {
					all[at] = v
				}
			}
			continue
		case l.Approximate:
			now = m.made(k, l, false)
		default:
			now = m.evaluated(k)
		}
		if now.err != "" {
			return nil, now.err
		}
		for at, v := range valuesOf(now.rows) {
			if scale := m.scale(k); v.h == nil {
				v.f *= scale
			} else if scale != 1 {
				v.h = v.h.Copy().Mul(scale)
			}
			all[point{at.series, t}] = v
		}
	}
	return all, ""
}

// times returns the times of the query's steps. A fragment with the same value at all steps has only one step.
func (m *movedFragment) times() []int64 {
	if m.a.end == 0 {
		return []int64{m.a.start}
	}
	var all []int64
	for t := m.a.start; t <= m.a.end; t += m.a.step.Milliseconds() {
		all = append(all, t)
	}
	return all
}

// growing contains the functions whose value grows with the length of their window.
var growing = map[string]bool{
	"increase": true, "delta": true, "changes": true, "resets": true, "sum_over_time": true, "count_over_time": true,
}

// scale returns the factor for the value of step k if its window was widened. If only the left edge of a snapped window
// was moved, the window may also be longer, by at most 1%, but its value isn't scaled.
func (m *movedFragment) scale(k int) float64 {
	from, to := m.window(k)
	if !growing[m.function] || m.segmentAt(k).Approximate || m.segmentAt(k).Fit == resolution.FitSnapped ||
		to-from <= m.width {
		return 1
	}
	s := float64(m.width) / float64(to-from)
	if m.over == nil {
		return s
	}
	switch m.over.expr.Op {
	case parser.COUNT, parser.GROUP:
		return 1
	case parser.STDVAR:
		return s * s
	default:
		return s
	}
}

// evaluated returns the reference's answer for the window used for step k.
func (m *movedFragment) evaluated(k int) answer {
	from, to := m.window(k)
	ahead := int64(0)
	if m.function == "predict_linear" {
		// The predicted time is relative to the evaluation time, which isn't moved with the window.
		ahead = m.eval.timeAt(k) - to
	}
	key := [3]int64{to, to - from, ahead}
	if out, ok := m.memo[key]; ok {
		return out
	}
	text := m.textOver(to-from, ahead)
	opts := promengine.NewPrometheusQueryOpts(false, time.Duration(to-from)*time.Millisecond)
	q, err := m.d.plain.NewInstantQuery(m.d.t.Context(), m.d.reference, opts, text, time.UnixMilli(to))
	require.NoError(m.d.t, err, text)
	defer q.Close()
	out, err := asked{text: text, start: to}.answer(q.Exec(m.d.t.Context()))
	require.NoError(m.d.t, err)
	m.memo[key] = out
	return out
}

// textOver returns the text of the query over span milliseconds up to the evaluation time. predict_linear predicts the
// value ahead milliseconds later than that.
func (m *movedFragment) textOver(span, ahead int64) string {
	expr, err := parser.NewParser(allSyntax).ParseExpr(m.a.text)
	require.NoError(m.d.t, err)
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch e := n.(type) {
		case *parser.Call:
			if ahead != 0 && e.Func.Name == "predict_linear" {
				e.Args[1] = &parser.NumberLiteral{Val: m.scalars[0][0].F + float64(ahead)/1000}
			}
		case *parser.MatrixSelector:
			e.Range, e.RangeExpr = time.Duration(span)*time.Millisecond, nil
		case *parser.VectorSelector:
			e.Offset, e.OriginalOffset, e.OriginalOffsetExpr, e.Timestamp, e.StartOrEnd = 0, 0, nil, nil, 0
		}
		return nil
	})
	return expr.String()
}

// made calls the function on the samples in the window of step k. If all is set, all samples are made from buckets,
// because buckets can't answer the function. Otherwise samples are made only from buckets that window edges of the
// segment cut.
func (m *movedFragment) made(k int, l *segment, all bool) (out answer) {
	from, to := m.fragment.window(k)
	for _, s := range m.d.truths {
		if !s.selected(m.candidate) {
			continue
		}
		made := s.madeIn(from, to, l, all || l.Fit != resolution.FitRagged)
		if m.function == "" && endsStale(&made) {
			continue
		}
		window := samplePointsOf(&made)
		if len(window.Floats)+len(window.Histograms) == 0 {
			continue
		}
		row := promengine.Series{Metric: m.metric(s.labels)}
		if m.function == "" {
			if n, h := len(window.Floats)-1, len(window.Histograms)-1; h < 0 || n >= 0 && window.Floats[n].T > window.Histograms[h].T {
				row.Floats = window.Floats[n:]
			} else {
				row.Histograms = window.Histograms[h:]
			}
			out.rows = append(out.rows, row)
			continue
		}
		helper := promengine.EvalNodeHelper{Ts: m.eval.timeAt(k)}
		if m.fragment.usesStarts {
			helper.StartTimestamps = &window.Starts
		}
		vector, _ := promengine.FunctionCalls[m.function](m.scalars, promengine.Matrix{{Metric: s.labels, Floats: window.Floats, Histograms: window.Histograms}},
			m.args, &helper)
		for _, v := range vector {
			if v.H != nil {
				row.Histograms = append(row.Histograms, promengine.HPoint{H: v.H})
			} else {
				row.Floats = append(row.Floats, promengine.FPoint{F: v.F})
			}
		}
		if len(vector) > 0 {
			out.rows = append(out.rows, row)
		}
	}
	return out
}

// endsStale reports whether the newest of the samples is a stale marker.
func endsStale(s *chunk.Samples) bool {
	n := len(s.T) - 1
	return n >= 0 && value.IsStaleNaN(s.V[n]) && (len(s.H) == 0 || s.H[len(s.H)-1].T < s.T[n])
}

// bucketsIn returns the buckets that overlap (from, to].
func (s truth) bucketsIn(from, to int64, l *segment) (buckets rollup.Buckets) {
	width := l.Resolution.Width()
	var samples chunk.Samples
	samples.AppendAll(s.all)
	samples.Clip(bucketfn.FloorTo(from, 2*hour)+1, bucketfn.CeilTo(to, 2*hour)) // whole slots
	for i := range samples.H {                                                  // A store doesn't trust the hints.
		if h := &samples.H[i]; h.Int != nil && h.Int.CounterResetHint != histogram.GaugeType {
			h.Int = h.Int.Copy()
			h.Int.CounterResetHint = histogram.UnknownCounterReset
		} else if h.Float != nil && h.Float.CounterResetHint != histogram.GaugeType {
			h.Float = h.Float.Copy()
			h.Float.CounterResetHint = histogram.UnknownCounterReset
		}
	}
	var cuts []int64
	if l.Approximate { // Where raw samples are kept, buckets are cut at window edges.
		cuts = l.AppendCuts(nil, l.rawBoundary+2*hour, bucketfn.CeilTo(to, width))
	}
	metric := s.labels.Get(labels.MetricName)
	var rolled, cells rollup.Buckets
	var direct chunk.Samples
	for slot := bucketfn.FloorTo(from, 2*hour); slot < to; slot += 2 * hour {
		var of chunk.Samples
		of.AppendAll(&samples)
		of.Clip(slot+1, slot+2*hour)
		if isReadFromSamples(slot, l, cuts) {
			direct.AppendAll(&of)
		} else {
			rollup.AppendStored(&rolled, &of, metric, rollup.FiveMinutes.Width())
		}
	}
	if fine := rolled; l.Resolution == rollup.OneHour { // 1h buckets are made from 5m buckets.
		rolled = rollup.Buckets{}
		rollup.CoarsenStored(&rolled, &fine, metric, width)
	}
	direct.Clip(bucketfn.FloorTo(from, width)+1, bucketfn.CeilTo(to, width))
	rollup.AppendCells(&cells, &direct, cuts, width)
	cells.AppendSketches(&direct)
	rollup.Merge(&buckets, &rolled, &cells, rollup.AllColumns)
	return buckets
}

// isReadFromSamples reports whether the segment's buckets of the slot that starts at from are computed from samples
// instead of 5m buckets, because a cut is inside them or the slot's rollups have no commit record. The sum of
// histograms may depend on it.
func isReadFromSamples(from int64, l *segment, cuts []int64) bool {
	if from >= max(unmarkedFrom, l.rawBoundary) && from < unmarkedTo {
		return true
	}
	return slices.ContainsFunc(cuts, func(at int64) bool { return from < at && at <= from+2*hour })
}

// sharesOut reports whether the window (from, to] overlaps a bucket that is cut and can't be rebuilt exactly from the
// samples made from it. The difference is then divided among the pieces of the bucket.
func (s truth) sharesOut(from, to int64, l *segment, function string) bool {
	x := expand.Expander{UsesStarts: l.usesStarts}
	buckets := s.bucketsIn(from, to, l)
	for i, end := range buckets.End {
		if len(l.AppendCuts(nil, buckets.Start[i], end)) == 0 {
			continue
		}
		var made chunk.Samples
		var again rollup.Buckets
		x.Expand(&made, &buckets, i)
		rollup.AppendEvery(&again, &made, l.Resolution.Width())
		if from <= buckets.Start[i] && end <= to { // The whole bucket is used.
			switch function {
			case "stddev_over_time", "stdvar_over_time":
				if again.Moment[0] != buckets.Moment[i] {
					return true
				}
			case "deriv", "predict_linear":
				if again.Comoment[0] != buckets.Comoment[i] || again.TimeSquares[0] != buckets.TimeSquares[i] || again.TimeSum[0] != buckets.TimeSum[i] {
					return true
				}
			}
		}
		slack := 1e-13 * float64(buckets.Count[i]) * max(math.Abs(buckets.Min[i]), math.Abs(buckets.Max[i]))
		if math.IsInf(slack, 0) { // Rollups then share out any difference.
			slack = 0
		}
		same := func(a, b float64) bool { return near(a, b, 1e-15) || math.Abs(a-b) <= slack }
		if buckets.Flags[i]&rollup.HasHistograms != 0 {
			if again.Changes[0] != buckets.Changes[i] || again.Resets[0] != buckets.Resets[i] || !sameStarts(&buckets, i, &again, same) {
				return true
			}
			continue
		}
		if again.Len() != 1 || again.Changes[0] != buckets.Changes[i] || again.Resets[0] != buckets.Resets[i] ||
			!same(buckets.Correction[i], again.Correction[0]) || !same(buckets.Sum[i], again.Sum[0]) || !sameStarts(&buckets, i, &again, same) {
			return true
		}
	}
	return false
}

// sameStarts reports whether start timestamps show as many resets in bucket i of b as in the only bucket of again,
// which was rebuilt from bucket i.
func sameStarts(b *rollup.Buckets, i int, again *rollup.Buckets, same func(a, b float64) bool) bool {
	if b.FirstST == nil || again.FirstST == nil {
		return true
	}
	return b.StartResets[i] == again.StartResets[0] && same(b.StartCorrection[i], again.StartCorrection[0]) &&
		(b.Flags[i]^again.Flags[0])&rollup.StartsOverlap == 0
}

// madeIn returns the samples in (from, to]. Some or all of them are made from the segment's buckets.
func (s truth) madeIn(from, to int64, l *segment, all bool) (made chunk.Samples) {
	buckets := s.bucketsIn(from, to, l)
	x := expand.Expander{UsesStarts: l.usesStarts}
	for i, end := range buckets.End {
		if all || len(l.AppendCuts(nil, buckets.Start[i], end)) > 0 {
			if !l.Sketched || !expand.AppendSketch(&made, &buckets, i) {
				x.Expand(&made, &buckets, i)
			}
			continue
		}
		var own chunk.Samples
		own.AppendAll(s.all)
		own.Clip(buckets.Start[i]+1, end)
		made.AppendAll(&own)
	}
	made.Normalize()
	made.Clip(from+1, to)
	return made
}

// largest returns the largest absolute value among the samples from which the fragment's value at time t is computed.
func (m *movedFragment) largest(metric labels.Labels, t int64) float64 {
	step := m.stepAt(t)
	from, to := m.window(step)
	l := m.segmentAt(step)
	bound := m.d.truths.boundIn(m.candidate, metric, step, from, to)
	if l.Approximate { // Samples are made from whole buckets.
		width := l.Resolution.Width()
		bound = max(bound, m.d.truths.boundIn(m.candidate, metric, step, bucketfn.FloorTo(from, width), bucketfn.CeilTo(to, width)))
	}
	if m.function == "deriv" || m.function == "predict_linear" {
		// Samples made from buckets may be much closer together, which increases rounding errors.
		bound *= 1000
	}
	return bound
}

// differs describes how the fragment's values differ from the expected values, or returns "".
func (m *movedFragment) differs(got answer) string {
	asked, has := valuesOf(m.want.rows), valuesOf(got.rows)
	want, err := m.expected(asked)
	if err != got.err {
		return fmt.Sprintf("error %q, not %q", got.err, err)
	}
	leftOut := strings.Contains(strings.Join(got.notes, " "), "steps that need raw samples have no value")
	if leftOut {
		m.d.outcomes["left out"]++
	}
	hasInfo := shortfallsIn(got.notes) > 0
	strange := m.strange()
	if m.over != nil && len(strange) > 0 {
		m.d.outcomes["aggregated by halves"]++
		return ""
	}
	for at, w := range want {
		if v, ok := has[at]; ok && m.same(w, v, at.t) {
			continue
		}
		x, inAsked := asked[at]
		v, ok := has[at]
		if ok && v.h == nil && m.sharesOut(at) {
			m.d.outcomes["shares of pieces"]++ // TestExpiredAnswersAreWithinTheirInfos bounds their errors.
			continue
		}
		if ok && m.segmentAt(m.stepAt(at.t)).Sketched && m.isCounter(at.series) {
			// Hours made from samples for late sealing have sketches. The test named above also bounds these answers.
			m.d.outcomes["sketches of counters"]++
			continue
		}
		if !ok {
			v.metric = w.metric
		}
		if strange[at.series] && hasInfo && m.isMade(v, ok, at.t) {
			m.d.outcomes["values from made samples"]++
			continue
		}
		switch from, _ := m.fragment.window(m.stepAt(at.t)); {
		case !strange[at.series]:
		case leftOut && m.segmentAt(m.stepAt(at.t)).Approximate, !ok && leftOut, !ok && !inAsked && from >= m.d.store.Retention().PastRetention("", retention.DefaultClass, rollup.Raw), ok && inAsked && m.same(x, v, at.t):
			m.d.outcomes["values from samples"]++
			continue
		}
		if !ok {
			return fmt.Sprintf("no value %v of %s at %d", w.text(), w.metric, at.t)
		}
		return fmt.Sprintf("%s has %v at %d, not %v, and %v as asked", w.metric, v.text(), at.t, w.text(), x.text())
	}
	for at, v := range has {
		if _, ok := want[at]; ok {
			continue
		}
		if leftOut && strange[at.series] && m.segmentAt(m.stepAt(at.t)).Approximate {
			continue
		}
		if x, ok := asked[at]; !strange[at.series] ||
			!(ok && m.same(x, v, at.t)) && !(hasInfo && m.isMade(v, true, at.t)) {
			return fmt.Sprintf("%s has %v at %d", v.metric, v.text(), at.t)
		}
	}
	return ""
}

// sharesOut reports whether the value of a series depends on how differences are divided among the pieces of buckets.
func (m *movedFragment) sharesOut(at point) bool {
	k := m.stepAt(at.t)
	l := m.segmentAt(k)
	if !l.Approximate {
		return false
	}
	from, to := m.window(k)
	for _, s := range m.d.truths {
		if s.selected(m.candidate) && (m.over != nil || m.metric(s.labels).Hash() == at.series) && s.sharesOut(from, to, l, m.function) {
			return true
		}
	}
	return false
}

// isMade reports whether a value, which may be missing, belongs to a series whose samples are all made from buckets.
func (m *movedFragment) isMade(v valueAt, there bool, t int64) bool {
	k := m.stepAt(t)
	l := m.segmentAt(k)
	if l.Resolution == rollup.Raw {
		return false
	}
	for at, w := range valuesOf(m.made(k, l, true).rows) {
		if at.series != v.metric.Hash() {
			continue
		}
		if w.h != nil && v.h != nil { // The hint depends on samples before the window.
			w.h = w.h.Copy()
			w.h.CounterResetHint = v.h.CounterResetHint
		}
		return there && m.same(w, v, t)
	}
	return !there
}

func (v valueAt) text() string {
	if v.h != nil {
		return fmt.Sprintf("%v (%d)", v.h, v.h.CounterResetHint)
	}
	return fmt.Sprint(v.f)
}

// same reports whether two values are equal, within the tolerance if they may round.
func (m *movedFragment) same(want, got valueAt, t int64) bool {
	if want.h == nil || got.h == nil {
		return want.h == nil && got.h == nil && (near(want.f, got.f, 0) || within(want.f, got.f, m.largest(want.metric, t)))
	}
	return withinHistogram(withHintOf(want.h, got.h), got.h, func() float64 { return m.largest(want.metric, t) })
}

// isCounter reports whether the fragment's series with these labels may be a counter, which has no sketches.
func (m *movedFragment) isCounter(series uint64) bool {
	return slices.ContainsFunc(m.d.truths, func(s truth) bool {
		return s.selected(m.candidate) && m.metric(s.labels).Hash() == series && rollup.IsCounterName(s.labels.Get(labels.MetricName))
	})
}

// strange returns the fragment's series that buckets may not answer, by the hash of their labels.
func (m *movedFragment) strange() map[uint64]bool {
	all := map[uint64]bool{}
	ofLines := m.function == "deriv" || m.function == "predict_linear"
	ofMoments := ofLines || m.function == "stddev_over_time" || m.function == "stdvar_over_time"
	for _, s := range m.d.truths {
		odd := m.function == "predict_linear" && s.labels.Get(labels.MetricName) == "odd" && m.predictsInside()
		if s.selected(m.candidate) && (s.strange || odd || s.mayHint && (ofLines || m.keepsName()) || ofMoments && rollup.IsCounterName(s.labels.Get(labels.MetricName))) {
			all[m.metric(s.labels).Hash()] = true
		}
	}
	return all
}

// predictsInside reports whether evaluation times are inside their windows. Lines through infinite values then depend
// on the times of these.
func (m *movedFragment) predictsInside() bool {
	for k := range m.edges.n {
		if from, to := m.window(k); from+1 < m.eval.timeAt(k) && m.eval.timeAt(k) < to {
			return true
		}
	}
	return false
}
