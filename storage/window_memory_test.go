package storage

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestListingsReadWhatWasWrittenTo lists windows to count and to compact, again and again: it reads marks and counts of windows that were written to since, whatever
// the cache of queries holds.
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
		over, err := oldestFirst(ts.Uncounted(t.Context(), func() {}))
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

	// Another process has the rows of marks changed, and this one starts: it finds the same.
	ts.reopen()
	waiting, read = list()
	require.Zero(t, waiting)
	require.Positive(t, read)
	_, read = list()
	require.Zero(t, read)
}

// TestWindowMemory remembers many windows, and forgets those that aren't listed any more.
func TestWindowMemory(t *testing.T) {
	t.Parallel()
	var m windowMemory
	of := func(w int64) countedState { return countedState{uint64(w) + 1, uint64(w)} }
	const tenants, windows = 200, 730
	at := func(tenant, w int64) tenantWindow { return tenantWindow{string(rune('A' + tenant)), w} }
	order := rand.New(rand.NewPCG(1, 1)).Perm(windows)
	for tenant := range int64(tenants) {
		for _, w := range order {
			m.setCounts(at(tenant, int64(w)), of(int64(w)), countsThere)
		}
	}
	require.Equal(t, tenants*windows, m.n)
	for tenant := range int64(tenants) {
		for w := range int64(windows) {
			require.EqualValues(t, countsThere, m.countsOf(at(tenant, w), of(w)))
			require.Zero(t, m.countsOf(at(tenant, w), of(w+1)))
		}
		require.Zero(t, m.countsOf(at(tenant, windows), of(windows)))
	}
	m.setCounts(at(7, 7), countedState{}, countsLost)
	require.EqualValues(t, countsLost, m.countsOf(at(7, 7), of(7)), "whatever the state is")
	m.setCounts(at(7, 7), of(7), countsWaitAgain)
	require.EqualValues(t, countsWaitAgain, m.countsOf(at(7, 7), of(7)))
	week := format.FirstWindow(rollup.FiveMinutes) + 5
	m.change(at(7, week), func(k *knownWindow) { k.engine, k.marks = 1, 2 })

	m.retain(at(7, 0).tenant, 100, 600, []int64{50, 100, 200, 600, 650})
	require.Equal(t, tenants*windows+1-(501-3), m.n)
	for _, w := range []int64{99, 100, 200, 600, 601} {
		require.EqualValues(t, countsThere, m.countsOf(at(7, w), of(w)), w)
	}
	for _, w := range []int64{101, 599} {
		require.Zero(t, m.countsOf(at(7, w), of(w)), w)
	}
	m.retain(at(7, 0).tenant, format.FirstWindow(rollup.Raw), windows, nil)
	require.Equal(t, knownWindow{window: week, engine: 1, marks: 2}, m.get(at(7, week)))
	require.Len(t, m.of[at(7, 0).tenant], 1)
	require.True(t, slices.IsSortedFunc(m.of["A"], func(a, b knownWindow) int { return int(a.window - b.window) }))

	m.n = maxKnownWindows
	m.setCounts(at(8, windows), of(windows), countsThere)
	require.Zero(t, m.countsOf(at(8, windows), of(windows)), "it is full")
	m.setCounts(at(8, 8), of(8), countsWait)
	require.EqualValues(t, countsWait, m.countsOf(at(8, 8), of(8)))
}
