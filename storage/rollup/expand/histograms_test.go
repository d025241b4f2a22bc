package expand

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestExpandHistograms requires that native histograms keep first, last, count, sum and increase. Where a bucket has
// resets, the sum may differ in a few cases.
func TestExpandHistograms(t *testing.T) {
	var x Expander
	differ, reset := 0, 0
	for seed := range soak.Seeds(t, 600) {
		r := rand.New(rand.NewPCG(seed, 2))
		n, count, kind := 1+r.IntN(30), int64(0), r.IntN(3)
		var in, s chunk.Samples
		for k := range n {
			if count += r.Int64N(5); r.IntN(20) == 0 {
				count = 0
			}
			h := tsdbutil.GenerateTestFloatHistogram(count)
			h.CounterResetHint = histogram.UnknownCounterReset
			if kind == 1 {
				h.CounterResetHint = histogram.GaugeType
			}
			if at := int64(k+1) * 1000; kind == 2 && r.IntN(3) == 0 {
				in.AppendFloat(at, 0, float64(count))
			} else {
				in.AppendHistogram(chunk.Histogram{T: at, Float: h})
			}
		}
		b := bucketOf(t, &in)
		x.Expand(&s, b, 0)
		got := bucketOf(t, &s)
		require.Equal(t, [][]int64{b.FirstT, b.LastT}, [][]int64{got.FirstT, got.LastT})
		require.Equal(t, b.Count, got.Count, "seed %d", seed)
		require.Equal(t, b.Flags, got.Flags, "seed %d", seed)
		if b.Flags[0].HasFloats() {
			require.Equal(t, [][]float64{b.First, b.Last, b.Min, b.Max}, [][]float64{got.First, got.Last, got.Min, got.Max}, "seed %d", seed)
			require.InDelta(t, b.Sum[0], got.Sum[0], 1e-9, "seed %d", seed)
		}
		if b.Flags[0]&rollup.HasHistograms == 0 {
			continue
		}
		want, made := b.Histograms[0], got.Histograms[0]
		require.Equal(t, want.Count, made.Count, "seed %d", seed)
		require.Equal(t, want.First.String(), made.First.String())
		require.Equal(t, want.Last.String(), made.Last.String())
		switch {
		case want.Sum == nil:
		case kind == 1 || b.Resets[0] == 0:
			require.InDelta(t, want.Sum.Count, made.Sum.Count, 1e-9*want.Sum.Count, "seed %d", seed)
			require.InDelta(t, want.Sum.Sum, made.Sum.Sum, 1e-9*want.Sum.Sum, "seed %d", seed)
		default:
			reset++
			differ += asCount(math.Abs(want.Sum.Count-made.Sum.Count) > 1e-9*want.Sum.Count)
		}
		if b.Flags[0].HasFloats() || kind == 1 {
			continue
		}
		require.InDelta(t, lost(want), lost(made), 1e-9*lost(want), "seed %d, %d samples", seed, n)
		if b.Resets[0] == 0 {
			require.Zero(t, got.Resets[0], "seed %d", seed)
		}
	}
	require.Less(t, differ*10, reset)
}

// TestExpandHistogramsAfterACoarserOne requires that a counter that is reset by a change to a finer layout after the
// first histogram keeps its increase, sum, resets and changes.
func TestExpandHistogramsAfterACoarserOne(t *testing.T) {
	for _, counts := range [][]int64{{0, 0, 0, 8, 17, 17}, {5, 0, 0, 8, 17, 17}, {3, 8, 1}} {
		var in, s chunk.Samples
		for k, n := range counts {
			h := histogramOfCounts([]int64{n % 3, n, 0, n / 2}, float64(3*n), 3, 0.001)
			if k == 0 {
				h = h.CopyToSchema(2)
				h.ZeroThreshold = 0.002
			}
			in.AppendHistogram(chunk.Histogram{T: int64(k+1) * 1000, Float: h})
		}
		var x Expander
		b := bucketOf(t, &in)
		x.Expand(&s, b, 0)
		got := bucketOf(t, &s)
		want, made := b.Histograms[0], got.Histograms[0]
		require.Equal(t, lost(want), lost(made), "%v", counts)
		require.Equal(t, b.Resets, got.Resets, "%v", counts)
		require.Equal(t, b.Changes, got.Changes, "%v", counts)
		require.InDelta(t, want.Sum.Sum, made.Sum.Sum, 1e-9)
		require.InDelta(t, want.Sum.ZeroCount, made.Sum.ZeroCount, 1e-9)
		require.InDeltaSlice(t, want.Sum.PositiveBuckets, made.Sum.PositiveBuckets, 1e-9)

		b.DropHistogramSums()
		s.Reset()
		x.Expand(&s, b, 0)
		require.Equal(t, lost(want), lost(bucketOf(t, &s).Histograms[0]), "%v", counts)
	}
}

