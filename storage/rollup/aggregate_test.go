package rollup

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/soak"
)

// drawAggregates returns n random buckets of aggregates.
func drawAggregates(r *rand.Rand, n int, width int64) *Buckets {
	b := &Buckets{}
	end := width * (1000 + r.Int64N(100))
	for range n {
		end += width * (1 + r.Int64N(3)/2)
		a := Aggregate{End: end, Count: 1 + r.Uint32N(50)}
		a.FirstT = end - width + 1 + r.Int64N(width/2)
		a.LastT = a.FirstT + r.Int64N(width/2)
		a.Min, a.Max = float64(r.IntN(100)), float64(100+r.IntN(1000))
		if r.IntN(3) == 0 || a.Count == 1 {
			a.Max = a.Min
		}
		mean := a.Min + (a.Max-a.Min)*r.Float64()
		if a.Sum = mean; a.Count > 1 {
			a.Sum = a.Min + a.Max + mean*float64(a.Count-2)
		}
		a.First, a.Last = mean, mean
		if r.IntN(2) == 0 {
			a.First, a.Last = a.Min, a.Max
		}
		if r.IntN(4) == 0 && a.Count > 1 {
			a.Correction = float64(r.IntN(100))
		}
		b.AppendAggregate(a, width)
	}
	return b
}

// TestAggregatesAreStored requires that encoded and decoded buckets of aggregates are equal, bit for bit.
func TestAggregatesAreStored(t *testing.T) {
	r := rand.New(rand.NewPCG(soak.FirstSeed(t), 9))
	for range 500 {
		b := drawAggregates(r, 1+r.IntN(40), FiveMinutes.Width())
		require.NoError(t, b.CheckAggregates(FiveMinutes.Width()))
		var back Buckets
		require.NoError(t, Decode(AppendChunk(nil, b, FiveMinutes.Width(), 3), AllColumns, &back))
		require.True(t, b.Equal(&back))
	}
}

// TestAggregatesKeepTheirFlag requires that wider buckets keep the flag, and that their count and sum stay exact.
func TestAggregatesKeepTheirFlag(t *testing.T) {
	r := rand.New(rand.NewPCG(soak.FirstSeed(t), 10))
	for range 300 {
		b := drawAggregates(r, 1+r.IntN(40), FiveMinutes.Width())
		var hours Buckets
		CoarsenStored(&hours, b, "g", OneHour.Width())
		require.Equal(t, b.Samples(), hours.Samples())
		sum := 0.0
		for i := range hours.End {
			require.Equal(t, Aggregated, hours.Flags[i])
			require.Nil(t, hours.Sketches)
			sum += hours.Sum[i]
		}
		want := 0.0
		for _, v := range b.Sum {
			want += v
		}
		require.InEpsilon(t, want+1, sum+1, 1e-12)
	}
}

// TestExtendOfAggregates requires that only a sample at the end of the bucket extends it: Aggregate requires LastT <
// End, so that sample is new.
func TestExtendOfAggregates(t *testing.T) {
	const width = 300_000
	var stored Buckets
	stored.AppendAggregate(Aggregate{
		End: 3 * width, Count: 10, Sum: 55, Min: 1, Max: 10, First: 1, Last: 10, FirstT: 2*width + 10_000,
		LastT: 2*width + 20_000,
	}, width)
	for at, joins := range map[int64]bool{
		2*width + 1: false, 2*width + 15_000: false, 2*width + 100_000: false, 3*width - 1: false, 3 * width: true,
	} {
		var added Buckets
		AppendEvery(&added, &chunk.Samples{T: []int64{at}, V: []float64{3}}, width)
		for _, order := range [][2]*Buckets{{&stored, &added}, {&added, &stored}} {
			var a, b, all Buckets
			a.AppendRange(order[0], 0, 1, AllColumns)
			b.AppendRange(order[1], 0, 1, AllColumns)
			extended, left := Extend(&all, &a, &b, width)
			require.Equal(t, joins, extended == 1, at)
			require.Equal(t, joins, left == 0, at)
			if joins {
				require.Equal(t, uint32(11), all.Count[0])
				require.Equal(t, 58.0, all.Sum[0])
				require.Equal(t, Aggregated, all.Flags[0])
				var again, same Buckets
				AppendEvery(&again, &chunk.Samples{T: []int64{at}, V: []float64{3}}, width)
				_, left := Extend(&same, &all, &again, width)
				require.Equal(t, 1, left, "the same sample again")
			}
		}
	}
	var a, b, all Buckets
	a.AppendRange(&stored, 0, 1, AllColumns)
	b.AppendRange(&stored, 0, 1, AllColumns)
	_, left := Extend(&all, &a, &b, width)
	require.Equal(t, 10, left)
	require.False(t, math.IsNaN(all.Sum[0]))
}

// TestPossibleAggregates checks whether sums are possible with a count, min and max.
func TestPossibleAggregates(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		n               uint32
		sum, least, max float64
		want            bool
	}{
		{1, 0.1, 0.1, 0.1, true}, {1, 0.1, 0.1, 0.2, false}, {1, 0.3, 0.1, 0.1, false},
		{2, 0.1 + 0.2, 0.1, 0.2, true}, {2, 0.2, 0.1, 0.2, false},
		{3, 12, 1, 10, true}, {3, 21, 1, 10, true}, {3, 11.9, 1, 10, false}, {3, 21.1, 1, 10, false},
		{3, 12, 10, 1, false}, {3, -21, -10, -1, true}, {3, -22, -10, -1, false}, {3, math.NaN(), 1, 10, false},
		{3, inf, 1, 10, false},
		{3, inf, 1, inf, true}, {3, math.NaN(), -inf, inf, true}, {3, inf, 1e307, 1e307, false},
		{3, 7, 1, inf, false}, {3, math.NaN(), 1, inf, false}, {3, -inf, 1, inf, false}, {3, 7, -inf, 1, false},
		{3, -inf, -inf, 1, true}, {3, inf, -inf, 1, false}, {3, inf, -inf, inf, false}, {3, inf, inf, inf, true},
		{1, inf, math.MaxFloat64, inf, true}, {3, -inf, -inf, -math.MaxFloat64, true}, // Thanos' windows of infinities.
		{3, 1, math.NaN(), 1, false}, {math.MaxUint32, inf, 1e308, 1.1e308, true},
	} {
		require.Equal(t, c.want, IsPossible(c.n, c.sum, c.least, c.max), c)
	}
}

// aggregatesOf returns the aggregates of samples as another system may have stored them. If known is set, first and
// last values are exact, as for a counter. Otherwise they are the mean of the bucket.
func aggregatesOf(s *chunk.Samples, width int64, known bool) *Buckets {
	var own, made Buckets
	AppendEvery(&own, s, width)
	for i := range own.End {
		a := own.aggregate(i)
		if !known {
			mean := min(max(a.Sum/float64(a.Count), a.Min), a.Max)
			a.First, a.Last, a.Correction = mean, mean, 0
		}
		if a.LastT == a.End { // Aggregates don't include the end.
			a.LastT--
			a.FirstT = min(a.FirstT, a.LastT)
		}
		made.AppendAggregate(a, width)
	}
	return &made
}
