package promql

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// samplePoints are the samples of one series as Prometheus' functions take them, stale markers left out.
type samplePoints struct {
	floats []promengine.FPoint
	hists  []promengine.HPoint
}

// samplePointsOf reads samples as the ordinary way of a query does.
func samplePointsOf(s *chunk.Samples) samplePoints {
	var p samplePoints
	it := iteratorFor(nil, math.MinInt64, func(into *chunk.Samples) error {
		into.AppendAll(s)
		return nil
	})
	for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
		if typ == chunkenc.ValFloat {
			if t, v := it.At(); !value.IsStaleNaN(v) {
				p.floats = append(p.floats, promengine.FPoint{T: t, F: v})
			}
			continue
		}
		if t, h := it.AtFloatHistogram(nil); !value.IsStaleNaN(h.Sum) {
			p.hists = append(p.hists, promengine.HPoint{T: t, H: h})
		}
	}
	return p
}

// in returns the points in (a, b].
func (p samplePoints) in(a, b int64) samplePoints {
	var out samplePoints
	for _, f := range p.floats {
		if a < f.T && f.T <= b {
			out.floats = append(out.floats, f)
		}
	}
	for _, h := range p.hists {
		if a < h.T && h.T <= b {
			out.hists = append(out.hists, promengine.HPoint{T: h.T, H: h.H.Copy()})
		}
	}
	return out
}

// largest returns the greatest finite absolute value among the points, or 0.
func (p samplePoints) largest() float64 {
	most := 0.0
	take := func(v float64) {
		if v = math.Abs(v); v > most && !math.IsInf(v, 0) {
			most = v
		}
	}
	for _, f := range p.floats {
		take(f.F)
	}
	for _, h := range p.hists {
		take(h.H.Count)
		take(h.H.Sum)
	}
	return most
}

// onSamples is the reference: Prometheus' own function over the samples in (a, b], and whether it has a value.
func onSamples(name string, args parser.Expressions, s *chunk.Samples, window samplePoints, a, b int64) (promengine.Sample, bool) {
	if name == "" {
		return newestSample(s, a, b)
	}
	if len(window.floats)+len(window.hists) == 0 {
		return promengine.Sample{}, false
	}
	out, _ := promengine.FunctionCalls[name](nil, promengine.Matrix{{Floats: window.floats, Histograms: window.hists}},
		args, &promengine.EvalNodeHelper{Ts: b})
	if len(out) == 0 {
		return promengine.Sample{}, false
	}
	return out[0], true
}

// argsOf returns the arguments of a function over a range of so many milliseconds.
func argsOf(t testing.TB, name string, span int64) parser.Expressions {
	if name == "" {
		return nil
	}
	options := parser.Options{EnableExperimentalFunctions: true}
	expr, err := parser.NewParser(options).ParseExpr(fmt.Sprintf("%s(x[%dms])", name, span))
	require.NoError(t, err)
	return expr.(*parser.Call).Args
}

// newestSample is what an instant selector at b with lookback b-a takes.
func newestSample(s *chunk.Samples, a, b int64) (promengine.Sample, bool) {
	newest, at, stale := promengine.Sample{}, a, true
	for i, t := range s.T {
		if at < t && t <= b {
			newest, at, stale = promengine.Sample{F: s.V[i]}, t, value.IsStaleNaN(s.V[i])
		}
	}
	for i := range s.H {
		if h := &s.H[i]; at < h.T && h.T <= b {
			at, stale = h.T, value.IsStaleNaN(sumOf(h))
			newest = promengine.Sample{H: asFloatHistogram(h)}
		}
	}
	return newest, !stale
}

func asFloatHistogram(h *chunk.Histogram) *histogram.FloatHistogram {
	if h.Int != nil {
		return h.Int.ToFloat(nil)
	}
	return h.Float
}

// bitExact are the functions that don't round.
var bitExact = map[string]bool{
	"": true, "last_over_time": true, "first_over_time": true, "min_over_time": true, "max_over_time": true,
	"count_over_time": true, "resets": true, "changes": true, "present_over_time": true,
	"ts_of_first_over_time": true, "ts_of_last_over_time": true,
}

// requireSameSample fails unless got is want, to the last bit or within 1e-12 of the largest value that entered.
func requireSameSample(t testing.TB, name string, want, got promengine.Sample, largest float64, context string) {
	if bitExact[name] && want.H == nil && got.H == nil {
		require.Equal(t, math.Float64bits(want.F), math.Float64bits(got.F), "%s: %v, not %v", context, got.F, want.F)
		return
	}
	requireCloseSample(t, want, got, largest, context)
}

