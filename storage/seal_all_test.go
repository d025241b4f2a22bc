package storage

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// TestSealAllLooksOnceForEmptySlots seals one slot of a shared store. For each of the other listed slots, SealAll may
// read only one row.
func TestSealAllLooksOnceForEmptySlots(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	scans := map[string]int{}
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan {
			mu.Lock()
			scans[op.Table.Name]++
			mu.Unlock()
		}
		return faultengine.Pass()
	})
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: eng}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Shared, ts.opts.seams.still, ts.opts.Partitions = true, true, 4
	ts.open()
	defer ts.close()
	up := labels.FromStrings(labels.MetricName, "up")
	for i := range 20 {
		ts.write("ann", up, sample{ts.now.Add(-time.Duration(2*i+7) * time.Hour).UnixMilli(), 1})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.write("ann", up, sample{ts.now.Add(-5 * time.Hour).UnixMilli(), 1})
	slots := 0
	for p := range ts.Partitions() {
		work, err := ts.WaitingWork(t.Context(), p)
		require.NoError(t, err)
		slots += len(work)
	}
	require.Equal(t, 21, slots)
	clear(scans)
	require.NoError(t, ts.SealAll(t.Context()))
	require.LessOrEqual(t, scans[engine.Stage.Name], slots+1)
	require.Equal(t, 2, scans[engine.Tenants.Name], "deletes are read before and after the samples, once for all")
	require.Len(t, ts.all("ann")[up.String()], 21)
}
