package rollup

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup/layouts"
)

// samplesWithin returns the samples of a bucket as Prometheus' evaluator passes them to a range function: without stale
// markers.
func samplesWithin(s *chunk.Samples, start, end int64) promengine.Series {
	var series promengine.Series
	for i, t := range s.T {
		if start < t && t <= end && !value.IsStaleNaN(s.V[i]) {
			series.Floats = append(series.Floats, promengine.FPoint{T: t, F: s.V[i]})
		}
	}
	for _, h := range s.H {
		if start < h.T && h.T <= end && !isStale(h) {
			series.Histograms = append(series.Histograms, promengine.HPoint{T: h.T, H: asFloat(h)})
		}
	}
	return series
}

// callFunction evaluates one of Prometheus' functions over the range of a bucket.
func callFunction(t testing.TB, name string, series promengine.Series, start, end int64) promengine.Vector {
	selector := &parser.MatrixSelector{
		VectorSelector: &parser.VectorSelector{Name: "x"}, Range: time.Duration(end-start) * time.Millisecond,
	}
	out, _ := promengine.FunctionCalls[name](nil, promengine.Matrix{series}, parser.Expressions{selector},
		&promengine.EvalNodeHelper{Ts: end})
	return out
}

// startsWithin returns the start timestamps of the samples that samplesWithin returns.
func startsWithin(s *chunk.Samples, start, end int64) *promengine.StartTimestamps {
	var starts promengine.StartTimestamps
	for i, t := range s.T {
		if start < t && t <= end && !value.IsStaleNaN(s.V[i]) {
			st := int64(0)
			if len(s.ST) > 0 {
				st = s.ST[i]
			}
			starts.Floats = append(starts.Floats, st)
		}
	}
	for _, h := range s.H {
		if start < h.T && h.T <= end && !isStale(h) {
			starts.Histograms = append(starts.Histograms, h.ST)
		}
	}
	return &starts
}

// requireStartAnswers requires that bucket i, which must be simple, has the results of Prometheus' functions for its
// samples with start timestamps.
func requireStartAnswers(t testing.TB, b *Buckets, i int, s *chunk.Samples, greatest float64, name string) {
	t.Helper()
	start, end := b.Start[i], b.End[i]
	series := samplesWithin(s, start, end)
	helper := promengine.EvalNodeHelper{Ts: end, StartTimestamps: startsWithin(s, start, end)}
	selector := parser.Expressions{&parser.MatrixSelector{
		VectorSelector: &parser.VectorSelector{Name: "x"}, Range: time.Duration(end-start) * time.Millisecond,
	}}
	one := func(function string) (promengine.Vector, int) {
		helper.Out = nil
		out, notes := promengine.FunctionCalls[function](nil, promengine.Matrix{series}, selector, &helper)
		return out, len(notes)
	}
	firstST, resets, correction := int64(0), b.Resets[i], b.Correction[i]
	if b.FirstST != nil {
		firstST, resets, correction = b.FirstST[i], resets+b.StartResets[i], correction+b.StartCorrection[i]
	}
	out, _ := one("resets")
	require.Equal(t, out[0].F, float64(resets), name)
	if b.Flags[i]&(HasHistograms|Large) != 0 {
		return
	}
	out, notes := one("increase")
	require.Equal(t, notes > 0, b.Flags[i]&StartsOverlap != 0, name)
	grew, isInside := b.Last[i]-b.First[i]+correction, firstST > start && firstST < b.FirstT[i]
	require.Equal(t, len(out) > 0, isInside || b.Count[i] > 1, name)
	switch {
	case isInside: // The zero at the start is the first sample.
		grew += b.First[i]
		sampled, toEnd := float64(b.LastT[i]-firstST)/1000, float64(end-b.LastT[i])/1000
		between := 0.0
		if b.Count[i] > 1 {
			between = float64(b.LastT[i]-b.FirstT[i]) / 1000 / float64(b.Count[i]-1)
		}
		if toEnd >= between*1.1 {
			toEnd = between / 2
		}
		requireNear(t, out[0].F, grew*((sampled+toEnd)/sampled), greatest, name)
	case b.Count[i] > 1:
		requireNear(t, out[0].F, grew*increaseFactor(b, i, grew, b.First[i]), greatest, name)
	}
}

