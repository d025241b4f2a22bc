package layouts

import (
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/stretchr/testify/require"
)

// withThreshold returns a histogram of schema 0 with an observation in (0.5, 1] and one in [-1, -0.5).
func withThreshold(threshold float64) *histogram.FloatHistogram {
	one := []histogram.Span{{Length: 1}}
	return &histogram.FloatHistogram{ZeroThreshold: threshold, Count: 2, PositiveSpans: one, NegativeSpans: one,
		PositiveBuckets: []float64{1}, NegativeBuckets: []float64{1}}
}

func TestTraits(t *testing.T) {
	for threshold, want := range map[float64]Traits{0: 0, 0.25: 0, 0.5: 0, 0.75: 0, 1: ZeroOverlaps, 2: ZeroOverlaps} {
		require.Equal(t, want, Of(withThreshold(threshold), 1e280), "threshold %v", threshold)
	}
	large := withThreshold(0)
	large.NegativeBuckets[0] = 1e300
	require.Equal(t, Large, Of(large, 1e280))
	require.Zero(t, MovedBetween(withThreshold(0.1), withThreshold(0.5)))
	require.Equal(t, HasMoved, MovedBetween(withThreshold(0.1), withThreshold(0.75)))
	require.Equal(t, HasMoved, MovedBetween(withThreshold(2), withThreshold(0.1)))
	require.Zero(t, MovedBetween(withThreshold(2), withThreshold(2)))

	coarse := withThreshold(0.3)
	coarse.Schema = -1
	require.Equal(t, SchemasDiffer|ThresholdsDiffer, Differences(coarse, withThreshold(0.5)))
	require.Zero(t, Differences(coarse, &histogram.FloatHistogram{Schema: histogram.CustomBucketsSchema}))
}

// TestJoinedBucketsMove checks that an observation above the largest zero threshold may be moved if it is in the same
// bucket as the threshold at the smallest schema.
func TestJoinedBucketsMove(t *testing.T) {
	fine, coarse := withThreshold(0.1), withThreshold(0.3)
	coarse.Schema = -1 // its buckets are (0.25, 1] and [-1, -0.25)
	var all Joined
	all.Add(0, fine, fine.Schema)
	require.False(t, all.Differ())
	require.False(t, all.Moves(fine))
	all.Add(0, coarse, coarse.Schema)
	require.True(t, all.Differ())
	require.True(t, all.MayMove())
	require.True(t, all.Moves(fine))
	require.False(t, all.Moves(nil))
}
