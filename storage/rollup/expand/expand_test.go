package expand

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

const hourMS = 3_600_000

// drawn generates the samples of one bucket.
type drawn struct {
	name string
	// counts is set if the expanded correction must always be exact.
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
	{"up", true, func(r *rand.Rand, v float64, k int) float64 {
		if k == 0 || r.IntN(20) == 0 {
			return math.Abs(1 - min(v, 1))
		}
		return v
	}},
	{"0 or 1", true, func(r *rand.Rand, _ float64, _ int) float64 { return float64(r.IntN(2)) }},
	{"integer counter", true, func(r *rand.Rand, v float64, _ int) float64 { return v + float64(r.IntN(3)) }},
	{"idle counter", true, func(r *rand.Rand, v float64, _ int) float64 {
		if r.IntN(12) == 0 {
			return v + float64(r.IntN(5))
		}
		return v
	}},
	{"idle counter with resets to 0", true, func(r *rand.Rand, v float64, _ int) float64 {
		switch {
		case r.IntN(30) == 0:
			return 0
		case r.IntN(6) == 0:
			return v + float64(r.IntN(5))
		}
		return v
	}},
	{"idle gauge", false, func(r *rand.Rand, v float64, _ int) float64 {
		if r.IntN(12) == 0 {
			return v + r.NormFloat64()
		}
		return v
	}},
	{"idle integer gauge", false, func(r *rand.Rand, v float64, _ int) float64 {
		if r.IntN(12) == 0 {
			return v + float64(r.IntN(7)-3)
		}
		return v
	}},
	{"walk", false, func(r *rand.Rand, v float64, _ int) float64 { return v + r.NormFloat64() }},
	{"integer walk", false, func(r *rand.Rand, v float64, _ int) float64 { return v + float64(r.IntN(7)-3) }},
	{"spikes", false, func(r *rand.Rand, _ float64, _ int) float64 {
		if r.IntN(30) == 0 {
			return r.Float64() * 100
		}
		return 3
	}},
	{"spikes from noise", false, func(r *rand.Rand, _ float64, _ int) float64 {
		if r.IntN(30) == 0 {
			return 1000 + r.Float64()*100
		}
		return r.Float64()
	}},
	{"rounded", false, func(r *rand.Rand, _ float64, _ int) float64 { return math.Round(450+2*r.NormFloat64()) / 10 }},
	{"time", false, func(r *rand.Rand, v float64, k int) float64 {
		if k == 0 {
			return 1.7e9 + r.Float64()
		}
		return v + 15 + r.NormFloat64()/1e3
	}},
	{"falling sawtooth", false, func(r *rand.Rand, v float64, _ int) float64 {
		if v < 10 {
			return 90 + r.Float64()*10
		}
		return v - r.Float64()*10
	}},
	{"rising sawtooth", false, func(r *rand.Rand, v float64, _ int) float64 {
		if v > 90 {
			return r.Float64() * 10
		}
		return v + r.Float64()*10
	}},
	{"bytes", false, func(r *rand.Rand, _ float64, _ int) float64 { return 2e9 + 4096*float64(r.IntN(100_000)) }},
	{"negative", false, func(r *rand.Rand, _ float64, _ int) float64 { return -r.Float64() }},
	{"queue", false, func(r *rand.Rand, _ float64, _ int) float64 { return max(0, math.Round(r.NormFloat64()*2)) }},
}

// wideKind generates values whose sum a float64 can't hold.
var wideKind = drawn{"tiny and huge", false, func(r *rand.Rand, _ float64, _ int) float64 { return math.Pow(10, float64(r.IntN(30)-15)) }}

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

func bucketOf(t *testing.T, s *chunk.Samples) *rollup.Buckets {
	t.Helper()
	var b rollup.Buckets
	rollup.AppendEvery(&b, s, hourMS)
	require.Equal(t, 1, b.Len())
	return &b
}

// TestExpandMakesTheSameBucket requires that the samples that a bucket is expanded into have the same bucket.
func TestExpandMakesTheSameBucket(t *testing.T) {
	var x Expander
	for i := range drawnKinds {
		d, rightCorrections, of := &drawnKinds[i], 0, 1000
		for seed := range soak.Seeds(t, of) {
			r := rand.New(rand.NewPCG(seed, 9))
			n := 1 + r.IntN(12)
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
			require.Equal(t, [][]uint32{b.Changes, b.Resets}, [][]uint32{got.Changes, got.Resets}, "changes and resets of %s of %d, seed %d: %v", d.name, n, seed, s.V)
			slack := 1e-14 * max(math.Abs(b.Min[0]), math.Abs(b.Max[0])) * float64(n+1)
			require.InDelta(t, b.Sum[0]+b.SumLow[0], got.Sum[0]+got.SumLow[0], slack, "the sum of %s of %d, seed %d: %v", d.name, n, seed, s.V)
			for k := 1; k < n; k++ {
				require.Greater(t, s.T[k], s.T[k-1])
			}
			if math.Abs(b.Correction[0]-got.Correction[0]) <= slack {
				rightCorrections++
				continue
			}
			require.False(t, d.counts, "%s of %d, seed %d: %d resets by %v became %d by %v", d.name, n, seed, b.Resets[0], b.Correction[0], got.Resets[0], got.Correction[0])
		}
		require.Greater(t, rightCorrections, of*97/100, "%s", d.name)
	}
}

