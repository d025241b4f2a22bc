package storage

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// TestStrandGivesBackWhatItTook appends samples of many shapes, in and out of order, and reads after each.
func TestStrandGivesBackWhatItTook(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	specials := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), math.Float64frombits(value.StaleNaN), math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1}
	for round := range 200 {
		st := newStrand(&generation{}, &Series{}, 7_200_000)
		var want chunk.Samples
		at, start := int64(7_200_001), int64(0)
		for range rng.IntN(400) {
			switch rng.IntN(10) {
			case 0:
				at = rng.Int64N(2*maxTime) - maxTime
			case 1:
				at -= rng.Int64N(100_000)
			default:
				at += 15_000
			}
			if rng.IntN(20) == 0 {
				start = at - rng.Int64N(1000)
			}
			at = max(min(at, maxTime), -maxTime)
			v := float64(rng.IntN(1000))
			if rng.IntN(5) == 0 {
				v = specials[rng.IntN(len(specials))]
			}
			if rng.IntN(50) == 0 {
				h := chunk.Histogram{T: at, Int: &histogram.Histogram{Count: 2, Sum: v, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{2}}}
				canonical, err := chunk.Canonical(h)
				require.NoError(t, err)
				encoded, err := encodeHistogram(canonical)
				require.NoError(t, err)
				st.appendHistogram(at, encoded)
				want.AppendHistogram(canonical)
				continue
			}
			st.appendFloat(at, start, math.Float64bits(v))
			want.AppendFloat(at, start, v)
		}
		var got chunk.Samples
		require.NoError(t, st.read(-maxTime, maxTime, &got))
		got.Normalize()
		want.Normalize()
		require.Equal(t, encodeAll(&want), encodeAll(&got), "round %d", round)
	}
}

// encodeAll makes samples comparable bit for bit.
func encodeAll(s *chunk.Samples) []byte {
	if s.Len() == 0 {
		return nil
	}
	return chunk.AppendChunk(nil, s)
}

func TestStrandRepeats(t *testing.T) {
	st := newStrand(&generation{}, &Series{}, 0)
	require.False(t, st.repeats(0, 0, 0), "nothing came yet")
	st.appendFloat(10, 5, 1)
	require.True(t, st.repeats(10, 5, 1))
	require.False(t, st.repeats(10, 5, 2))
	require.False(t, st.repeats(10, 6, 1))
	require.False(t, st.repeats(11, 5, 1))
}

func FuzzTail(f *testing.F) {
	st := newStrand(&generation{}, &Series{}, 0)
	for i := range int64(5) {
		st.appendFloat(i*15_000+i%2, i/3, uint64(i*i)<<40)
	}
	f.Add(st.tail)
	f.Fuzz(func(t *testing.T, tail []byte) {
		st := newStrand(&generation{}, &Series{}, 0)
		st.tail, st.some = tail, true
		var got chunk.Samples
		if st.decodeTail(&got) == nil {
			require.LessOrEqual(t, got.Len(), len(tail))
		}
	})
}
