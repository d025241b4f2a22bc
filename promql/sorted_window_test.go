package promql

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A window that moves by a little, by much, or not at all holds what sorting its values gives.
func TestASortedWindowHoldsItsValuesInOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 45))
		v := make([]float64, 1+r.IntN(200))
		for i := range v {
			switch v[i] = float64(r.IntN(20)); r.IntN(30) {
			case 0:
				v[i] = math.NaN()
			case 1:
				v[i] = math.Inf(1 - 2*r.IntN(2))
			}
		}
		var w sortedWindow
		for range 2 {
			w.reset()
			for from, to := 0, 0; to < len(v); {
				to = min(len(v), to+1+r.IntN(1+r.IntN(50)))
				from = min(to-1, from+r.IntN(1+r.IntN(50)))
				w.move(v, from, to)
				want := slices.Sorted(slices.Values(v[from:to]))
				require.Len(t, w.values, len(want))
				for i := range want {
					require.True(t, want[i] == w.values[i] || math.IsNaN(want[i]) && math.IsNaN(w.values[i]), "%v %v", want, w.values)
				}
			}
		}
	}
}
