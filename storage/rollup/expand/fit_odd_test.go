package expand

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// oddKinds generate values whose sum is NaN, infinite or too imprecise to determine the values.
var oddKinds = []drawn{
	{"counter with NaN", true, func(r *rand.Rand, _ float64, k int) float64 {
		if r.IntN(40) == 0 {
			return math.NaN()
		}
		return 15*float64(k%40) + float64(r.IntN(10))
	}},
	{"gauge with infinities", false, func(r *rand.Rand, _ float64, _ int) float64 {
		return []float64{math.Inf(1), math.Inf(-1), float64(r.IntN(10))}[min(r.IntN(60), 2)]
	}},
	{"gauge with NaN and infinities", false, func(r *rand.Rand, _ float64, _ int) float64 {
		return []float64{math.Inf(1), math.NaN(), r.NormFloat64()}[min(r.IntN(30), 2)]
	}},
	{"special values", false, func(r *rand.Rand, _ float64, _ int) float64 {
		special := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e-310}
		if r.IntN(3) == 0 {
			return special[r.IntN(len(special))]
		}
		return r.NormFloat64()
	}},
	{"constant or NaN", false, func(_ *rand.Rand, _ float64, k int) float64 {
		return []float64{math.NaN(), 3}[k%2]
	}},
	{"constant with NaN", false, func(r *rand.Rand, _ float64, _ int) float64 {
		return []float64{math.NaN(), 3, 3, 3}[r.IntN(4)]
	}},
	{"few values with NaN", false, func(r *rand.Rand, _ float64, _ int) float64 {
		return []float64{math.NaN(), 0, 1, 2}[r.IntN(4)]
	}},
	{"mostly NaN", false, func(r *rand.Rand, _ float64, _ int) float64 {
		return []float64{math.NaN(), r.NormFloat64()}[r.IntN(8)/7]
	}},
	{"falling, with NaN", false, func(r *rand.Rand, _ float64, k int) float64 {
		if r.IntN(10) == 0 {
			return math.NaN()
		}
		return -float64(k)
	}},
	{"huge of all sizes", false, func(r *rand.Rand, _ float64, _ int) float64 {
		return math.Pow(10, r.Float64()*290) * float64(1-2*r.IntN(2))
	}},
	{"huge", false, func(r *rand.Rand, _ float64, _ int) float64 { return 1e300 * r.NormFloat64() }},
	{"huge counter", true, func(r *rand.Rand, v float64, _ int) float64 {
		if r.IntN(100) == 0 {
			return 0
		}
		return v + 1e300*r.Float64()
	}},
	{"overflowing", false, func(r *rand.Rand, _ float64, _ int) float64 {
		if r.IntN(30) == 0 {
			return math.MaxFloat64 * (r.Float64() - 0.5)
		}
		return r.NormFloat64()
	}},
	{"just above 2^53", false, func(r *rand.Rand, _ float64, _ int) float64 {
		return 1<<53 + 2*float64(r.IntN(4))
	}},
	{"canceling", false, func(r *rand.Rand, _ float64, _ int) float64 {
		return []float64{1e16, -1e16, 1, 3.3, -2}[r.IntN(5)]
	}},
	{"of very different sizes", false, func(r *rand.Rand, _ float64, _ int) float64 {
		return math.Pow(10, float64(r.IntN(30)-15))
	}},
}

// oddLoss counts the reconstructed buckets that differ from the original ones in a property.
type oddLoss struct{ changes, resets, increases, extremes, sums int }

func (l *oddLoss) add(b, got *rollup.Buckets) {
	same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
	largest := 0.0 // Increases may round by as much as the terms that they consist of.
	for _, v := range [...]float64{b.Correction[0], b.First[0], b.Last[0]} {
		if areFinite(v) {
			largest = max(largest, math.Abs(v))
		}
	}
	l.changes += asCount(b.Changes[0] != got.Changes[0])
	l.resets += asCount(b.Resets[0] != got.Resets[0])
	l.increases += asCount(!same(b.Correction[0], got.Correction[0]) &&
		!(math.Abs(b.Correction[0]-got.Correction[0]) <= 1e-12*largest))
	l.extremes += asCount(!same(b.First[0], got.First[0]) || !same(b.Last[0], got.Last[0]) ||
		!same(b.Min[0], got.Min[0]) || !same(b.Max[0], got.Max[0]))
	// Sums of finite values may overflow, but samples that are NaN or infinite determine the sum.
	if math.IsNaN(b.Sum[0]) || math.IsInf(b.Min[0], 0) || math.IsInf(b.Max[0], 0) {
		l.sums += asCount(!same(b.Sum[0], got.Sum[0]))
	}
}

// oddBucket returns a bucket of samples every 15 seconds that is made from 5m buckets.
func oddBucket(d *drawn, seed uint64, width int64) *rollup.Buckets {
	r := rand.New(rand.NewPCG(seed, 23))
	n := int(width / 15_000)
	if seed%3 == 0 {
		n = 1 + r.IntN(n)
	}
	var s chunk.Samples
	v := float64(r.IntN(1000))
	for k := range n {
		v = d.next(r, v, k)
		s.AppendFloat(1+int64(k)*15_000, 0, v)
	}
	var fine, b rollup.Buckets
	rollup.AppendEvery(&fine, &s, hourMS/12)
	rollup.Coarsen(&b, &fine, width)
	return &b
}

// TestExpandOddKinds requires that reconstructed values always have the first, last, min and max, and that of 1,000
// buckets at most one has other changes or resets, and at most four have another increase. With setOdd alone, 40 % of
// 5m buckets and 60 % of 1h buckets have other changes.
func TestExpandOddKinds(t *testing.T) {
	const of = 200
	var x Expander
	for _, width := range [...]int64{hourMS / 12, hourMS} {
		var loss oddLoss
		for i := range oddKinds {
			before := loss
			for seed := range soak.Seeds(t, of) {
				b := oddBucket(&oddKinds[i], seed, width)
				var s chunk.Samples
				x.Expand(&s, b, 0)
				var got rollup.Buckets
				rollup.AppendEvery(&got, &s, width)
				require.Equal(t, 1, got.Len())
				require.Equal(t, b.Count, got.Count)
				loss.add(b, &got)
			}
			if loss != before {
				t.Logf("%d ms, %s: %+v became %+v", width, oddKinds[i].name, before, loss)
			}
		}
		all := of * len(oddKinds)
		require.Zero(t, loss.extremes+loss.sums)
		require.LessOrEqual(t, max(loss.changes, loss.resets), all/1000, "of %d", all)
		require.LessOrEqual(t, loss.increases, all*4/1000, "of %d", all)
	}
}

// TestExpandOneHugeValue requires that values are found for buckets with one value next to which the others are
// negligible.
func TestExpandOneHugeValue(t *testing.T) {
	nan := math.NaN()
	for _, values := range [][]float64{
		{1e17, 2, 0, 1, 0, 0, 1, 1, 1, 0, 0, 2, 0, 0, 2, 2, 2, 0, 0, 1, 0, 0, 0, 2, 2, 2, 0, 0, 0, 0},
		{1.0000000000000003e+133, 2, 2, 1, 1, 2, 1, nan, 1, 2, 1, 0, 2},
	} {
		var in, s chunk.Samples
		for k, v := range values {
			in.AppendFloat(int64(k+1)*1000, 0, v)
		}
		b := bucketOf(t, &in)
		var x Expander
		x.Expand(&s, b, 0)
		var loss oddLoss
		loss.add(b, bucketOf(t, &s))
		require.Equal(t, oddLoss{}, loss, "%v became %v", values, s.V)
	}
}
