package chunk

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireSame fails unless want and got hold the same samples, bit for bit.
func requireSame(t testing.TB, want, got *Samples) {
	t.Helper()
	require.Equal(t, len(want.T), len(got.T), "number of floats")
	for i := range want.T {
		if want.T[i] != got.T[i] || math.Float64bits(want.V[i]) != math.Float64bits(got.V[i]) ||
			startOf(want.ST, i) != startOf(got.ST, i) {
			require.FailNow(t, "another float", "%d: want %d %d %x, got %d %d %x", i,
				want.T[i], startOf(want.ST, i), want.V[i], got.T[i], startOf(got.ST, i), got.V[i])
		}
	}
	require.Equal(t, len(want.H), len(got.H), "number of histograms")
	for i := range want.H {
		require.Equal(t, want.H[i].T, got.H[i].T, "timestamp of histogram %d", i)
		require.Equal(t, AppendHistogramBytes(nil, want.H[i]), AppendHistogramBytes(nil, got.H[i]), "histogram %d", i)
	}
}

func requireRoundTrip(t testing.TB, s *Samples) []byte {
	t.Helper()
	b := AppendChunk(nil, s)
	var got Samples
	require.NoError(t, Decode(b, &got))
	requireSame(t, s, &got)
	return b
}

func TestRoundTripShapes(t *testing.T) {
	for _, shape := range shapes() {
		t.Run(shape.name, func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 5, 120, 480, 1024, 1025, 5000} {
				s := shape.samples(n, 1)
				b := requireRoundTrip(t, s)
				t.Logf("%5d samples: %.3f bytes a sample", n, float64(len(b))/float64(s.Len()))
			}
		})
	}
}

// TestRoundTripMixtures checks the round trip of series that combine times, values and starts of different shapes,
// which change within a series.
func TestRoundTripMixtures(t *testing.T) {
	all := shapes()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var s Samples
		for range 1 + r.IntN(4) {
			n := 1 + r.IntN(700)
			times, values := all[r.IntN(len(all))].samples(n, seed), all[r.IntN(len(all))].samples(n, seed)
			for i := range min(len(times.T), len(values.T)) {
				s.AppendFloat(times.T[i], startOf(values.ST, i), values.V[i])
			}
		}
		s.Normalize()
		b := requireRoundTrip(t, &s)
		again := s
		again.Normalize()
		require.Equal(t, b, AppendChunk(nil, &again))
		require.LessOrEqual(t, len(b), 40+26*s.Len(), "worse than samples as they are, give or take a byte")
	}
}
