package bucketfn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/bucketfn/bucketfntest"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// generateWindows generates windows of all kinds over the samples of bucketfntest.GenerateSeries.
func generateWindows(r *rand.Rand) bucketfn.Windows {
	step := 1000 * (1 + r.Int64N(900))
	span := []int64{step, step * (1 + r.Int64N(20)), 1000 * (1 + r.Int64N(2000)), 1 + r.Int64N(3_000_000)}[r.IntN(4)]
	w := bucketfn.Windows{First: r.Int64N(4_000_000) - 3_000_000, Step: step, Steps: 1 + r.IntN(60), Span: span}
	if r.IntN(4) == 0 {
		w.Snap = 1000 * (1 + r.Int64N(600))
	}
	return w
}

// TestOverBucketsIsOverSamples checks that every function has the same values over buckets as over samples, for
// generated series: in buckets of multiple widths mixed with narrower ones, and for consecutive windows, overlapping
// windows, and windows with gaps between them.
func TestOverBucketsIsOverSamples(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	compared, funcs := 0, bucketfntest.Evaluators() // each is reused for many series
	for i := range 240 {
		kind := i % len(bucketfntest.SeriesKinds)
		s := bucketfntest.GenerateSeries(r, bucketfntest.SeriesKinds[kind], 120+r.IntN(200))
		w := generateWindows(r)
		b := &rollup.Buckets{}
		switch width := int64(60_000) << r.IntN(3); r.IntN(3) {
		case 0:
			rollup.AppendCells(b, s, edgesOf(w), width)
		case 1: // windows that start and end at edges of buckets
			w = onEdges(w, width)
			rollup.AppendEvery(b, s, width)
		case 2: // wide buckets made from narrow ones
			w = onEdges(w, 4*width)
			var fine rollup.Buckets
			rollup.AppendEvery(&fine, s, width)
			rollup.Coarsen(b, &fine, 4*width)
		}
		compared += bucketfntest.RequireExact(t, funcs, s, b, w,
			fmt.Sprintf("seed %d, series %d (%v), windows %+v", seed, i, bucketfntest.SeriesKinds[kind], w))
	}
	require.Greater(t, compared, 10_000)
}

// onEdges returns windows like w whose edges are multiples of width.
func onEdges(w bucketfn.Windows, width int64) bucketfn.Windows {
	w.First, w.Snap = bucketfn.FloorTo(w.First, width), 0
	w.Step, w.Span = max(bucketfn.FloorTo(w.Step, width), width), max(bucketfn.FloorTo(w.Span, width), width)
	return w
}

// edgesOf returns the edges of windows, ascending.
func edgesOf(w bucketfn.Windows) []int64 {
	at := map[int64]bool{}
	for k := range w.Steps {
		a, b := w.Window(k)
		at[a], at[b] = true, true
	}
	return bucketfntest.SortedKeys(at)
}

func TestOverNothing(t *testing.T) {
	for _, f := range bucketfntest.Evaluators() {
		var out bucketfn.Result
		f.Evaluate(&rollup.Buckets{}, bucketfn.Windows{Step: 1, Steps: 3, Span: 1}, &out)
		require.Empty(t, out.Step)
		require.Empty(t, out.Unanswered)
	}
	require.Nil(t, bucketfn.New("idelta"))
	require.Nil(t, bucketfn.New("abs"))
	require.Zero(t, bucketfn.Columns("idelta"))
}

func TestSelectorEndsWithStaleMarker(t *testing.T) {
	var s chunk.Samples
	s.AppendFloat(10_000, 0, 1)
	s.AppendFloat(70_000, 0, math.Float64frombits(value.StaleNaN))
	s.AppendFloat(250_000, 0, 2)
	var b rollup.Buckets
	rollup.AppendEvery(&b, &s, 60_000)
	var out bucketfn.Result
	bucketfn.New("").Evaluate(&b, bucketfn.Windows{First: 60_000, Step: 60_000, Steps: 6, Span: 300_000}, &out)
	require.Equal(t, []int32{0, 4, 5}, out.Step)
	require.Equal(t, []float64{1, 2, 2}, out.Value)

	out.Reset()
	bucketfn.New("last_over_time").Evaluate(&b, bucketfn.Windows{First: 60_000, Step: 60_000, Steps: 6, Span: 300_000},
		&out)
	require.Equal(t, []int32{0, 1, 2, 3, 4, 5}, out.Step)
	require.Equal(t, []float64{1, 1, 1, 1, 2, 2}, out.Value)
}

