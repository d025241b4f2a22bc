package query

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
)

// TestChunkMemoryIsBounded checks that the cache stays near its capacity when more chunks are added than fit, and that
// an entry that is used repeatedly stays cached.
func TestChunkMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const capacity, value = 100_000, 1000
	m := newChunkMemory(capacity)
	key := func(i int) chunksKey { return chunksKey{start: int64(i), tenant: "ann", metric: "m"} }
	entry := func(version uint64, bytes int) *cachedChunks {
		return &cachedChunks{
			version: version, ids: make([]format.SeriesID, 1), chunks: []cachedChunk{{0, make([]byte, bytes)}},
		}
	}
	for i := range 1000 {
		m.put(key(i), entry(1, value))
		require.NotNil(t, m.get(key(i), 1))
		require.NotNil(t, m.get(key(0), 1), "what is used stays")
		require.LessOrEqual(t, m.size(), int64(capacity+2*(value+entryOverhead+100)))
	}
	require.Nil(t, m.get(key(1), 1))
	require.Nil(t, m.get(key(999), 2), "another version")
	m.put(key(999), entry(2, value))
	require.NotNil(t, m.get(key(999), 2))
	require.Nil(t, m.get(key(999), 1))
	m.put(key(1), entry(1, maxEntryBytes))
	require.Nil(t, m.get(key(1), 1), "too large")
	total := int64(0)
	for _, entries := range []map[chunksKey]*cachedChunks{m.young, m.old} {
		for _, e := range entries {
			total += e.bytes
		}
	}
	require.Equal(t, total, m.size())
}

// TestChunksOfManySeriesAreNotKept checks that the result of a scan is cached for maxCachedSeries series, but not for
// one more.
func TestChunksOfManySeriesAreNotKept(t *testing.T) {
	sel := &selection{r: &request{
		rowReader: &rowReader{Querier: New(Env{SeekRows: 20, Rows: paged.New(memory.New(), paged.Options{})})},
	}, sources: []source{{window: &sealedWindow{}, metric: "m", places: 1}}}
	wants := make([]wantedSeries, maxCachedSeries+1)
	for i := range wants {
		wants[i] = wantedSeries{at: uint32(i), of: &SelectedSeries{sel: sel, id: format.SeriesID{byte(i)}}}
	}
	f := fetcher{sel: sel, keeps: true}
	require.NoError(t, f.readChunks(t.Context(), 0, wants))
	require.Zero(t, sel.r.chunkMemory.size())
	require.NoError(t, f.readChunks(t.Context(), 0, wants[:maxCachedSeries]))
	require.Positive(t, sel.r.chunkMemory.size(), "that they have no chunks is kept")
}

// size returns the approximate number of bytes in the cache.
func (m *chunkMemory) size() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes + m.dropped
}