func requireCloseSample(t testing.TB, want, got promengine.Sample, largest float64, context string) {
	require.Equal(t, want.H != nil, got.H != nil, "%s: a histogram", context)
	if want.H != nil {
		requireSameHistogram(t, want.H, got.H, largest, context)
		return
	}
	requireClose(t, want.F, got.F, largest, context)
}

func scaleSample(s *promengine.Sample, by float64) {
	if s.F *= by; s.H != nil {
		s.H.Mul(by)
	}
}

func requireClose(t testing.TB, want, got, largest float64, context string) {
	t.Helper()
	if math.IsNaN(want) || math.IsInf(want, 0) {
		require.True(t, math.IsNaN(want) && math.IsNaN(got) || want == got, "%s: %v, not %v", context, got, want)
		return
	}
	require.LessOrEqual(t, math.Abs(want-got), 1e-12*max(largest, math.Abs(want)), "%s: %v, not %v", context, got, want)
}

func requireSameHistogram(t testing.TB, want, got *histogram.FloatHistogram, largest float64, context string) {
	t.Helper()
	require.Equal(t, want.Schema, got.Schema, context)
	require.Equal(t, want.ZeroThreshold, got.ZeroThreshold, context)
	require.Equal(t, want.CustomValues, got.CustomValues, context)
	requireClose(t, want.Count, got.Count, largest, context+": count")
	requireClose(t, want.Sum, got.Sum, largest, context+": sum")
	a, b := bucketsOf(want), bucketsOf(got)
	for at := range a {
		requireClose(t, a[at], b[at], largest, context+": bucket "+at)
	}
	for at := range b {
		requireClose(t, a[at], b[at], largest, context+": bucket "+at)
	}
}

func bucketsOf(h *histogram.FloatHistogram) map[string]float64 {
	all := map[string]float64{}
	for it := h.AllBucketIterator(); it.Next(); {
		bucket := it.At()
		all[fmt.Sprintf("(%g,%g]", bucket.Lower, bucket.Upper)] += bucket.Count
	}
	return all
}

// answerable says whether evaluate has to answer a window with these buckets, each of which may be mixed with
// others only where the function says what comes of it.
func answerable(name string, b *rollup.Buckets, a, to int64) bool {
	floats, hists := 0, 0
	for i := range b.End {
		if b.End[i] <= a || b.End[i] > to {
			continue
		}
		switch {
		case b.Flags[i]&rollup.NotSimple != 0:
			return false
		case b.Flags[i]&rollup.HasHistograms != 0:
			hists++
		case b.Count[i] > 0:
			floats++
		}
	}
	switch name {
	case "", "last_over_time", "first_over_time", "count_over_time", "present_over_time", "ts_of_first_over_time", "ts_of_last_over_time":
		return true
	case "resets", "changes", "min_over_time", "max_over_time":
		return floats == 0 || hists == 0
	default:
		return hists == 0
	}
}

// requireExact evaluates every function over b and compares it with Prometheus' on the samples of which b are
// the buckets. It returns how many values it compared.
func requireExact(t testing.TB, funcs []*bucketFunc, s *chunk.Samples, b *rollup.Buckets, w windows, context string) int {
	p := samplePointsOf(s)
	compared := 0
	var out answers
	for _, f := range funcs {
		out.Reset()
		f.evaluate(pruned(b, columnsOf(f.fn.name)), w, &out)
		compared += requireAnswers(t, f.fn.name, s, p, b, w, &out, context)
	}
	return compared
}

func requireAnswers(t testing.TB, name string, s *chunk.Samples, p samplePoints, b *rollup.Buckets, w windows,
	out *answers, context string,
) int {
	t.Helper()
	at, left, args := 0, 0, argsOf(t, name, w.Span)
	for k := range w.Steps {
		from, to := w.window(k)
		c := fmt.Sprintf("%s: %q over (%d, %d]", context, name, from, to)
		if left < len(out.Unanswered) && out.Unanswered[left] == int32(k) {
			left++
			require.False(t, answerable(name, b, from, to), "%s: left to the samples", c)
			continue
		}
		window := p.in(from, to)
		largest := window.largest()
		want, ok := onSamples(name, args, s, window, from, to)
		has := at < len(out.Step) && out.Step[at] == int32(k)
		require.Equal(t, ok, has, "%s: has a value", c)
		if !has {
			continue
		}
		got := promengine.Sample{F: out.Value[at]}
		if len(out.Histogram) > 0 {
			got.H = out.Histogram[at]
		}
		if functionOf(name).grows && w.scale() != 1 {
			require.Less(t, w.scale(), 1.0, c)
			scaleSample(&want, w.scale())
			requireCloseSample(t, want, got, largest, c)
		} else {
			requireSameSample(t, name, want, got, largest, c)
		}
		at++
	}
	require.Len(t, out.Step, at, context)
	require.Len(t, out.Unanswered, left, context)
	return at
}

