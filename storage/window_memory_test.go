package storage

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

// TestListingsReadWhatWasWrittenTo repeatedly lists windows to count and to compact. A listing must read commit records
// and counts only of windows that were written to since the previous listing, regardless of the query cache.
func TestListingsReadWhatWasWrittenTo(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	ts := openCountingStore(t, &reads, func(op faultengine.Op) bool {
		return op.Kind == faultengine.Scan && (op.Table == engine.Sealed || op.Table == engine.Catalog)
	}, func(o *Options) { o.Retention, o.Partitions, o.CacheBytes = 0, 2, 0 })
	for range 40 {
		for _, tenant := range []string{"ann", "bob", "cid"} {
			ts.writeSeries(tenant, 0, 3, time.Hour)
		}
		ts.now = ts.now.Add(day)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	list := func() (waiting, read int) {
		t.Helper()
		reads.Store(0)
		over, err := oldestFirst(ts.Counts().Uncounted(t.Context(), func() {}))
		require.NoError(t, err)
		rollups, err := oldestFirst(ts.Compactable(t.Context(), func() {}))
		require.NoError(t, err)
		return len(over) + len(rollups), int(reads.Load())
	}
	waiting, read := list()
	require.Greater(t, waiting, 120)
	require.Greater(t, read, 120)
	again, read := list()
	require.Equal(t, waiting, again)
	require.Zero(t, read, "nothing was written")
	require.Positive(t, ts.countWindows())
	_, err := ts.compactAll(t.Context(), func() {})
	require.NoError(t, err)
	for range 2 {
		waiting, read = list()
		require.Zero(t, waiting)
		require.Zero(t, read)
	}

	ts.writeSeries("bob", 50, 52, 30*day)
	require.NoError(t, ts.SealAll(t.Context()))
	waiting, read = list()
	require.Equal(t, 4, waiting, "a day and the one after, which is compared with it, and two windows of rollups")
	require.Less(t, read, 20)
	require.Equal(t, 2, ts.countWindows())
	_, err = ts.compactAll(t.Context(), func() {})
	require.NoError(t, err)
	waiting, _ = list()
	require.Zero(t, waiting)
	ts.requireCounts("bob", rand.New(rand.NewPCG(1, 1)))

	// After a start nothing is cached, because another process may have changed the commit records. The result must be
	// the same.
	ts.reopen()
	waiting, read = list()
	require.Zero(t, waiting)
	require.Positive(t, read)
	_, read = list()
	require.Zero(t, read)
}