// requireNear requires that got equals want up to 1e-12 of the larger of want and the largest value in the computation.
func requireNear(t testing.TB, want, got, greatest float64, name string) {
	t.Helper()
	switch {
	case want != want:
		require.True(t, got != got, "%s: want NaN, not %v", name, got)
	case math.IsInf(want, 0):
		require.Equal(t, want, got, name)
	default:
		require.LessOrEqual(t, math.Abs(want-got), 1e-12*max(greatest, math.Abs(want)),
			"%s: want %v, not %v", name, want, got)
	}
}

// Smaller values, and squares of smaller values, have few digits, because they are denormal.
const (
	smallestExact  = 0x1p-1022
	smallestSquare = 0x1p-480
)

// increaseFactor returns the factor by which Prometheus' increase extrapolates the growth of a bucket with at least two
// samples to the whole bucket.
func increaseFactor(b *Buckets, i int, grew, first float64) (factor float64) {
	sampled := float64(b.LastT[i]-b.FirstT[i]) / 1000
	between := sampled / float64(b.Count[i]-1)
	toStart, toEnd := float64(b.FirstT[i]-b.Start[i])/1000, float64(b.End[i]-b.LastT[i])/1000
	if toStart >= between*1.1 {
		toStart = between / 2
	}
	if grew > 0 && first >= 0 {
		toStart = min(toStart, sampled*(first/grew))
	}
	if toEnd >= between*1.1 {
		toEnd = between / 2
	}
	return (sampled + toStart + toEnd) / sampled
}

// requireAnswers requires that bucket i has the results of Prometheus' functions for its samples.
func requireAnswers(t testing.TB, b *Buckets, i int, s *chunk.Samples, name string) {
	t.Helper()
	start, end := b.Start[i], b.End[i]
	series := samplesWithin(s, start, end)
	simple := b.Flags[i]&NotSimple == 0
	if simple {
		require.Equal(t, len(series.Histograms) > 0, b.Flags[i]&HasHistograms != 0, name)
	} else {
		series.Histograms = nil
	}
	require.Equal(t, len(series.Floats)+len(series.Histograms), int(b.Count[i]), name)
	if b.Count[i] == 0 {
		return
	}
	one := func(function string) float64 {
		out := callFunction(t, function, series, start, end)
		require.Len(t, out, 1, function)
		return out[0].F
	}
	greatest := smallestExact
	for _, f := range series.Floats {
		if f.F == f.F && !math.IsInf(f.F, 0) {
			greatest = max(greatest, math.Abs(f.F))
		}
	}
	if simple {
		requireStartAnswers(t, b, i, s, greatest, name)
	}
	require.Equal(t, one("resets"), float64(b.Resets[i]), name)
	require.Equal(t, one("changes"), float64(b.Changes[i]), name)
	if len(series.Histograms) > 0 && len(series.Floats) > 0 {
		require.NotZero(t, b.Flags[i]&hasFloatsToo, name)
		require.Equal(t, series.Histograms[0].H.String(), b.Histograms[i].First.String(), name)
		require.Equal(t, series.Histograms[len(series.Histograms)-1].H.String(), b.Histograms[i].Last.String(), name)
		require.Equal(t, math.Float64bits(one("min_over_time")), math.Float64bits(b.Min[i]), name)
		require.Equal(t, math.Float64bits(one("max_over_time")), math.Float64bits(b.Max[i]), name)
		return
	}
	if len(series.Histograms) > 0 {
		require.Equal(t, series.Histograms[0].T, b.FirstT[i], name)
		require.Equal(t, series.Histograms[len(series.Histograms)-1].T, b.LastT[i], name)
		requireHistogramAnswers(t, b, i, series, name)
		return
	}
	require.Equal(t, series.Floats[0].T, b.FirstT[i], name)
	require.Equal(t, series.Floats[len(series.Floats)-1].T, b.LastT[i], name)
	same := func(function string, got float64) {
		t.Helper()
		require.Equal(t, math.Float64bits(one(function)), math.Float64bits(got), "%s: %s", name, function)
	}
	same("first_over_time", b.First[i])
	same("last_over_time", b.Last[i])
	same("min_over_time", b.Min[i])
	same("max_over_time", b.Max[i])
	if !simple {
		return
	}
	if b.Flags[i]&Large != 0 {
		if b.Flags[i]&(LargePositive|LargeNegative) != LargePositive|LargeNegative {
			requireNear(t, one("sum_over_time"), b.Sum[i]+b.SumLow[i], greatest, name)
		}
		return
	}
	requireNear(t, one("sum_over_time"), b.Sum[i]+b.SumLow[i], greatest, name)
	requireNear(t, one("avg_over_time"), b.Sum[i]/float64(b.Count[i])+b.SumLow[i]/float64(b.Count[i]), greatest, name)
	if math.IsInf(b.Sum[i], 0) || b.Sum[i] != b.Sum[i] {
		require.True(t, math.IsNaN(one("stdvar_over_time")), name)
		require.Zero(t, b.Moment[i], name)
	} else if b.Moment[i] >= 0 {
		variance := b.Moment[i] / float64(b.Count[i])
		most := max(greatest, smallestSquare)
		requireNear(t, one("stdvar_over_time"), variance, most*most, name)
		requireNear(t, one("stddev_over_time"), math.Sqrt(variance), most, name)
		require.True(t, variance == 0 || b.Min[i] < b.Max[i], name)
	} else {
		variance := one("stdvar_over_time")
		require.True(t, b.Min[i] < b.Max[i] && (variance > 1e295 || variance != variance),
			"%s: %v isn't known", name, variance)
	}
	if b.Count[i] > 1 && b.TimeSquares[i] >= 0 {
		slope, apart := b.Comoment[i]*1000/b.TimeMoment(i), math.Sqrt(b.TimeMoment(i)/float64(b.Count[i]))/1000
		if !isFinite(b.Sum[i]) {
			slope = math.NaN()
		}
		requireNear(t, one("deriv"), slope, greatest/apart, name)
	}
	if b.Count[i] > 1 {
		grew := b.Last[i] - b.First[i] + b.Correction[i]
		requireNear(t, one("increase"), grew*increaseFactor(b, i, grew, b.First[i]), greatest, name)
	}
}

