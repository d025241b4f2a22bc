package promql

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// TestASortedWindowHoldsItsValuesInOrder checks that a window holds the same values as a sorted copy, and returns the
// same quantiles, however far it moves.
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
		disjoint := seed%2 == 0
		var w sortedWindow
		for range 2 {
			w.reset()
			for from, to := 0, 0; to < len(v); {
				to = min(len(v), to+1+r.IntN(1+r.IntN(50)))
				from = min(to-1, from+r.IntN(1+r.IntN(50)))
				if disjoint {
					from = max(from, w.to)
				}
				w.moveTo(v, from, to)
				want := slices.Sorted(slices.Values(v[from:to]))
				require.Len(t, w.values, len(want))
				for range r.IntN(3) {
					i := r.IntN(len(want))
					j := min(i+r.IntN(2), len(want)-1)
					a, b := w.valuesAt(i, j)
					require.True(t, same(a, want[i]), "%v %v %v", want, i, a)
					require.True(t, same(b, want[j]) || math.IsNaN(a), "%v %v %v", want, j, b)
				}
				values := slices.Clone(w.values)
				if w.isUnsorted {
					slices.Sort(values)
				}
				for i := range want {
					require.True(t, same(want[i], values[i]), "%v %v", want, w.values)
				}
			}
		}
	}
}

// BenchmarkQuantile computes quantiles of consecutive windows with the samples of a minute, and with those of an hour.
func BenchmarkQuantile(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	v := make([]float64, 24000)
	for i := range v {
		v[i] = r.NormFloat64()
	}
	for _, n := range []int{4, 60, 240} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var w sortedWindow
			for b.Loop() {
				w.reset()
				for at := 0; at < len(v); at += n {
					w.moveTo(v, at, at+n)
					w.quantile(0.9)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(v)/n), "ns/window")
		})
	}
}
