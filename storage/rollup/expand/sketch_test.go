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

// storedHours returns the 1h buckets of samples after they have been encoded and decoded.
func storedHours(t *testing.T, s *chunk.Samples) *rollup.Buckets {
	var fine, hours, got, back rollup.Buckets
	rollup.AppendStored(&fine, s, "m", hourMS/12)
	for from := 0; from < fine.Len(); from += 24 { // 5m buckets are encoded and decoded before they are coarsened.
		part := fine.Slice(from, min(from+24, fine.Len()))
		require.NoError(t, rollup.Decode(rollup.AppendChunk(nil, &part, hourMS/12, 1), rollup.AllColumns, &got))
	}
	require.True(t, fine.Equal(&got))
	rollup.CoarsenStored(&hours, &got, "m", hourMS)
	require.NoError(t, rollup.Decode(rollup.AppendChunk(nil, &hours, hourMS, 1), rollup.AllColumns, &back))
	require.True(t, hours.Equal(&back))
	return &back
}

// TestQuantilesOfSketches requires that quantiles over hours are within 1 % of the quantiles of the samples.
func TestQuantilesOfSketches(t *testing.T) {
	const accuracy, startMS = 0.01, 1_700_006_400_000 // a full hour
	r := rand.New(rand.NewPCG(soak.FirstSeed(t), 5))
	kinds := append([]drawn{
		{"log-normal", false, func(r *rand.Rand, _ float64, _ int) float64 { return math.Exp(2 * r.NormFloat64()) }},
		{"around 0", false, func(r *rand.Rand, _ float64, _ int) float64 { return r.NormFloat64() }},
	}, drawnKinds...)
	questions := 0
	for seed := range soak.Seeds(t, 20) {
		for _, kind := range kinds {
			var s chunk.Samples
			own, v := rand.New(rand.NewPCG(seed, 0)), 0.0
			for k := range 12 * 240 {
				v = kind.next(own, v, k)
				s.AppendFloat(startMS+int64(k+1)*15_000, 0, v)
			}
			hours := storedHours(t, &s)
			from := r.IntN(hours.Len())
			to := from + 1 + r.IntN(hours.Len()-from)
			var made chunk.Samples
			for i := from; i < to; i++ {
				require.True(t, AppendSketch(&made, hours, i), kind.name)
			}
			var raw []float64
			for i, at := range s.T {
				if at > hours.Start[from] && at <= hours.End[to-1] {
					raw = append(raw, s.V[i])
				}
			}
			require.Len(t, made.V, len(raw))
			slices.Sort(raw)
			slices.Sort(made.V)
			for range 180 {
				rank := r.Float64() * float64(len(raw)-1)
				k := int(rank)
				next, weight := min(k+1, len(raw)-1), rank-float64(k)
				want := raw[k]*(1-weight) + raw[next]*weight
				got := made.V[k]*(1-weight) + made.V[next]*weight
				require.LessOrEqual(t, math.Abs(got-want),
					1.0000001*accuracy*(math.Abs(raw[k])*(1-weight)+math.Abs(raw[next])*weight), kind.name)
				questions++
			}
			require.Equal(t, []float64{raw[0], raw[len(raw)-1]}, []float64{made.V[0], made.V[len(made.V)-1]}, kind.name)
		}
	}
	require.Greater(t, questions, 100_000)
}