func requireHistogramAnswers(t testing.TB, b *Buckets, i int, series promengine.Series, name string) {
	t.Helper()
	h := b.Histograms[i]
	require.NotNil(t, h, name)
	for function, got := range map[string]*histogram.FloatHistogram{
		"first_over_time": h.First, "last_over_time": h.Last,
	} {
		require.True(
			t, callFunction(t, function, series, b.Start[i], b.End[i])[0].H.Equals(got), "%s: %s", name, function,
		)
	}
	sum := callFunction(t, "sum_over_time", series, b.Start[i], b.End[i])
	require.Equal(t, len(sum) > 0, h.Sum != nil, name)
	if h.Sum != nil {
		require.Equal(t, sum[0].H.Schema, h.Sum.Schema, name)
		require.Equal(t, sum[0].H.CustomValues, h.Sum.CustomValues, name)
		requireNear(t, sum[0].H.Count, h.Sum.Count, h.Sum.Count, name)
		requireNear(t, sum[0].H.Sum, h.Sum.Sum, h.Last.Sum, name)
	} // Their increase is compared in tests of functions over buckets, which reconcile layouts.
}

// TestAnswersArePrometheus compares buckets that are built from samples or from narrower buckets with the results of
// Prometheus' functions.
func TestAnswersArePrometheus(t *testing.T) {
	simple, buckets := 0, 0
	for _, data := range series(t, 400) {
		s, name := data.samples, data.name
		for _, width := range []int64{60_000, fiveMinutes} {
			var fine, coarse, built Buckets
			AppendEvery(&fine, s, width)
			Coarsen(&coarse, &fine, 12*width)
			AppendEvery(&built, s, 12*width)
			requireAlike(t, &built, &coarse, name)
			for _, b := range []*Buckets{&fine, &coarse, &built} {
				for i := range b.End {
					requireAnswers(t, b, i, s, name)
					buckets++
					if b.Flags[i]&NotSimple == 0 {
						simple++
					}
				}
			}
		}
	}
	require.Greater(t, simple, buckets/3)
}

