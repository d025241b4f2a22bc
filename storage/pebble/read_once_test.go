package pebble

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestReadOnceLeavesTheCache reads more rows during ReadOnce than the cache may grow by. Blocks that were cached before
// stay cached; blocks read during ReadOnce are evicted when it ends.
func TestReadOnceLeavesTheCache(t *testing.T) {
	e := openOn(t, NewCrashableFS(), func(o *Options) { o.CacheBytes = 256 << 20 })
	value := make([]byte, 16<<10)
	partition := func(n int64) engine.Key {
		return engine.Key{engine.Int(n), engine.Int(0), engine.Text("t"), engine.Text("m"), engine.Int(0)}
	}
	for n := range int64(6) {
		var list []engine.Batch
		for i := range int64(1000) {
			m := engine.Mutation{
				Clustering: engine.Key{engine.Int(1), engine.Text(idOf(nil)), engine.Int(i)}, Value: value,
			}
			list = append(list, engine.Batch{
				Table: engine.R5m, Partition: partition(n), Mutations: []engine.Mutation{m},
			})
		}
		require.NoError(t, e.Write(ctx, list))
	}
	cached := func() int64 { return e.readers.cache.Size() }
	for range 2 {
		require.Equal(t, 1000, countRows(t, e, engine.R5m, partition(0)))
	}
	before := cached()
	require.Greater(t, before, int64(10<<20))
	first, second := e.ReadOnce(), e.ReadOnce()
	for n := range int64(5) {
		require.Equal(t, 1000, countRows(t, e, engine.R5m, partition(n+1)))
	}
	require.Less(t, cached(), before+readOnceBytes+1<<20)
	first()
	first()
	require.Greater(t, cached(), before, "one reads still")
	second()
	require.LessOrEqual(t, cached(), before+1<<20)
	missed := func(n int64) int64 {
		before := e.metrics().BlockCache.Misses
		require.Equal(t, 1000, countRows(t, e, engine.R5m, partition(n)))
		return e.metrics().BlockCache.Misses - before
	}
	// With the build tag invariants, Pebble's cache evicts more blocks.
	hot, cold := missed(0), missed(1)
	require.Less(t, 4*hot, 3*cold, "most of what was cached before is there still, and little of what was read once")
	require.NoError(t, e.Close())
	e.ReadOnce()()
}
