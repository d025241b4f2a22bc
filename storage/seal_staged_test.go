package storage

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/head"
)

// TestMergeMetrics merges a metric that is listed twice, which must keep all chunks of both. A metric is listed twice
// if the head released it and created it again while a batch still referenced one of its series.
func TestMergeMetrics(t *testing.T) {
	var chunks []*head.Chunk
	for range 5 {
		chunks = append(chunks, new(head.Chunk))
	}
	got := mergeMetrics([]stagedMetric{{"up", chunks[:2:2]}, {"down", chunks[2:3:3]}, {"up", chunks[3:]}})
	require.Len(t, got, 2)
	require.Equal(t, "down", got[0].name)
	require.Len(t, got[0].chunks, 1)
	require.Same(t, chunks[2], got[0].chunks[0])
	require.Equal(t, "up", got[1].name)
	require.Len(t, got[1].chunks, 4)
	for _, c := range []*head.Chunk{chunks[0], chunks[1], chunks[3], chunks[4]} {
		found := 0
		for _, in := range got[1].chunks {
			if in == c {
				found++
			}
		}
		require.Equal(t, 1, found)
	}
}
