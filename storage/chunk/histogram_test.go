package chunk

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"
)

var staleNaN = math.Float64frombits(value.StaleNaN)

// histogramSeries returns canonical histograms of a series of counters, which are sometimes reset, change their layout,
// become stale, or are gauges.
func histogramSeries(t testing.TB, n int, seed uint64, float, starts bool) *Samples {
	r := rand.New(rand.NewPCG(seed, 1))
	s := &Samples{}
	counts := make([]int64, 12)
	schema, threshold, custom := int32(3), 0.001, false
	hint, ts, st := histogram.UnknownCounterReset, int64(startMS), int64(0)
	for i := range n {
		ts += intervalMS + r.Int64N(3)
		switch r.IntN(25) {
		case 0:
			clear(counts)
			st = ts - 1
		case 1:
			schema, custom = int32(r.IntN(13)-4), false
		case 2:
			threshold = []float64{0, 0.001, math.Ldexp(1, -128), 0.3}[r.IntN(4)]
		case 3:
			custom = !custom
		case 4:
			hint = histogram.CounterResetHint(r.IntN(4))
		}
		for j := range counts {
			if r.IntN(3) > 0 || i > n/2 {
				counts[j] += r.Int64N(4)
			}
		}
		h := makeHistogram(counts, schema, threshold, custom)
		h.CounterResetHint = hint
		if hint == histogram.CounterReset {
			hint = histogram.NotCounterReset
		}
		if i%40 == 39 {
			h.Sum = staleNaN
		}
		sample := Histogram{T: ts, Int: h}
		if starts {
			sample.ST = st
		}
		if float {
			sample.Float, sample.Int = h.ToFloat(nil), nil
		}
		canonical, err := CanonicalHistogram(sample)
		require.NoError(t, err)
		s.AppendHistogram(canonical)
	}
	return s
}

// makeHistogram returns a valid histogram that isn't compact.
func makeHistogram(counts []int64, schema int32, threshold float64, custom bool) *histogram.Histogram {
	h := &histogram.Histogram{Schema: schema, ZeroThreshold: threshold}
	half := len(counts) / 2
	side := func(counts []int64) (deltas []int64) {
		before := int64(0)
		for _, c := range counts {
			deltas = append(deltas, c-before)
			before = c
			h.Count += uint64(c)
			h.Sum += 0.37 * float64(c)
		}
		return deltas
	}
	h.PositiveSpans = []histogram.Span{{Offset: 2, Length: 3}, {Offset: 0, Length: uint32(half - 3)}}
	h.PositiveBuckets = side(counts[:half])
	if custom {
		h.Schema, h.ZeroThreshold = histogram.CustomBucketsSchema, 0
		for i := range half + 2 {
			h.CustomValues = append(h.CustomValues, float64(i)*0.25)
		}
		return h
	}
	h.NegativeSpans = []histogram.Span{{Offset: -4, Length: 0}, {Offset: 5, Length: uint32(len(counts) - half - 1)}}
	h.NegativeBuckets = side(counts[half+1:])
	h.ZeroCount = uint64(counts[half])
	h.Count += h.ZeroCount
	return h
}

func TestHistogramsRoundTrip(t *testing.T) {
	for _, float := range []bool{false, true} {
		for _, starts := range []bool{false, true} {
			for seed := range uint64(10) {
				s := histogramSeries(t, 300, seed, float, starts)
				b := requireRoundTrip(t, s)
				info, err := Header(b)
				require.NoError(t, err)
				require.Equal(t, 300, info.Histograms)
				require.Equal(t, s.H[0].T, info.MinT)
				require.Equal(t, s.H[299].T, info.MaxT)
			}
		}
	}
}

func TestHistogramsOfBothTypesAmongFloats(t *testing.T) {
	s := histogramSeries(t, 100, 1, false, true)
	for i, h := range histogramSeries(t, 100, 2, true, true).H {
		if i%10 < 3 {
			s.AppendHistogram(h)
		}
	}
	for i := range 50 {
		s.AppendFloat(startMS+int64(i)*7000, 0, float64(i))
	}
	s.Normalize()
	requireRoundTrip(t, s)
}

// TestHints checks that the hints of gauges and reported resets are restored, and that other histograms have no hint.
func TestHints(t *testing.T) {
	counts := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	var s Samples
	put := []histogram.CounterResetHint{
		histogram.NotCounterReset, histogram.UnknownCounterReset, histogram.CounterReset, histogram.NotCounterReset,
		histogram.CounterReset, histogram.GaugeType, histogram.GaugeType, histogram.UnknownCounterReset,
	}
	want := []histogram.CounterResetHint{
		histogram.UnknownCounterReset, histogram.UnknownCounterReset, histogram.CounterReset,
		histogram.UnknownCounterReset, histogram.CounterReset, histogram.GaugeType, histogram.GaugeType,
		histogram.UnknownCounterReset,
	}
	for i, hint := range put {
		h := makeHistogram(counts, 1, 0, false)
		h.CounterResetHint = hint
		s.AppendHistogram(Histogram{T: int64(i), Int: h})
	}
	var got Samples
	require.NoError(t, Decode(AppendChunk(nil, &s), &got))
	for i, hint := range want {
		require.Equal(t, hint, got.H[i].Int.CounterResetHint, "histogram %d", i)
	}
}

