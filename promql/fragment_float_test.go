package promql

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"
)

// TestResetsAreThoseOfLiveSamples checks that liveSamplesWithResets returns the same samples as liveSamples, and the
// resets between these samples. Among the values are stale markers, NaN and infinities.
func TestResetsAreThoseOfLiveSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	odd := []float64{math.NaN(), math.Float64frombits(value.StaleNaN), math.Inf(1), math.Inf(-1), 0,
		math.Copysign(0, -1)}
	found, stale := 0, 0
	for range 2000 {
		r := &rawReader{it: &iterator{}}
		rate := rng.Float64() * rng.Float64()
		v := 0.
		for i := range rng.IntN(40) {
			if v += float64(rng.IntN(3)); rng.Float64() < rate {
				v = float64(rng.IntN(5))
			}
			sample := v
			if rng.Float64() < rate/2 {
				sample = odd[rng.IntN(len(odd))]
			}
			r.it.samples.AppendFloat(int64(i), 0, sample)
		}
		if n := r.it.samples.Len(); n > 0 {
			r.it.floats = rng.IntN(n)
		}
		r.resets = append(r.resets, 99) // a reset of the previous series
		times, values := r.liveSamplesWithResets()
		wantTimes, wantValues := r.liveSamples()
		require.Equal(t, wantTimes, times)
		require.Len(t, values, len(wantValues))
		resets := []int{}
		for i, f := range wantValues {
			require.Equal(t, math.Float64bits(f), math.Float64bits(values[i]))
			if i > 0 && f < wantValues[i-1] {
				resets = append(resets, i)
			}
		}
		require.Equal(t, resets, append([]int{}, r.resets...))
		found += len(resets)
		stale += r.it.samples.Len() - r.it.floats - len(values)
	}
	require.Positive(t, found)
	require.Positive(t, stale)
}