// TestExpandTwoValues requires that samples of two values are expanded into the same number of each.
func TestExpandTwoValues(t *testing.T) {
	var x Expander
	for seed := range soak.Seeds(t, 1000) {
		r := rand.New(rand.NewPCG(seed, 5))
		low, high := r.NormFloat64()*100, 0.0
		if high = low + 1 + r.Float64(); seed%3 == 0 {
			low, high = 0, 1
		}
		n, often := 1+r.IntN(300), 1+r.IntN(40)
		var in, out chunk.Samples
		v, atHigh := low, 0
		for k := range n {
			if r.IntN(often) == 0 {
				v = low + high - v
			}
			if v = min(max(v, low), high); v != low {
				v = high
				atHigh++
			}
			in.AppendFloat(int64(k+1)*1000, 0, v)
		}
		x.Expand(&out, bucketOf(t, &in), 0)
		for _, v := range out.V {
			require.True(t, v == low || v == high, "seed %d: %v is neither %v nor %v", seed, v, low, high)
			if v == high {
				atHigh--
			}
		}
		require.Zero(t, atHigh, "seed %d", seed)
	}
}

// TestPiecesAddUpToTheirBucket requires that the pieces of a bucket add up to it, for any values.
func TestPiecesAddUpToTheirBucket(t *testing.T) {
	var x Expander
	kinds := append([]drawn{wideKind, {"odd values", false, func(r *rand.Rand, v float64, _ int) float64 {
		return []float64{v, v, v + 1, 3, math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(7)]
	}}, {"not a number now and then", false, func(r *rand.Rand, v float64, _ int) float64 { return []float64{v, 3, 4, math.NaN()}[r.IntN(4)] }}}, drawnKinds...)
	for i := range kinds {
		for seed := range soak.Seeds(t, 150) {
			r := rand.New(rand.NewPCG(seed, 6))
			whole := bucketOf(t, kinds[i].samples(r, 2+r.IntN(100)))
			var edges []int64
			for at := r.Int64N(hourMS / 2); at < hourMS; at += 1 + r.Int64N([]int64{hourMS, hourMS / 10, hourMS / 100}[seed%3]) {
				edges = append(edges, at)
			}
			var pieces, again rollup.Buckets
			x.Cut(&pieces, whole, edges)
			rollup.Coarsen(&again, &pieces, hourMS)
			correction := 0.0
			for k, before := 0, -1; k < pieces.Len(); k++ {
				if correction += pieces.Correction[k]; before >= 0 && pieces.First[k] < pieces.Last[before] {
					correction += pieces.Last[before]
				}
				before = k
			}
			says := []any{"%s, seed %d", kinds[i].name, seed}
			require.Equal(t, [][]uint32{whole.Count, whole.Changes, whole.Resets}, [][]uint32{again.Count, again.Changes, again.Resets}, says...)
			slack := 1e-13 * max(math.Abs(whole.Min[0]), math.Abs(whole.Max[0])) * float64(whole.Count[0])
			if math.IsInf(slack, 0) {
				slack = 1e-13 * math.Abs(whole.Correction[0])
			}
			if math.IsInf(slack, 0) {
				slack = 0
			}
			for what, pair := range map[string][2]float64{
				"first": {whole.First[0], again.First[0]}, "last": {whole.Last[0], again.Last[0]}, "min": {whole.Min[0], again.Min[0]}, "max": {whole.Max[0], again.Max[0]},
				"correction": {whole.Correction[0], correction}, "sum": {whole.Sum[0], again.Sum[0]},
			} {
				same := pair[0] == pair[1] || math.IsNaN(pair[0]) && math.IsNaN(pair[1]) || math.Abs(pair[0]-pair[1]) <= slack
				require.True(t, same, "%s of %s, seed %d: %v became %v", what, kinds[i].name, seed, pair[0], pair[1])
			}
		}
	}
}