// growingHistograms returns histograms as sent by a process without resets.
func growingHistograms(t testing.TB, n int, float bool) *Samples {
	counts := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	s := &Samples{}
	for i := range n {
		for j := range counts {
			counts[j] += int64(i * j % 7)
		}
		h := Histogram{T: startMS + intervalMS*int64(i), Int: makeHistogram(counts, 1, 0, false)}
		if float {
			h.Float, h.Int = h.Int.ToFloat(nil), nil
		}
		h, err := CanonicalHistogram(h)
		require.NoError(t, err)
		s.AppendHistogram(h)
	}
	return s
}

// TestGrowingHistogramsShareSubChunk checks that histograms with one layout are in one sub-chunk.
func TestGrowingHistogramsShareSubChunk(t *testing.T) {
	s := growingHistograms(t, 100, false)
	require.Less(t, len(requireRoundTrip(t, s)), 100*25)
	_, n := appendSubChunk(nil, s.H, false)
	require.Equal(t, 100, n)
	var got Samples
	require.NoError(t, Decode(AppendChunk(nil, s), &got))
	require.Same(t, &got.H[0].Int.PositiveSpans[0], &got.H[99].Int.PositiveSpans[0], "spans are shared in memory, too")
}

func TestCanonical(t *testing.T) {
	h := makeHistogram([]int64{1, 0, 0, 2, 0, 0, 5, 0, 7, 0, 0, 9}, 1, math.Copysign(0, -1), false)
	h.CounterResetHint = histogram.NotCounterReset
	before := h.Copy()
	c, err := CanonicalHistogram(Histogram{T: 1, ST: 2, Int: h})
	require.NoError(t, err)
	require.True(t, h.Equals(before), "the original was changed")
	require.Equal(t, int64(1), c.T)
	require.Equal(t, int64(2), c.ST)
	require.Equal(t, &histogram.Histogram{
		Schema: 1, Count: h.Count, ZeroCount: 5, Sum: h.Sum,
		PositiveSpans: h.PositiveSpans, PositiveBuckets: h.PositiveBuckets, NegativeSpans: h.NegativeSpans,
		NegativeBuckets: h.NegativeBuckets,
	}, c.Int, "buckets stay as they were sent, empty ones, too")
	require.NotSame(t, &h.PositiveSpans[0], &c.Int.PositiveSpans[0])
	require.False(t, math.Signbit(c.Int.ZeroThreshold))

	again, err := CanonicalHistogram(c)
	require.NoError(t, err)
	require.Equal(t, c, again)

	stale, err := CanonicalHistogram(Histogram{
		Float: &histogram.FloatHistogram{Sum: staleNaN, Count: 3, CounterResetHint: histogram.GaugeType},
	})
	require.NoError(t, err)
	require.Equal(t, uint64(value.StaleNaN), math.Float64bits(stale.Float.Sum))
	require.Zero(t, stale.Float.Count)
	require.Zero(t, stale.Float.CounterResetHint)

	bounds := []float64{-1, math.Copysign(0, -1), 2}
	custom, err := CanonicalHistogram(Histogram{
		Float: &histogram.FloatHistogram{Schema: histogram.CustomBucketsSchema, CustomValues: bounds},
	})
	require.NoError(t, err)
	require.Equal(t, uint64(0), math.Float64bits(custom.Float.CustomValues[1]))
	require.True(t, math.Signbit(bounds[1]), "the original was changed")

	fine, err := CanonicalHistogram(Histogram{Int: &histogram.Histogram{
		Schema: 10, Count: 2, PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []int64{1, 0},
	}})
	require.NoError(t, err)
	require.Equal(t, int32(histogram.ExponentialSchemaMax), fine.Int.Schema)
}

