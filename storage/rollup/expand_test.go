package rollup

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

const hourMS = 3_600_000

// drawn makes the samples of one bucket.
type drawn struct {
	name string
	// counts: falls, and the increase over them, must be right.
	counts bool
	next   func(r *rand.Rand, v float64, k int) float64
}

var drawnKinds = []drawn{
	{"constant", true, func(_ *rand.Rand, v float64, _ int) float64 { return v }},
	{"counter", true, func(r *rand.Rand, v float64, _ int) float64 { return v + float64(r.IntN(20)) }},
	{"bursty counter", true, func(r *rand.Rand, v float64, _ int) float64 {
		if r.IntN(15) == 0 {
			return v + float64(r.IntN(100_000))
		}
		return v
	}},
	{"counter with resets to 0", true, func(r *rand.Rand, v float64, _ int) float64 {
		if r.IntN(25) == 0 {
			return 0
		}
		return v + r.Float64()*10
	}},
	{"counter with resets", false, func(r *rand.Rand, v float64, _ int) float64 {
		if r.IntN(25) == 0 {
			return r.Float64() * 5
		}
		return v + r.Float64()*10
	}},
	{"falls evenly", true, func(r *rand.Rand, v float64, _ int) float64 { return v - 0.1 - r.Float64() }},
	{"sine", false, func(_ *rand.Rand, _ float64, k int) float64 { return 50 + 50*math.Sin(float64(k)/15) }},
	{"noise", false, func(r *rand.Rand, _ float64, _ int) float64 { return r.NormFloat64() * 1e6 }},
	{"few values", false, func(r *rand.Rand, _ float64, _ int) float64 { return float64(r.IntN(3)) }},
	{"tiny and huge", false, func(r *rand.Rand, _ float64, _ int) float64 { return math.Pow(10, float64(r.IntN(30)-15)) }},
}

func (d *drawn) samples(r *rand.Rand, n int) *chunk.Samples {
	var s chunk.Samples
	v := float64(r.IntN(1000))
	step := int64(hourMS / (n + 1))
	for k := range n {
		v = d.next(r, v, k)
		s.AppendFloat(1+int64(k)*step+r.Int64N(max(step/2, 1)), 0, v)
	}
	return &s
}

func bucketOf(t *testing.T, s *chunk.Samples) *Buckets {
	t.Helper()
	var b Buckets
	AppendEvery(&b, s, hourMS)
	require.Equal(t, 1, b.Len())
	return &b
}

// What a bucket was expanded into makes the same bucket.
func TestExpandMakesTheSameBucket(t *testing.T) {
	var x Expander
	right := map[string][2]int{}
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 9))
		d := &drawnKinds[seed%uint64(len(drawnKinds))]
		n := 1 + r.IntN(10)
		if r.IntN(2) == 0 {
			n = 10 + r.IntN(240)
		}
		b := bucketOf(t, d.samples(r, n))
		var s chunk.Samples
		x.Expand(&s, b, 0)
		got := bucketOf(t, &s)
		require.Equal(t, b.Count, got.Count, "%s, seed %d", d.name, seed)
		require.Equal(t, [][]int64{b.FirstT, b.LastT}, [][]int64{got.FirstT, got.LastT}, "%s, seed %d", d.name, seed)
		require.Equal(t, [][]float64{b.First, b.Last, b.Min, b.Max}, [][]float64{got.First, got.Last, got.Min, got.Max}, "%s of %d, seed %d", d.name, n, seed)
		scale := max(math.Abs(b.Min[0]), math.Abs(b.Max[0]))
		require.InDelta(t, b.Sum[0]+b.SumLow[0], got.Sum[0]+got.SumLow[0], 1e-13*scale*float64(n), "the sum of %s of %d, seed %d: %v", d.name, n, seed, s.V)
		for k := 1; k < n; k++ {
			require.Greater(t, s.T[k], s.T[k-1])
		}
		falls := right[d.name]
		falls[1]++
		if got.Resets[0] == b.Resets[0] && math.Abs(b.Correction[0]-got.Correction[0]) <= 1e-9*scale*float64(n) {
			falls[0]++
		} else {
			require.False(t, d.counts, "%s of %d, seed %d: %d resets by %v became %d by %v", d.name, n, seed, b.Resets[0], b.Correction[0], got.Resets[0], got.Correction[0])
		}
		right[d.name] = falls
	}
	for name, n := range right {
		t.Logf("%s: falls are right in %d of %d", name, n[0], n[1])
	}
	n := right["counter with resets"]
	require.Greater(t, n[0]*100, n[1]*98)
}

// Values that can't be computed with are still the first, last, least and greatest.
func TestExpandOddValues(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	var x Expander
	for _, values := range [][]float64{
		{nan, nan, nan}, {1, nan, 3, 4}, {nan, 1, 2, nan}, {nan, 1, 2, 3, nan}, {inf, 1, 2}, {1, 2, -inf, 5, 6}, {inf, -inf, 1, 2}, {1, inf, -inf, 2},
		{math.MaxFloat64, -math.MaxFloat64, math.MaxFloat64, 0}, {math.Copysign(0, -1), 0, math.Copysign(0, -1)},
	} {
		var in, s chunk.Samples
		for k, v := range values {
			in.AppendFloat(int64(k+1)*1000, 0, v)
		}
		b := bucketOf(t, &in)
		x.Expand(&s, b, 0)
		got := bucketOf(t, &s)
		require.Equal(t, b.Count, got.Count)
		for what, pair := range map[string][2]float64{
			"first": {b.First[0], got.First[0]}, "last": {b.Last[0], got.Last[0]}, "least": {b.Min[0], got.Min[0]}, "greatest": {b.Max[0], got.Max[0]},
		} {
			require.True(t, pair[0] == pair[1] || math.IsNaN(pair[0]) && math.IsNaN(pair[1]), "%s of %v is %v", what, values, s.V)
		}
		if math.IsNaN(b.Sum[0]) || math.IsInf(b.Sum[0], 0) {
			require.Equal(t, math.Float64bits(b.Sum[0])>>52, math.Float64bits(got.Sum[0])>>52, "the sum of %v is that of %v", values, s.V)
		}
	}
}