// TestPiecesOfAFiniteIncrease requires that the pieces of a bucket whose increase is finite have a finite increase,
// although there are infinite values and the first and the last value aren't known.
func TestPiecesOfAFiniteIncrease(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	var in chunk.Samples
	for k, v := range []float64{nan, 3, -inf, inf, inf, inf, nan} {
		in.AppendFloat(int64(k+1)*1000, 0, v)
	}
	b := bucketOf(t, &in)
	require.Equal(t, []float64{3}, b.Correction)
	var x Expander
	for edge := int64(2000); edge < 7000; edge += 1000 {
		var pieces rollup.Buckets
		x.Cut(&pieces, b, []int64{edge})
		require.Equal(t, 2, pieces.Len())
		sum := pieces.Correction[0] + pieces.Correction[1]
		if pieces.First[1] < pieces.Last[0] {
			sum += pieces.Last[0]
		}
		require.Equal(t, 3.0, sum, "edge %d", edge)
	}
}

// TestExpandOddValues requires that NaN and infinite values remain the first, last, min and max, and that there are at
// most as many resets.
func TestExpandOddValues(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	var x Expander
	for _, values := range [][]float64{
		{nan, nan, nan}, {1, nan, 3, 4}, {nan, 1, 2, nan}, {nan, 1, 2, 3, nan}, {inf, 1, 2}, {1, 2, -inf, 5, 6}, {inf, -inf, 1, 2}, {1, inf, -inf, 2},
		{15, inf, nan, 3, nan}, {nan, inf, nan, 3, 15}, {15, inf, nan, 3, 15},
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
		require.LessOrEqual(t, got.Resets[0], b.Resets[0], "%v became %v", values, s.V)
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

// TestExpandStaleMarkers requires that a stale marker has the time at which the next sample was due.
func TestExpandStaleMarkers(t *testing.T) {
	var x Expander
	for _, c := range []struct {
		times []int64 // the last is the time of the marker
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

// TestCutBuckets requires that a cut bucket has the pieces of its expanded samples. Other buckets stay unchanged.
func TestCutBuckets(t *testing.T) {
	var x Expander
	for seed := range soak.Seeds(t, 400) {
		r := rand.New(rand.NewPCG(seed, 4))
		var b, want, got rollup.Buckets
		var made chunk.Samples
		for hour := range 4 {
			s := drawnKinds[r.IntN(len(drawnKinds))].samples(r, 1+r.IntN(40))
			for i := range s.T {
				s.T[i] += int64(hour) * hourMS
			}
			rollup.AppendEvery(&b, s, hourMS)
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
				want.AppendRange(&b, i, i+1, CutColumns)
				continue
			}
			x.Expand(&made, &b, i)
			rollup.AppendCells(&want, &made, append([]int64{b.Start[i]}, edges...), hourMS)
		}
		require.Equal(t, want.Count, got.Count, "seed %d", seed)
		require.Equal(t, [][]int64{want.Start, want.End, want.FirstT, want.LastT}, [][]int64{got.Start, got.End, got.FirstT, got.LastT}, "seed %d", seed)
		require.Equal(t, [][]float64{want.First, want.Last, want.Sum}, [][]float64{got.First, got.Last, got.Sum}, "seed %d", seed)
		require.Equal(t, [][]uint32{want.Changes, want.Resets}, [][]uint32{got.Changes, got.Resets}, "seed %d", seed)
	}
}

// TestExpandedCountersRiseEvenly requires that an evenly rising counter is expanded evenly, also with one reset.
func TestExpandedCountersRiseEvenly(t *testing.T) {
	var x Expander
	for seed := range soak.Seeds(t, 400) {
		r := rand.New(rand.NewPCG(seed, 3))
		n, rate := 60+r.IntN(180), 1+r.Float64()*100
		var in, s chunk.Samples
		v, resets := r.Float64()*1e6, r.IntN(2) // With more than one reset, the heights of the peaks are unknown.
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

// TestExpandContradictions requires that columns that contradict each other are expanded to Count samples.
func TestExpandContradictions(t *testing.T) {
	var x Expander
	for seed := range soak.Seeds(t, 3000) {
		r := rand.New(rand.NewPCG(seed, 8))
		b := bucketOf(t, drawnKinds[r.IntN(len(drawnKinds))].samples(r, 2+r.IntN(30)))
		value := func() float64 {
			return []float64{0, 1, -1, r.NormFloat64() * 1e9, math.NaN(), math.Inf(1), math.MaxFloat64, b.Min[0], b.Max[0]}[r.IntN(9)]
		}
		for range 1 + r.IntN(3) {
			switch r.IntN(7) {
			case 0:
				b.First[0] = value()
			case 1:
				b.Last[0] = value()
			case 2:
				b.Min[0] = value()
			case 3:
				b.Max[0] = value()
			case 4:
				b.Sum[0] = value()
			case 5:
				b.Correction[0] = value()
			default:
				b.Changes[0], b.Resets[0] = uint32(r.IntN(40)), uint32(r.IntN(40))
			}
		}
		var s chunk.Samples
		x.Expand(&s, b, 0)
		require.Len(t, s.V, int(b.Count[0]), "seed %d", seed)
		var pieces rollup.Buckets
		x.Cut(&pieces, b, []int64{hourMS / 3, hourMS / 2})
	}
}

// withStarts returns floats with start timestamps of a kind in soak.StartKinds.
func withStarts(s *chunk.Samples, kind string, seed uint64) *chunk.Samples {
	starts := soak.Starts{Rand: rand.New(rand.NewPCG(seed, 8)), Kind: kind}
	out, before := &chunk.Samples{}, math.Inf(-1)
	for k, at := range s.T {
		out.AppendFloat(at, starts.Next(at, s.V[k] < before), s.V[k])
		before = s.V[k]
	}
	return out
}

// TestExpandKeepsStarts requires that expanded samples keep the first and last start and mostly the start resets.
func TestExpandKeepsStarts(t *testing.T) {
	var x Expander
	kinds := []drawn{drawnKinds[1], drawnKinds[3], drawnKinds[4], drawnKinds[7], drawnKinds[9]}
	for _, kind := range soak.StartKinds {
		for _, d := range kinds {
			resets, corrections, overlaps, of := 0, 0, 0, 200
			for seed := range soak.Seeds(t, of) {
				r := rand.New(rand.NewPCG(seed, 19))
				b := bucketOf(t, withStarts(d.samples(r, 1+r.IntN(60)), kind, seed))
				var s chunk.Samples
				x.Expand(&s, b, 0)
				got := bucketOf(t, &s)
				require.Equal(t, [][]int64{b.FirstT, b.LastT}, [][]int64{got.FirstT, got.LastT}, "%s, %s, seed %d", d.name, kind, seed)
				for k := 1; k < len(s.T); k++ {
					require.Greater(t, s.T[k], s.T[k-1], "%s, %s, seed %d", d.name, kind, seed)
				}
				if b.FirstST == nil {
					require.Nil(t, got.FirstST)
					resets, corrections, overlaps = resets+1, corrections+1, overlaps+1
					continue
				}
				require.Equal(t, [][]int64{b.FirstST, b.LastST}, [][]int64{got.FirstST, got.LastST}, "%s, %s, seed %d: %v", d.name, kind, seed, s.ST)
				resets += asCount(slices.Equal(b.StartResets, got.StartResets))
				overlaps += asCount((b.Flags[0]^got.Flags[0])&rollup.StartsOverlap == 0)
				slack := 1e-14 * max(math.Abs(b.Min[0]), math.Abs(b.Max[0])) * float64(len(s.T)+1)
				corrections += asCount(math.Abs(b.StartCorrection[0]-got.StartCorrection[0]) <= slack)
			}
			require.Greater(t, resets, of*97/100, "%s, %s", d.name, kind)
			require.Greater(t, overlaps, of*75/100, "%s, %s", d.name, kind)
			if !slices.Contains([]string{"restarts", "partly deltas", "any"}, kind) { // Corrections of pieces are estimates.
				require.Greater(t, corrections, of*97/100, "%s, %s", d.name, kind)
			}
		}
	}
}

// TestCutHasItsColumns requires that CutColumns includes the columns of all floats: the pieces of a bucket are built
// from samples, so they have all of these columns.
func TestCutHasItsColumns(t *testing.T) {
	require.Equal(t, rollup.AllColumns&^rollup.ColumnSketches, CutColumns,
		"CutColumns needs every column except sketches")
}

// BenchmarkExpand expands one-hour buckets of each kind of samples.
func BenchmarkExpand(b *testing.B) {
	for i := range drawnKinds {
		d := &drawnKinds[i]
		b.Run(d.name, func(b *testing.B) {
			var buckets rollup.Buckets
			for seed := range uint64(64) {
				var one rollup.Buckets
				rollup.AppendEvery(&one, d.samples(rand.New(rand.NewPCG(seed, 1)), 60), hourMS)
				buckets.AppendRange(&one, 0, 1, rollup.AllColumns)
			}
			var x Expander
			var s chunk.Samples
			b.ReportAllocs()
			for b.Loop() {
				s.Reset()
				for k := range buckets.End {
					x.Expand(&s, &buckets, k)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/bucket")
		})
	}
}