// TestExpandHistogramsKeepsChanges requires that native histograms keep sum, increase, resets and changes, also where
// their layout changes. Where a bucket has several resets or its layout changes at a reset, sum, resets and changes may
// differ in a few cases.
func TestExpandHistogramsKeepsChanges(t *testing.T) {
	var x Expander
	differ, counters := 0, 0
	for seed := range soak.Seeds(t, 3000) {
		r := rand.New(rand.NewPCG(seed, 4))
		n, gauge, resets, layouts := 3+r.IntN(40), r.IntN(2) == 0, r.IntN(4), r.IntN(2) == 0
		in := layoutsOf(r, n, gauge, resets, layouts)
		var s chunk.Samples
		b := bucketOf(t, &in)
		x.Expand(&s, b, 0)
		got := bucketOf(t, &s)
		want, made := b.Histograms[0], got.Histograms[0]
		sameSum := math.Abs(want.Sum.Count-made.Sum.Count) <= 1e-9*want.Sum.Count &&
			math.Abs(want.Sum.Sum-made.Sum.Sum) <= 1e-9*want.Sum.Sum
		sameChanges, sameResets := b.Changes[0] == got.Changes[0], b.Resets[0] == got.Resets[0]
		switch {
		case gauge:
			require.True(t, sameSum, "seed %d", seed)
			require.Equal(t, b.Changes, got.Changes, "seed %d", seed)
			require.InDelta(t, b.Resets[0], got.Resets[0], 2, "seed %d", seed)
			continue
		case b.Resets[0] == 0:
			require.True(t, sameSum, "seed %d", seed)
			require.True(t, sameResets, "seed %d", seed)
			require.True(t, sameChanges || layouts, "seed %d", seed)
		}
		require.InDelta(t, lost(want), lost(made), 1e-9*lost(want), "seed %d", seed)
		counters++
		differ += asCount(!sameSum || !sameChanges || !sameResets)
	}
	require.Less(t, differ*10, counters, "%d of %d counters", differ, counters)
}

// TestExpandedHistogramsAreComputable requires that the counts of reconstructed native histograms, also of floats that
// aren't integers, are neither NaN nor negative and match their buckets.
func TestExpandedHistogramsAreComputable(t *testing.T) {
	var x Expander
	for seed := range soak.Seeds(t, 4000) {
		r := rand.New(rand.NewPCG(seed, 7))
		n, gauge, layouts, infinite := 3+r.IntN(40), r.IntN(3) == 0, r.IntN(2) == 0, r.IntN(8) == 0
		drawn := layoutsOf(r, n, gauge, []int{0, 1, 3, n}[r.IntN(4)], layouts)
		by, unbucketed := []float64{1, 0.37, 1e-3, 1e17}[r.IntN(4)], 0.0
		var in, s chunk.Samples
		for _, h := range drawn.H {
			f := h.Float.Copy().Mul(by)
			if seed%5 == 0 && f.Schema >= 0 {
				unbucketed += by * float64(r.IntN(2)) // observations of NaN
				f.Count += unbucketed
			}
			if infinite && r.IntN(3) == 0 {
				f.Sum = math.Inf(1)
			}
			in.AppendHistogram(chunk.Histogram{T: h.T, Float: f})
		}
		b := bucketOf(t, &in)
		x.Expand(&s, b, 0)
		for _, h := range s.H {
			requireComputable(t, h.Float, seed)
			require.False(t, math.IsNaN(h.Float.Sum), "seed %d: %v", seed, h.Float)
			require.True(t, infinite || !math.IsInf(h.Float.Sum, 0), "seed %d: %v", seed, h.Float)
		}
		want, made := b.Histograms[0], bucketOf(t, &s).Histograms[0]
		if gauge || b.Resets[0] == 0 {
			require.InDelta(t, want.Sum.Count, made.Sum.Count, 1e-9*want.Sum.Count, "seed %d", seed)
		}
		if !gauge && !layouts {
			require.InDelta(t, lost(want), lost(made), 1e-9*lost(want), "seed %d", seed)
		}
	}
}