// pruned returns b with only the columns asked for, so that a test fails if a function looks at another.
func pruned(b *rollup.Buckets, want rollup.Columns) *rollup.Buckets {
	out := &rollup.Buckets{Start: b.Start, End: b.End, Flags: b.Flags}
	if want&rollup.ColumnCount != 0 {
		out.Count = b.Count
	}
	if want&rollup.ColumnFirst != 0 {
		out.First, out.FirstT = b.First, b.FirstT
	}
	if want&rollup.ColumnLast != 0 {
		out.Last, out.LastT = b.Last, b.LastT
	}
	if want&rollup.ColumnMin != 0 {
		out.Min = b.Min
	}
	if want&rollup.ColumnMax != 0 {
		out.Max = b.Max
	}
	if want&rollup.ColumnSum != 0 {
		out.Sum, out.SumLow = b.Sum, b.SumLow
	}
	if want&rollup.ColumnCorrection != 0 {
		out.Correction = b.Correction
	}
	if want&rollup.ColumnResets != 0 {
		out.Resets = b.Resets
	}
	if want&rollup.ColumnChanges != 0 {
		out.Changes = b.Changes
	}
	for i, h := range b.Histograms {
		if h == nil {
			continue
		}
		kept := &rollup.Histograms{}
		if want&rollup.ColumnFirst != 0 {
			kept.First = h.First
		}
		if want&rollup.ColumnLast != 0 {
			kept.Last = h.Last
		}
		if want&rollup.ColumnCorrection != 0 {
			kept.Correction = h.Correction
		}
		if out.Histograms == nil {
			out.Histograms = make([]*rollup.Histograms, len(b.End))
		}
		out.Histograms[i] = kept
	}
	return out
}

// bucketFunctions returns those that buckets answer.
func bucketFunctions() (all []*bucketFunc) {
	for _, f := range functions {
		if b := newBucketFunc(f.name); b != nil {
			all = append(all, b)
		}
	}
	return all
}

// Every function over generated series, in buckets of several widths with cells among them, and windows of all
// sorts: one after the other, overlapping, with space between.
func TestOverBucketsIsOverSamples(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	compared, funcs := 0, bucketFunctions() // each is used for many series
	for i := range 200 {
		kind := i % len(seriesKinds)
		s := generateSeries(r, seriesKinds[kind], 120+r.IntN(200))
		w := generateWindows(r)
		b := &rollup.Buckets{}
		switch width := int64(60_000) << r.IntN(3); r.IntN(3) {
		case 0:
			rollup.AppendCells(b, s, edgesOf(w), width)
		case 1: // windows on the edges of buckets
			w = w.onEdges(width)
			rollup.AppendEvery(b, s, width)
		case 2: // wide buckets of narrow ones
			w = w.onEdges(4 * width)
			var fine rollup.Buckets
			rollup.AppendEvery(&fine, s, width)
			rollup.Coarsen(b, &fine, 4*width)
		}
		compared += requireExact(t, funcs, s, b, w, fmt.Sprintf("seed %d, series %d (%v), windows %+v", seed, i, seriesKinds[kind], w))
	}
	require.Greater(t, compared, 10_000)
}

// onEdges returns windows like w whose edges are multiples of width.
func (w windows) onEdges(width int64) windows {
	w.First, w.Snap = floorTo(w.First, width), 0
	w.Step, w.Span = max(floorTo(w.Step, width), width), max(floorTo(w.Span, width), width)
	return w
}

// edgesOf returns the edges of windows, ascending.
func edgesOf(w windows) []int64 {
	at := map[int64]bool{}
	for k := range w.Steps {
		a, b := w.window(k)
		at[a], at[b] = true, true
	}
	return sortedKeys(at)
}

func TestOverNothing(t *testing.T) {
	for _, f := range bucketFunctions() {
		var out answers
		f.evaluate(&rollup.Buckets{}, windows{Step: 1, Steps: 3, Span: 1}, &out)
		require.Empty(t, out.Step)
		require.Empty(t, out.Unanswered)
	}
	require.Nil(t, newBucketFunc("deriv"))
	require.Nil(t, newBucketFunc("abs"))
	require.Zero(t, columnsOf("deriv"))
}