// TestCorrectionsOfMixedKindsAreNotReconciled requires that a bucket with both kinds of histograms doesn't note that a
// correction was reconciled, because such a bucket has no correction. The bucket is built from samples, or coarsened
// from buckets.
func TestCorrectionsOfMixedKindsAreNotReconciled(t *testing.T) {
	var s chunk.Samples
	for i, h := range []*histogram.Histogram{
		histogramOf([]int64{9, 1}, histogram.CustomBucketsSchema, 0, 0),
		histogramOf([]int64{8, 1}, histogram.CustomBucketsSchema, 0, 0),
		histogramOf([]int64{7, 1}, 3, 0.001, 0),
		histogramOf([]int64{6, 1, 0}, histogram.CustomBucketsSchema, 0, 0),
		histogramOf([]int64{5, 1, 0}, histogram.CustomBucketsSchema, 0, 0),
	} {
		s.AppendHistogram(chunk.Histogram{T: []int64{1000, 2000, 3000, 61_000, 62_000}[i], Float: h.ToFloat(nil)})
	}
	var fine, coarse, built Buckets
	AppendEvery(&fine, &s, 60_000)
	Coarsen(&coarse, &fine, fiveMinutes)
	AppendEvery(&built, &s, fiveMinutes)
	require.Equal(t, ReconciledSum, built.Histograms[0].Reconciled)
	require.Zero(t, built.Histograms[0].Layouts&(layouts.CorrectionsAdded|layouts.StartCorrectionsAdded))
	requireAlike(t, &built, &coarse, "")
}

// requireAlike requires that buckets coarsened from buckets equal buckets built from samples, up to the rounding of
// sums.
func requireAlike(t testing.TB, built, coarse *Buckets, name string) {
	t.Helper()
	exact := func(b *Buckets) *Buckets {
		c := *b
		c.Sum, c.SumLow, c.Moment, c.Comoment, c.Correction, c.StartCorrection = nil, nil, nil, nil, nil, nil
		c.Histograms = nil
		return &c
	}
	require.Equal(t, built.End, coarse.End, name)
	for i := range built.End {
		require.Equal(t, bucketText(exact(built), i), bucketText(exact(coarse), i), name)
		if built.Flags[i]&(NotSimple|Large) != 0 {
			continue
		}
		greatest := max(math.Abs(built.Min[i]), math.Abs(built.Max[i]), smallestExact)
		if greatest != greatest || math.IsInf(greatest, 0) {
			greatest = 0
		}
		requireNear(t, built.Sum[i]+built.SumLow[i], coarse.Sum[i]+coarse.SumLow[i], greatest, name)
		if n := float64(built.Count[i]); built.Moment[i] >= 0 && n > 0 {
			requireNear(
				t, math.Sqrt(built.Moment[i]/n), math.Sqrt(coarse.Moment[i]/n), max(greatest, smallestSquare), name,
			)
		} else {
			require.Equal(t, built.Moment[i], coarse.Moment[i], name)
		}
		requireNear(t, built.Correction[i], coarse.Correction[i], greatest, name)
		if built.FirstST != nil {
			requireNear(t, built.StartCorrection[i], coarse.StartCorrection[i], greatest, name)
		}
		if moment := built.TimeMoment(i); moment > 0 {
			requireNear(
				t, built.Comoment[i], coarse.Comoment[i], greatest*math.Sqrt(moment*float64(built.Count[i])), name,
			)
		} else {
			require.Equal(t, built.Comoment[i], coarse.Comoment[i], name)
		}
		if built.Flags[i]&HasHistograms == 0 {
			continue
		}
		require.True(t, built.Histograms[i].First.Equals(coarse.Histograms[i].First), name)
		require.True(t, built.Histograms[i].Last.Equals(coarse.Histograms[i].Last), name)
		for _, pair := range [][2]*histogram.FloatHistogram{
			{built.Histograms[i].Correction, coarse.Histograms[i].Correction},
			{built.Histograms[i].StartCorrection, coarse.Histograms[i].StartCorrection},
		} {
			want, got := pair[0], pair[1]
			require.Equal(t, want == nil, got == nil, name)
			if want != nil {
				require.Equal(t, want.PositiveBuckets, got.PositiveBuckets, name)
				require.Equal(t, want.Count, got.Count, name)
				requireNear(t, want.Sum, got.Sum, math.Abs(want.Sum), name)
			}
		}
		rest := func(h *Histograms) Histograms {
			return Histograms{
				Count: h.Count, Coarser: h.Coarser, FirstReset: h.FirstReset, FirstStartReset: h.FirstStartReset,
				MixedKinds: h.MixedKinds, HasGauges: h.HasGauges, Second: h.Second,
				Reconciled: h.Reconciled, Layouts: h.Layouts,
			}
		}
		require.Equal(t, rest(built.Histograms[i]), rest(coarse.Histograms[i]), name)
	}
}
