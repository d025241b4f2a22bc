package promql

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNthStandsWhereSortingPutsIt(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		v := make([]float64, 1+rnd.IntN(40))
		for i := range v {
			switch rnd.IntN(12) {
			case 0:
				v[i] = math.NaN()
			case 1:
				v[i] = math.Inf(1 - 2*rnd.IntN(2))
			default:
				v[i] = float64(rnd.IntN(20)) - 10
			}
		}
		sorted := slices.Clone(v)
		slices.Sort(sorted)
		k := rnd.IntN(len(v))
		require.True(t, near(sorted[k], selectNth(v, k), 0), "place %d of %v", k, sorted)
		if k+1 < len(v) {
			require.True(t, near(sorted[k+1], smallestOf(v[k+1:]), 0), "place %d of %v", k+1, sorted)
		}
		slices.Sort(v)
		require.True(t, slices.EqualFunc(sorted, v, func(a, b float64) bool { return near(a, b, 0) }),
			"%v became %v", sorted, v)
	}
}