func TestCanonicalRefuses(t *testing.T) {
	for name, h := range map[string]Histogram{
		"nothing":       {},
		"both":          {Int: &histogram.Histogram{}, Float: &histogram.FloatHistogram{}},
		"wrong count":   {Int: &histogram.Histogram{Count: 1}},
		"schema":        {Int: &histogram.Histogram{Schema: 99}},
		"schema, float": {Float: &histogram.FloatHistogram{Schema: -10}},
		"spans without buckets": {Float: &histogram.FloatHistogram{
			PositiveSpans: []histogram.Span{{Length: 5}},
		}},
		"index beyond int32": {Float: &histogram.FloatHistogram{
			PositiveSpans:   []histogram.Span{{Offset: math.MaxInt32, Length: 1}},
			PositiveBuckets: []float64{1}, Count: 1,
		}},
		"custom buckets with negative ones": {Int: &histogram.Histogram{
			Schema: histogram.CustomBucketsSchema, NegativeSpans: []histogram.Span{{Length: 1}},
			NegativeBuckets: []int64{0},
		}},
		"index that no observation has": {Int: &histogram.Histogram{
			PositiveSpans:   []histogram.Span{{Offset: math.MinInt32, Length: 1}, {Offset: math.MaxInt32, Length: 1}},
			PositiveBuckets: []int64{1, 0}, Count: 2,
		}},
		"negative side's index": {Float: &histogram.FloatHistogram{
			NegativeSpans: []histogram.Span{{Offset: 2147483640, Length: 1}}, NegativeBuckets: []float64{1}, Count: 1,
		}},
		"zero threshold NaN":            {Int: &histogram.Histogram{ZeroThreshold: math.NaN()}},
		"zero threshold NaN, float":     {Float: &histogram.FloatHistogram{ZeroThreshold: math.NaN()}},
		"zero threshold below 0":        {Int: &histogram.Histogram{ZeroThreshold: -1e-9}},
		"zero threshold infinite":       {Float: &histogram.FloatHistogram{ZeroThreshold: math.Inf(1)}},
		"zero threshold minus infinite": {Int: &histogram.Histogram{ZeroThreshold: math.Inf(-1)}},
		"finer than known, and broken": {Int: &histogram.Histogram{
			Schema: 20, PositiveSpans: []histogram.Span{{Length: 9}}, PositiveBuckets: []int64{0},
		}},
	} {
		_, err := CanonicalHistogram(h)
		require.Error(t, err, name)
	}
}

// TestComputable checks that CheckComputable rejects exactly the histograms of earlier releases with which queries
// can't compute.
func TestComputable(t *testing.T) {
	for _, h := range []Histogram{
		{Int: &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN), ZeroThreshold: math.NaN()}},
		{Int: &histogram.Histogram{ZeroThreshold: math.MaxFloat64}},
		{Float: &histogram.FloatHistogram{PositiveSpans: []histogram.Span{{Offset: -maxIndex, Length: 1}, {Offset: 2*maxIndex - 2, Length: 1}}}},
	} {
		require.NoError(t, h.CheckComputable())
	}
	for _, h := range []Histogram{
		{Int: &histogram.Histogram{ZeroThreshold: math.NaN()}},
		{Float: &histogram.FloatHistogram{ZeroThreshold: math.Inf(1)}},
		{Float: &histogram.FloatHistogram{PositiveSpans: []histogram.Span{{Offset: -maxIndex - 1, Length: 2}}}},
		{Int: &histogram.Histogram{NegativeSpans: []histogram.Span{{Offset: maxIndex, Length: 1}}}},
	} {
		require.Error(t, h.CheckComputable())
	}
}

func TestHistogramBytes(t *testing.T) {
	hs := histogramSeries(t, 100, 3, false, true).H
	hs = append(hs, histogramSeries(t, 100, 4, true, false).H...)
	negative := *hs[0].Int
	negative.Sum = math.Copysign(0, -1)
	hs = append(hs, Histogram{T: math.MinInt64, ST: math.MaxInt64, Int: &negative})
	for _, h := range hs {
		b := AppendHistogramBytes([]byte("before"), h)
		got, err := ParseHistogram(b[len("before"):])
		require.NoError(t, err)
		require.Equal(t, math.Float64bits(sumOf(h)), math.Float64bits(sumOf(got)))
		if h.isStale() { // NaN is not equal to itself
			continue
		}
		require.Equal(t, h, got)
	}
}

func sumOf(h Histogram) float64 {
	if h.Int != nil {
		return h.Int.Sum
	}
	return h.Float.Sum
}

func TestParseHistogramRefuses(t *testing.T) {
	bad := Histogram{Int: &histogram.Histogram{PositiveSpans: []histogram.Span{{Length: math.MaxUint32}}}}
	for name, b := range map[string][]byte{
		"nothing":         nil,
		"version":         {99, 0},
		"no protobuf":     {histogramVersion, 0, 0xff},
		"spans that lie":  AppendHistogramBytes(nil, bad),
		"unknown hint":    {histogramVersion, 0, 14 << 3, 9},
		"truncated field": {histogramVersion, 0, 3<<3 | 1, 1, 2},
	} {
		_, err := ParseHistogram(b)
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
}
