package format

import (
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
)

// TestPiecesFit splits more samples than fit in a row. All pieces fit, and together they have all samples.
func TestPiecesFit(t *testing.T) {
	var samples chunk.Samples
	for i := range int64(40_000) {
		samples.AppendFloat(10*i, i%3, 1/float64(i+1))
	}
	for i := range int64(300) {
		h := &histogram.Histogram{
			PositiveSpans: []histogram.Span{{Length: 4000}}, PositiveBuckets: make([]int64, 4000), Sum: float64(i),
		}
		current := int64(0)
		for k := range h.PositiveBuckets {
			h.PositiveBuckets[k] = 1 << 40
			if k%2 == 1 {
				h.PositiveBuckets[k] = 1 - 1<<40
			}
			current += h.PositiveBuckets[k]
			h.Count += uint64(current)
		}
		canonical, err := chunk.CanonicalHistogram(chunk.Histogram{T: 1000*i + 5, Int: h})
		require.NoError(t, err)
		samples.AppendHistogram(canonical)
	}
	samples.Normalize()
	list := SplitSamples(&samples)
	require.Greater(t, len(list), 4)
	var again chunk.Samples
	last := int64(-1)
	for _, p := range list {
		minT, maxT := TimeBounds(p)
		require.Greater(t, minT, last, "pieces follow each other")
		last = maxT
		b := chunk.AppendChunk(nil, p)
		require.Less(t, len(b), engine.MaxValue)
		require.NoError(t, chunk.Decode(b, &again))
	}
	require.Equal(t, samples.Len(), again.Len())
	again.Normalize()
	require.True(t, again.Covers(&samples) && samples.Covers(&again))
}
