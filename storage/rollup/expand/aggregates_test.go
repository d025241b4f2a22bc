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

// TestPiecesOfAggregatesKeepTheirFlag requires that the pieces of aggregates keep the flag and the number of samples.
func TestPiecesOfAggregatesKeepTheirFlag(t *testing.T) {
	var x Expander
	for i := range drawnKinds {
		for seed := range soak.Seeds(t, 20) {
			r := rand.New(rand.NewPCG(seed, 10))
			var hours, pieces rollup.Buckets
			fine := aggregatesOf(drawnKinds[i].samples(r, 1+r.IntN(200)), rollup.FiveMinutes.Width(), r.IntN(2) == 0)
			rollup.CoarsenStored(&hours, fine, "g", rollup.OneHour.Width())
			x.Cut(&pieces, &hours, []int64{hours.End[0] - 1_234_567})
			for _, flags := range pieces.Flags {
				require.Equal(t, rollup.Aggregated, flags&rollup.Aggregated)
			}
			require.Equal(t, hours.Samples(), pieces.Samples())
		}
	}
}

// aggregatesOf returns the aggregates of samples as another system may have stored them. If known is set, first and
// last values are exact, as for a counter. Otherwise they are the mean of the bucket.
func aggregatesOf(s *chunk.Samples, width int64, known bool) *rollup.Buckets {
	var own, made rollup.Buckets
	rollup.AppendEvery(&own, s, width)
	for i, end := range own.End {
		a := rollup.Aggregate{
			End: end, Count: own.Count[i], Sum: own.Sum[i], Min: own.Min[i], Max: own.Max[i], First: own.First[i],
			Last: own.Last[i], FirstT: own.FirstT[i], LastT: own.LastT[i], Correction: own.Correction[i],
		}
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

// TestExpandAggregates requires that the samples of aggregates have the exact count, sum, min and max. The samples of a
// counter without resets must also have the first and the last value.
func TestExpandAggregates(t *testing.T) {
	r := rand.New(rand.NewPCG(soak.FirstSeed(t), 12))
	for name, next := range map[string]func(v float64) float64{
		"gauge":    func(float64) float64 { return r.NormFloat64() * 10 },
		"walk":     func(v float64) float64 { return v + r.NormFloat64() },
		"up":       func(float64) float64 { return float64(min(r.IntN(20), 1)) },
		"spike":    func(float64) float64 { return []float64{3.3, 3.3, 3.3, 1e6}[r.IntN(4)] },
		"negative": func(float64) float64 { return -float64(r.IntN(9)) },
		"infinite": func(float64) float64 { return []float64{1, math.Inf(1)}[r.IntN(9)/8] },
		"counter":  func(v float64) float64 { return v + float64(max(r.IntN(13)-6, 0)) },
		"resets": func(v float64) float64 {
			if r.IntN(9) == 0 {
				return float64(r.IntN(3))
			}
			return v + float64(r.IntN(13))
		},
	} {
		for _, step := range []int64{15_000, 60_000, 100_000, 150_000, 290_000, 400_000} {
			var s chunk.Samples
			v := 5.0
			for i := range int64(1000) {
				v = next(v)
				s.AppendFloat(1_600_000_123_000+i*step, 0, v)
			}
			fine := aggregatesOf(&s, rollup.FiveMinutes.Width(), name == "counter" || name == "resets")
			var coarse rollup.Buckets
			rollup.CoarsenStored(&coarse, fine, "g", rollup.OneHour.Width())
			requireExpanded(t, fine, rollup.FiveMinutes.Width(), name == "counter")
			requireExpanded(t, &coarse, rollup.OneHour.Width(), name == "counter")
		}
	}
}

// requireExpanded compares the samples of each bucket with the bucket. If isRising is set, it also compares the first
// and last value.
func requireExpanded(t testing.TB, b *rollup.Buckets, width int64, isRising bool) {
	t.Helper()
	var x Expander
	for i := range b.End {
		var s chunk.Samples
		x.Expand(&s, b, i)
		var own rollup.Buckets
		rollup.AppendEvery(&own, &s, width)
		require.Equal(t, b.Count[i:i+1], own.Count)
		require.Equal(t, b.Min[i:i+1], own.Min)
		require.Equal(t, b.Max[i:i+1], own.Max)
		if math.IsInf(b.Sum[i], 0) {
			require.Equal(t, b.Sum[i], own.Sum[0])
		} else {
			require.InDelta(
				t, b.Sum[i], own.Sum[0], 1e-13*float64(b.Count[i])*max(math.Abs(b.Min[i]), math.Abs(b.Max[i])),
			)
		}
		if isRising {
			require.Equal(t, b.First[i:i+1], own.First)
			require.Equal(t, b.Last[i:i+1], own.Last)
			require.Zero(t, own.Resets[0])
		}
	}
}