// A stale marker comes when the next sample was due.
func TestExpandStaleMarkers(t *testing.T) {
	var x Expander
	for _, c := range []struct {
		times []int64 // the last is that of the marker
		want  int64
	}{{[]int64{1000, 5000}, 1001}, {[]int64{1000, 3000, 4500}, 5000}, {[]int64{3000}, 1}, {[]int64{1000, hourMS - 1, hourMS}, hourMS}} {
		var in, s chunk.Samples
		for i, at := range c.times {
			if i+1 == len(c.times) {
				in.AppendFloat(at, 0, staleMarker)
			} else {
				in.AppendFloat(at, 0, 1)
			}
		}
		x.Expand(&s, bucketOf(t, &in), 0)
		require.Equal(t, c.want, s.T[len(s.T)-1])
		require.Equal(t, math.Float64bits(staleMarker), math.Float64bits(s.V[len(s.V)-1]))
	}
}

// Buckets that are cut are those of the samples that they expand into, and others stay as they are.
func TestCutBuckets(t *testing.T) {
	var x Expander
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 4))
		var b, want, got Buckets
		var made chunk.Samples
		for hour := range 4 {
			s := drawnKinds[r.IntN(len(drawnKinds))].samples(r, 1+r.IntN(40))
			for i := range s.T {
				s.T[i] += int64(hour) * hourMS
			}
			AppendEvery(&b, s, hourMS)
		}
		var edges []int64
		for at := r.Int64N(3 * hourMS); at < 4*hourMS; at += 1 + r.Int64N(hourMS) {
			edges = append(edges, at)
		}
		x.Cut(&got, &b, edges)
		for i := range b.End {
			made.Reset()
			cut := false
			for _, e := range edges {
				cut = cut || e > b.Start[i] && e < b.End[i]
			}
			if !cut {
				want.copy(&b, i, i+1, CutColumns)
				continue
			}
			x.Expand(&made, &b, i)
			AppendCells(&want, &made, append([]int64{b.Start[i]}, edges...), hourMS)
		}
		require.Equal(t, want.Count, got.Count, "seed %d", seed)
		require.Equal(t, [][]int64{want.Start, want.End, want.FirstT, want.LastT}, [][]int64{got.Start, got.End, got.FirstT, got.LastT}, "seed %d", seed)
		require.Equal(t, [][]float64{want.First, want.Last, want.Sum, want.Correction}, [][]float64{got.First, got.Last, got.Sum, got.Correction}, "seed %d", seed)
	}
}

// Native histograms keep first, last, number and increase, and without resets the sum; gauges keep it always.
func TestExpandHistograms(t *testing.T) {
	var x Expander
	for seed := range uint64(600) {
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
		if b.Flags[0]&HasHistograms == 0 {
			continue
		}
		want, made := b.Histograms[0], got.Histograms[0]
		require.Equal(t, want.Count, made.Count, "seed %d", seed)
		require.Equal(t, want.First.String(), made.First.String())
		require.Equal(t, want.Last.String(), made.Last.String())
		if want.Sum != nil && (kind == 1 || b.Resets[0] == 0) {
			require.InDelta(t, want.Sum.Count, made.Sum.Count, 1e-9*want.Sum.Count, "seed %d", seed)
			require.InDelta(t, want.Sum.Sum, made.Sum.Sum, 1e-9*want.Sum.Sum, "seed %d", seed)
		}
		if b.Flags[0].HasFloats() || kind == 1 {
			continue
		}
		require.InDelta(t, lost(want), lost(made), 1e-9*lost(want), "seed %d, %d samples", seed, n)
		if b.Resets[0] == 0 {
			require.Zero(t, got.Resets[0], "seed %d", seed)
		}
	}
}

// lost is the count that resets took.
func lost(h *Histograms) (count float64) {
	if h.FirstReset {
		count += h.First.Count
	}
	if h.Correction != nil {
		count += h.Correction.Count
	}
	return count
}

// The rate over any part of a bucket of a counter that rose evenly is close to that of all of it, also where it was reset.
func TestExpandedCountersRiseEvenly(t *testing.T) {
	var x Expander
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		n, rate := 60+r.IntN(180), 1+r.Float64()*100
		var in, s chunk.Samples
		v, resets := r.Float64()*1e6, r.IntN(2) // How high the peaks between several resets were isn't known.
		for k := range n {
			if resets > 0 && k > 0 && r.IntN(n/4) == 0 {
				v, resets = 0, resets-1
			}
			v += rate
			in.AppendFloat(int64(k+1)*int64(hourMS/n), 0, v)
		}
		x.Expand(&s, bucketOf(t, &in), 0)
		for k := 1; k < n; k++ {
			rise := s.V[k] - s.V[k-1]
			if rise < 0 {
				rise = s.V[k]
			}
			require.LessOrEqual(t, rise, 2.2*rate, "seed %d, place %d of %d: %v", seed, k, n, s.V)
		}
	}
}
