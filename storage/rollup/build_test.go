package rollup

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

func TestBucketsAreLeftOpenAndRightClosed(t *testing.T) {
	for _, c := range []struct{ at, start, end int64 }{
		{0, -300_000, 0},
		{1, 0, 300_000},
		{300_000, 0, 300_000},
		{300_001, 300_000, 600_000},
		{-1, -300_000, 0},
		{-300_000, -600_000, -300_000},
		{-299_999, -300_000, 0},
		{math.MaxInt64, math.MaxInt64 - math.MaxInt64%300_000, math.MaxInt64},
		{math.MinInt64, math.MinInt64, math.MinInt64 + (-(math.MinInt64 % 300_000))},
	} {
		var b Buckets
		AppendEvery(&b, &chunk.Samples{T: []int64{c.at}, V: []float64{1}}, 300_000)
		require.Equal(t, []int64{c.start}, b.Start, "%d", c.at)
		require.Equal(t, []int64{c.end}, b.End, "%d", c.at)
	}
}

func TestEdgesCutBuckets(t *testing.T) {
	var s chunk.Samples
	for at := int64(-10); at <= 25; at++ {
		s.AppendFloat(at, 0, float64(at))
	}
	var b Buckets
	AppendCells(&b, &s, []int64{-100, -3, 0, 4, 10, 17, 18, 90}, 10)
	require.Equal(t, []int64{-20, -10, -3, 0, 4, 10, 17, 18, 20}, b.Start)
	require.Equal(t, []int64{-10, -3, 0, 4, 10, 17, 18, 20, 30}, b.End)
	require.Equal(t, []uint32{1, 7, 3, 4, 6, 7, 1, 2, 5}, b.Count)
	require.Equal(t, []int64{-10, -9, -2, 1, 5, 11, 18, 19, 21}, b.FirstT)
	require.Equal(t, []int64{-10, -3, 0, 4, 10, 17, 18, 20, 25}, b.LastT)
}
