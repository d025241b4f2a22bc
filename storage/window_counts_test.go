package storage

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// labelsRead counts the scans of labels of raw rows.
func labelsRead(n *int) func(faultengine.Op) faultengine.Action {
	return func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && (op.Table == engine.Raw || op.Table == engine.RawPages) {
			*n++
		}
		return faultengine.Pass()
	}
}

// writeSeries writes a sample of each of some series, some hours ago.
func (ts *testStore) writeSeries(tenant string, from, to int, ago time.Duration) {
	ts.t.Helper()
	b := ts.NewBatch(tenant)
	for i := from; i < to; i++ {
		ls := labels.FromStrings(labels.MetricName, fmt.Sprintf("m%d", i%7), "i", fmt.Sprint(i), "mod", fmt.Sprint(i%11), "job", []string{"web", "ci", "audit"}[i%3])
		s, err := b.Define(nil, ls)
		require.NoError(ts.t, err)
		require.NoError(ts.t, b.Float(s, ts.now.Add(-ago).UnixMilli(), 0, float64(i)))
	}
	require.NoError(ts.t, b.Commit(ts.t.Context()))
}

// TestStoredCountsNeedNoLabels reads no labels for windows that were counted, and counts again those that were written
// to.
func TestStoredCountsNeedNoLabels(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"pebble", "memory"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			reads := 0
			ts := openTestStore(t, func(o *Options) { o.Retention, o.Partitions = 0, 2 })
			if kind == "memory" {
				ts.closeUnchecked()
				ts.memory = unclosed{faultengine.Wrap(memory.New(), labelsRead(&reads))}
				ts.open()
			}
			for d := range 5 {
				ts.writeSeries("ann", 10*d, 300+20*d, time.Hour)
				ts.writeSeries("bob", 0, 3, time.Hour)
				if d < 4 {
					ts.now = ts.now.Add(day)
				}
			}
			require.NoError(t, ts.SealAll(t.Context()))
			require.Equal(t, 8, ts.countWindows(), "today isn't over")
			require.Zero(t, ts.countWindows())
			ts.reopen()
			require.Zero(t, ts.countWindows())
			reads = 0
			churn, _, err := ts.Counts().Churn(t.Context(), "ann", 100)
			require.NoError(t, err)
			require.Len(t, churn, 5)
			require.Equal(t, []int{310, 20, 10}, []int{churn[1].Series, churn[1].Added, churn[1].Gone})
			ofToday := reads
			for _, w := range churn[:4] {
				got, err := ts.Counts().CountSeries(t.Context(), counts.SeriesQuery{Tenant: "ann", Window: w.Window, Limit: 100, Label: "mod"})
				require.NoError(t, err)
				require.EqualValues(t, w.Series, got.Series)
				require.Len(t, got.Values, 11)
			}
			require.Equal(t, ofToday, reads)
			require.Equal(t, kind == "memory", ofToday > 0, "of today and of the day before the ids are needed")
			ts.requireCounts("ann", rand.New(rand.NewPCG(1, 1)))

			// What comes late is counted, by labels at first.
			ts.writeSeries("ann", 5000, 5003, 2*day+time.Hour)
			require.NoError(t, ts.SealAll(t.Context()))
			ts.requireCounts("ann", rand.New(rand.NewPCG(1, 2)))
			list, err := oldestFirst(ts.Counts().Uncounted(t.Context(), func() {}))
			require.NoError(t, err)
			require.Len(t, list, 2, "the window, and the one after, which is compared with it")
			require.True(t, list[0].Again)
			require.Equal(t, 2, ts.countWindows())
			require.Zero(t, ts.countWindows())
			ts.requireCounts("ann", rand.New(rand.NewPCG(1, 3)))
			for _, w := range churn[:4] {
				require.Len(t, ts.countKeys("ann", w.Window), map[bool]int{true: 2, false: 3}[w.Added < 0], "nothing of other states is left")
			}
		})
	}
}

// countKeys lists the rows of counts of a window.
func (ts *testStore) countKeys(tenant string, window int64) (keys []string) {
	ts.t.Helper()
	for row, err := range ts.Store.eng.Scan(ts.t.Context(), engine.Range{Table: engine.Catalog, Partition: format.CountsPartition(window, tenant)}) {
		require.NoError(ts.t, err)
		keys = append(keys, row.Clustering.Clone()[0].Text)
	}
	return keys
}