// TestExpandedHistogramsOfRoundedCounts requires that histograms that never fall are reconstructed without a reset, also
// if rounding makes the count of the first or the last one differ from the sum of its buckets.
func TestExpandedHistogramsOfRoundedCounts(t *testing.T) {
	var x Expander
	made := func(count, sum float64, buckets ...float64) *histogram.FloatHistogram {
		return &histogram.FloatHistogram{
			Schema: histogram.CustomBucketsSchema, CustomValues: []float64{1, 2, 3}, Count: count, Sum: sum,
			PositiveSpans: []histogram.Span{{Length: 4}}, PositiveBuckets: buckets,
		}
	}
	rounded := func(sum float64) *histogram.FloatHistogram { // The sum of the buckets is more than 0.01.
		return made(0.01, sum, 0.003, 0.003, 0.003, 0.001)
	}
	more := func(sum float64) *histogram.FloatHistogram { // The sum of the buckets is 0.6.
		return made(0.6000000000000001, sum, 0.3, 0.2, 0.1, 0)
	}
	for _, list := range [][]*histogram.FloatHistogram{
		{made(0.006, 0.027, 0.003, 0.003, 0, 0), rounded(math.Inf(1)), rounded(0.065), rounded(math.Inf(1))},
		{more(1), more(math.Inf(1)), more(2), more(math.Inf(1)), made(4, 5, 1, 1, 1, 1)},
	} {
		var in, s chunk.Samples
		for i, h := range list {
			in.AppendHistogram(chunk.Histogram{T: int64(i+1) * 1000, Float: h})
		}
		b := bucketOf(t, &in)
		x.Expand(&s, b, 0)
		require.Len(t, s.H, len(list))
		require.Equal(t, []uint32{0}, b.Resets)
		require.Equal(t, []uint32{0}, bucketOf(t, &s).Resets, "%v", s.H)
		for i, h := range s.H {
			requireComputable(t, h.Float, uint64(i))
		}
	}
}

// requireComputable requires that the counts of h are neither NaN nor negative and match its buckets.
func requireComputable(t *testing.T, h *histogram.FloatHistogram, seed uint64) {
	t.Helper()
	all := h.ZeroCount
	for _, n := range append(append([]float64{h.ZeroCount, h.Count}, h.PositiveBuckets...), h.NegativeBuckets...) {
		require.GreaterOrEqual(t, n, 0.0, "seed %d: %v", seed, h)
	}
	for _, n := range append(append([]float64{}, h.PositiveBuckets...), h.NegativeBuckets...) {
		all += n
	}
	require.GreaterOrEqual(t, h.Count, all*(1-1e-12), "seed %d: %v", seed, h)
	require.NoError(t, h.Validate(), "seed %d", seed)
}

// layoutsOf returns n native histograms. At most half of them observe values.
func layoutsOf(r *rand.Rand, n int, gauge bool, resets int, layouts bool) (in chunk.Samples) {
	counts, schema, threshold, idle := make([]int64, 12), int32(3), 0.001, r.Float64()
	if r.IntN(3) == 0 {
		schema = histogram.CustomBucketsSchema
	}
	bounds := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	sum := 0.0 // of the observations, also if their buckets are merged
	for k := range n {
		for resets > 0 && k > 0 && r.IntN(n) < resets {
			clear(counts)
			sum = 0
			resets--
			if layouts && schema >= 0 {
				schema, threshold = 3, 0.001
			}
		}
		if gauge {
			sum = 0
			for i := range counts {
				counts[i] = r.Int64N(4)
				sum += float64(counts[i]) * float64(i)
			}
		}
		if r.Float64() > idle {
			for range 1 + r.IntN(5) {
				i, more := r.IntN(len(counts)), 1+r.Int64N(3)
				counts[i] += more
				sum += float64(more) * float64(i)
			}
		}
		if layouts && r.IntN(10) == 0 {
			if schema >= 0 {
				schema, threshold = max(schema-1, 0), threshold*2
			} else if len(bounds) > 2 {
				at := r.IntN(len(bounds))
				bounds = slices.Delete(slices.Clone(bounds), at, at+1)
				counts = slices.Clone(counts)
				counts[at+1] += counts[at]
				counts = slices.Delete(counts, at, at+1)
			}
		}
		h := histogramOfCounts(counts, sum, schema, threshold)
		if schema < 0 {
			h = &histogram.FloatHistogram{
				Schema: schema, CustomValues: bounds, Count: h.Count, Sum: h.Sum,
				PositiveSpans:   []histogram.Span{{Length: uint32(len(counts))}},
				PositiveBuckets: append([]float64{h.ZeroCount}, h.PositiveBuckets...),
			}
		}
		if gauge {
			h.CounterResetHint = histogram.GaugeType
		}
		in.AppendHistogram(chunk.Histogram{T: int64(k+1) * 1000, Float: h})
	}
	return in
}

// histogramOfCounts returns a histogram with counts at schema 3, reduced to another schema.
func histogramOfCounts(counts []int64, sum float64, schema int32, threshold float64) *histogram.FloatHistogram {
	h := &histogram.FloatHistogram{
		Schema: 3, ZeroThreshold: threshold, ZeroCount: float64(counts[0]), Sum: sum,
		PositiveSpans: []histogram.Span{{Offset: 1, Length: uint32(len(counts) - 1)}},
	}
	for i, n := range counts {
		h.Count += float64(n)
		if i > 0 {
			h.PositiveBuckets = append(h.PositiveBuckets, float64(n))
		}
	}
	if schema < 0 {
		return h
	}
	return h.CopyToSchema(schema)
}

// lost returns the count by which resets reduced the histograms.
func lost(h *rollup.Histograms) (count float64) {
	if h.FirstReset {
		count += h.First.Count
	}
	if h.Correction != nil {
		count += h.Correction.Count
	}
	return count
}