// TestSelectorLooksBackLessThanABucket checks that, with a lookback shorter than a bucket, the time of the newest
// sample determines whether there is a value.
func TestSelectorLooksBackLessThanABucket(t *testing.T) {
	var s chunk.Samples
	s.AppendFloat(3_200_000, 0, 1)
	s.AppendFloat(7_000_000, 0, 2)
	var b rollup.Buckets
	rollup.AppendEvery(&b, &s, 3_600_000)
	var out bucketfn.Result
	bucketfn.New("").Evaluate(&b, bucketfn.Windows{First: 3_600_000, Step: 3_600_000, Steps: 2, Span: 300_000}, &out)
	require.Equal(t, []int32{1}, out.Step)
	require.Equal(t, []float64{2}, out.Value)
}

// TestSumsKeepTheirLowParts checks that adding up the sums of buckets causes no rounding errors in addition to the
// errors of the single buckets.
func TestSumsKeepTheirLowParts(t *testing.T) {
	b := rollup.Buckets{
		Start: []int64{0, 10, 20, 30}, End: []int64{10, 20, 30, 40}, Flags: make([]rollup.Flags, 4),
		Count: []uint32{1, 1, 1, 1},
		Sum:   []float64{1e16, 1, -1e16, 5}, SumLow: []float64{3, 0.5, 0, 0},
	}
	for name, want := range map[string]float64{"sum_over_time": 9.5, "avg_over_time": 9.5 / 4} {
		for _, steps := range []int{1, 4} { // the last of four windows has two parts
			var out bucketfn.Result
			bucketfn.New(name).Evaluate(&b, bucketfn.Windows{First: 40 - 10*int64(steps-1), Step: 10, Steps: steps,
				Span: 40}, &out)
			require.Equal(t, want, out.Value[steps-1], name)
		}
	}
}

// TestExtremesOfZeros checks that the first of -0 and 0 is both the min and the max.
func TestExtremesOfZeros(t *testing.T) {
	minus := math.Copysign(0, -1)
	for _, values := range [][]float64{{0, minus}, {minus, 0}} {
		b := rollup.Buckets{
			Start: []int64{0, 10}, End: []int64{10, 20}, Flags: make([]rollup.Flags, 2), Count: []uint32{1, 1},
			Min: values, Max: values,
		}
		for _, name := range []string{"min_over_time", "max_over_time"} {
			var out bucketfn.Result
			bucketfn.New(name).Evaluate(&b, bucketfn.Windows{First: 20, Step: 10, Steps: 1, Span: 20}, &out)
			require.Equal(t, math.Float64bits(values[0]), math.Float64bits(out.Value[0]), name)
		}
	}
}

// TestWidenedWindows checks that a series that starts in the middle of a window isn't extrapolated below zero, and that
// the value of a window shorter than a bucket isn't scaled up.
func TestWidenedWindows(t *testing.T) {
	var s chunk.Samples
	for at := int64(15_000); at <= 3_600_000; at += 15_000 {
		s.AppendFloat(at, 0, float64(at/1000))
	}
	var b rollup.Buckets
	rollup.AppendEvery(&b, &s, 3_600_000)
	w := bucketfn.Windows{First: 3_900_000, Step: 300_000, Steps: 2, Snap: 3_600_000, Span: 3_600_000,
		Scale: 300.0 / 3600}
	for name, want := range map[string]float64{"rate": 1, "increase": 300, "count_over_time": 20,
		"avg_over_time": 1807.5} {
		var out bucketfn.Result
		bucketfn.New(name).Evaluate(&b, w, &out)
		require.Equal(t, []int32{0, 1}, out.Step, name)
		require.InDelta(t, want, out.Value[0], 0.1, name)
		require.Equal(t, out.Value[0], out.Value[1], name)
	}
}

// TestBoundOfLargeValuesThatCancelOut checks that the bound of a sum includes a small value that large values would
// absorb before they cancel out. The requested window has one more sample than the evaluated window.
func TestBoundOfLargeValuesThatCancelOut(t *testing.T) {
	var s chunk.Samples
	for i, v := range []float64{1e17, 3, -1e17, 1} {
		s.AppendFloat(int64(i+1)*10, 0, v)
	}
	var b rollup.Buckets
	rollup.AppendEvery(&b, &s, 10)
	used, asked := bucketfn.Windows{First: 30, Step: 10, Steps: 1, Span: 30},
		bucketfn.Windows{First: 35, Step: 10, Steps: 1, Span: 35}
	for name, scale := range map[string]float64{"sum_over_time": 1, "avg_over_time": 3} {
		f := bucketfn.New(name)
		var out bucketfn.Result
		f.Evaluate(&b, used, &out)
		require.Equal(t, []float64{3 / scale}, out.Value, name)
		bounds := bucketfn.Bounds{Steps: make([]float64, 1)}
		out.Value[0] = 0 // as if it had been absorbed
		f.ComputeBounds(&b, asked, used, &out, &bounds)
		require.False(t, bounds.Unknown, name)
		require.GreaterOrEqual(t, bounds.Largest, 3/scale, name)
	}
}

