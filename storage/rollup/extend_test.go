package rollup

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestExtend requires that adding samples in two parts, in either order, gives the same buckets as all samples at once,
// and that adding a part again changes nothing.
func TestExtend(t *testing.T) {
	const width = 300_000
	rng := rand.New(rand.NewPCG(soak.FirstSeed(t), 2))
	for range 500 {
		var all chunk.Samples
		at, v := int64(0), 0.0
		for range 2 + rng.IntN(40) {
			at += 1 + rng.Int64N(100_000)
			v = float64(rng.IntN(50)) + v*float64(rng.IntN(2))
			all.AppendFloat(at, 0, v)
		}
		n := 1 + rng.IntN(all.Len()-1)
		parts := [2]chunk.Samples{}
		for i := range all.T {
			k := 0
			if i >= n {
				k = 1
			}
			parts[k].AppendFloat(all.T[i], 0, all.V[i])
		}
		of := func(s *chunk.Samples) *Buckets {
			b := &Buckets{}
			AppendEvery(b, s, width)
			return b
		}
		first := rng.IntN(2)
		want := of(&all)
		var got Buckets
		_, left := Extend(&got, of(&parts[first]), of(&parts[1-first]), width)
		require.Zero(t, left)
		requireAlike(t, want, &got, "")
		want = &Buckets{} // Moments are rounded, and merging rounds them again.
		want.AppendRange(&got, 0, got.Len(), AllColumns)

		for _, part := range parts {
			kept := got
			var again Buckets
			extended, left := Extend(&again, &kept, of(&part), width)
			require.Zero(t, extended)
			require.Equal(t, part.Len(), left)
			require.True(t, want.Equal(&again))
			got = again
		}
	}
}

// TestExtendByNarrowAggregates adds aggregates of 5m to hours of samples. Only aggregates that certainly precede or
// follow the samples may be added, and the others must be counted.
func TestExtendByNarrowAggregates(t *testing.T) {
	const width, hour = 300_000, 3_600_000
	rng := rand.New(rand.NewPCG(soak.FirstSeed(t), 3))
	for range 300 {
		var all, part chunk.Samples
		for at := int64(1 + rng.IntN(10_000)); at < 3*hour; at += 1 + rng.Int64N(100_000) {
			if at%width != 0 {
				all.AppendFloat(at, 0, float64(rng.IntN(50)))
			}
		}
		from := rng.IntN(all.Len())
		to := from + 1 + rng.IntN(all.Len()-from)
		for i := from; i < to; i++ {
			part.AppendFloat(all.T[i], 0, all.V[i])
		}
		added, stored, want := aggregatesOf(&all, width, false), &Buckets{}, &Buckets{}
		AppendEvery(stored, &part, hour)
		AppendEvery(want, &all, hour)
		first, last := part.T[0], part.T[part.Len()-1]
		left := 0
		for i, at := range all.T {
			end := at - at%width + width
			isLeft := end > first && end-width <= last
			if isLeft {
				left++
			}
			if isLeft && (at < first || at > last) { // The window also contains samples of part.
				j := slices.IndexFunc(want.End, func(end int64) bool { return end >= at })
				want.Count[j]--
				want.Sum[j] -= all.V[i]
			}
		}
		var got Buckets
		_, n := Extend(&got, stored, added, hour)
		require.Equal(t, left, n)
		require.Equal(t, want.End, got.End)
		require.Equal(t, want.Count, got.Count)
		require.Equal(t, want.Sum, got.Sum)
		var again Buckets
		extended, n := Extend(&again, &got, aggregatesOf(&all, width, false), hour)
		require.Zero(t, extended)
		require.Equal(t, all.Len(), n)
	}
}