func TestSelectorEndsWithStaleMarker(t *testing.T) {
	var s chunk.Samples
	s.AppendFloat(10_000, 0, 1)
	s.AppendFloat(70_000, 0, math.Float64frombits(value.StaleNaN))
	s.AppendFloat(250_000, 0, 2)
	var b rollup.Buckets
	rollup.AppendEvery(&b, &s, 60_000)
	var out answers
	newBucketFunc("").evaluate(&b, windows{First: 60_000, Step: 60_000, Steps: 6, Span: 300_000}, &out)
	require.Equal(t, []int32{0, 4, 5}, out.Step)
	require.Equal(t, []float64{1, 2, 2}, out.Value)

	out.Reset()
	newBucketFunc("last_over_time").evaluate(&b, windows{First: 60_000, Step: 60_000, Steps: 6, Span: 300_000}, &out)
	require.Equal(t, []int32{0, 1, 2, 3, 4, 5}, out.Step)
	require.Equal(t, []float64{1, 1, 1, 1, 2, 2}, out.Value)
}

// A lookback shorter than a bucket: the newest sample's own time tells.
func TestSelectorLooksBackLessThanABucket(t *testing.T) {
	var s chunk.Samples
	s.AppendFloat(3_200_000, 0, 1)
	s.AppendFloat(7_000_000, 0, 2)
	var b rollup.Buckets
	rollup.AppendEvery(&b, &s, 3_600_000)
	var out answers
	newBucketFunc("").evaluate(&b, windows{First: 3_600_000, Step: 3_600_000, Steps: 2, Span: 300_000}, &out)
	require.Equal(t, []int32{1}, out.Step)
	require.Equal(t, []float64{2}, out.Value)
}

// Of what the sums of single buckets lose in rounding, nothing is lost when they are added up.
func TestSumsKeepTheirLowParts(t *testing.T) {
	b := rollup.Buckets{
		Start: []int64{0, 10, 20, 30}, End: []int64{10, 20, 30, 40}, Flags: make([]rollup.Flags, 4), Count: []uint32{1, 1, 1, 1},
		Sum: []float64{1e16, 1, -1e16, 5}, SumLow: []float64{3, 0.5, 0, 0},
	}
	for name, want := range map[string]float64{"sum_over_time": 9.5, "avg_over_time": 9.5 / 4} {
		for _, steps := range []int{1, 4} { // the last of four windows comes in two parts
			var out answers
			newBucketFunc(name).evaluate(&b, windows{First: 40 - 10*int64(steps-1), Step: 10, Steps: steps, Span: 40}, &out)
			require.Equal(t, want, out.Value[steps-1], name)
		}
	}
}

// Of -0 and 0, the first is the least and the greatest.
func TestExtremesOfZeros(t *testing.T) {
	minus := math.Copysign(0, -1)
	for _, values := range [][]float64{{0, minus}, {minus, 0}} {
		b := rollup.Buckets{
			Start: []int64{0, 10}, End: []int64{10, 20}, Flags: make([]rollup.Flags, 2), Count: []uint32{1, 1}, Min: values, Max: values,
		}
		for _, name := range []string{"min_over_time", "max_over_time"} {
			var out answers
			newBucketFunc(name).evaluate(&b, windows{First: 20, Step: 10, Steps: 1, Span: 20}, &out)
			require.Equal(t, math.Float64bits(values[0]), math.Float64bits(out.Value[0]), name)
		}
	}
}

// A series that begins in the middle of a window isn't extrapolated below zero, and what is asked for a shorter
// window than a bucket isn't blown up.
func TestWidenedWindows(t *testing.T) {
	var s chunk.Samples
	for at := int64(15_000); at <= 3_600_000; at += 15_000 {
		s.AppendFloat(at, 0, float64(at/1000))
	}
	var b rollup.Buckets
	rollup.AppendEvery(&b, &s, 3_600_000)
	w := windows{First: 3_900_000, Step: 300_000, Steps: 2, Snap: 3_600_000, Span: 3_600_000, Scale: 300.0 / 3600}
	for name, want := range map[string]float64{"rate": 1, "increase": 300, "count_over_time": 20, "avg_over_time": 1807.5} {
		var out answers
		newBucketFunc(name).evaluate(&b, w, &out)
		require.Equal(t, []int32{0, 1}, out.Step, name)
		require.InDelta(t, want, out.Value[0], 0.1, name)
		require.Equal(t, out.Value[0], out.Value[1], name)
	}
}