// TestBoundsOfAbsence checks the bound if the evaluated window has no value but the requested window may have one, and
// the reverse. The bound is the value of the window that has one.
func TestBoundsOfAbsence(t *testing.T) {
	var s chunk.Samples
	s.AppendFloat(5, 0, 7)
	var b rollup.Buckets
	rollup.AppendEvery(&b, &s, 10)
	empty, full := bucketfn.Windows{First: 30, Step: 10, Steps: 1, Span: 20},
		bucketfn.Windows{First: 30, Step: 10, Steps: 1, Span: 30}
	cut := bucketfn.Windows{First: 30, Step: 10, Steps: 1, Span: 24}
	for name, want := range map[string]float64{"present_over_time": 1, "last_over_time": 7, "count_over_time": 1} {
		for _, used := range []bucketfn.Windows{empty, full} {
			f := bucketfn.New(name)
			var out bucketfn.Result
			f.Evaluate(&b, used, &out)
			bounds := bucketfn.Bounds{Steps: make([]float64, 1)}
			f.ComputeBounds(&b, cut, used, &out, &bounds)
			require.Equal(t, bucketfn.Bounds{Largest: want, Steps: []float64{want}}, bounds, "%s %v", name, used)
		}
	}
}

// TestBoundsOfNaNAreUnknown checks that bounds are unknown if a bucket at an edge contains a NaN sample that may affect
// the value. The min and max of the bucket don't show the NaN.
func TestBoundsOfNaNAreUnknown(t *testing.T) {
	var s chunk.Samples
	for i := range 40 {
		v := float64(i)
		if i == 33 {
			v = math.NaN()
		}
		s.AppendFloat(int64(i+1), 0, v)
	}
	var b rollup.Buckets
	rollup.AppendEvery(&b, &s, 10)
	for name, unknown := range map[string]bool{
		"": true, "last_over_time": true, "sum_over_time": true, "avg_over_time": true, "delta": true, "rate": true,
		"increase": true, "stddev_over_time": true, "first_over_time": true,
		"count_over_time": false, "changes": false, "max_over_time": false, "min_over_time": false,
	} {
		f := bucketfn.New(name)
		for end, isNaN := range map[int64]bool{35: unknown, 25: false} {
			used := bucketfn.Windows{First: end - 5, Step: 10, Steps: 1, Span: 20}
			var out bucketfn.Result
			f.Evaluate(&b, used, &out)
			bounds := bucketfn.Bounds{Steps: make([]float64, 1)}
			f.ComputeBounds(&b, bucketfn.Windows{First: end, Step: 10, Steps: 1, Span: 20}, used, &out, &bounds)
			require.Equal(t, isNaN, bounds.Unknown, "%q at %d", name, end)
		}
	}
}

// TestBoundsOfNegativeCountersAreUnknown checks that the increase of a counter has no bound if the counter is negative,
// even only inside a bucket.
func TestBoundsOfNegativeCountersAreUnknown(t *testing.T) {
	for least, unknown := range map[float64]bool{-1e100: true, 0: false} {
		var s chunk.Samples
		for i := range 40 {
			s.AppendFloat(int64(i+1), 0, []float64{3, 1e100, least, 2, 5}[i%5])
		}
		var b rollup.Buckets
		rollup.AppendEvery(&b, &s, 10)
		for _, name := range []string{"rate", "increase"} {
			f := bucketfn.New(name)
			used := bucketfn.Windows{First: 30, Step: 10, Steps: 1, Span: 20}
			var out bucketfn.Result
			f.Evaluate(&b, used, &out)
			bounds := bucketfn.Bounds{Steps: make([]float64, 1)}
			f.ComputeBounds(&b, bucketfn.Windows{First: 35, Step: 10, Steps: 1, Span: 20}, used, &out, &bounds)
			require.Equal(t, unknown, bounds.Unknown, "%s with %g", name, least)
		}
	}
}
