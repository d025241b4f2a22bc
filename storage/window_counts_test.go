package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// countWindows counts all windows that wait for it, and returns how many.
func (s *Store) countWindows(ctx context.Context) (n int, err error) {
	list, err := s.Uncounted(ctx)
	for i := 0; i < len(list) && err == nil; i++ {
		_, err = s.CountWindow(ctx, list[i], func() {})
		n++
	}
	return n, err
}

func (ts *testStore) countWindows() int {
	ts.t.Helper()
	n, err := ts.Store.countWindows(ts.t.Context())
	require.NoError(ts.t, err)
	return n
}

// labelsIn reads the labels of all series of a window, by themselves: each once, of classes whose rows aren't dropped.
func (ts *testStore) labelsIn(tenant string, window int64) map[format.SeriesID]labels.Labels {
	ts.t.Helper()
	names, err := ts.metricsIn(ts.t.Context(), tenant, window)
	require.NoError(ts.t, err)
	all := map[format.SeriesID]labels.Labels{}
	var builder labels.ScratchBuilder
	horizons, err := ts.horizonsOf(ts.t.Context(), tenant)
	require.NoError(ts.t, err)
	for _, metric := range names {
		shards, err := ts.readShards(ts.t.Context(), window, tenant, metric)
		require.NoError(ts.t, err)
		for at := range ts.places(shards) {
			if ts.period.WindowEnd(window) <= horizons.lacking(at.Class(), rollup.Raw) {
				continue
			}
			for row, err := range ts.rows.Scan(ts.t.Context(), engine.Range{
				Table: engine.Raw, Partition: format.SeriesPartition(window, tenant, metric, at), To: engine.Key{engine.Int(format.KindLabels)},
			}) {
				require.NoError(ts.t, err)
				ls, err := format.ParseLabels(row.Value, metric, &builder)
				require.NoError(ts.t, err)
				all[format.SeriesIDOf(ls)] = ls
			}
		}
	}
	return all
}

// naiveCounts counts series one by one.
func naiveCounts(all map[format.SeriesID]labels.Labels, q SeriesQuery) (want SeriesCounts) {
	values := map[string]map[string]uint64{}
	for _, ls := range all {
		want.Series++
		ls.Range(func(l labels.Label) {
			if values[l.Name] == nil {
				values[l.Name] = map[string]uint64{}
			}
			values[l.Name][l.Value]++
		})
	}
	first := func(of map[string]uint64) (list []Count) {
		for name, n := range of {
			list = append(list, Count{Name: name, Count: n})
		}
		slices.SortFunc(list, format.CompareCounts)
		if list = list[:min(len(list), q.Limit)]; len(list) == 0 {
			return nil
		}
		return list
	}
	ofLabels := map[string]uint64{}
	for name, of := range values {
		ofLabels[name] = uint64(len(of))
	}
	want.Metrics, want.Labels, want.Values = first(values[labels.MetricName]), first(ofLabels), first(values[q.Label])
	want.AllMetrics, want.AllLabels = len(values[labels.MetricName]), len(values)
	return want
}

// requireCounts compares all answers about a tenant's windows with counting labels one by one, and returns how many windows there are.
func (ts *testStore) requireCounts(tenant string, rng *rand.Rand) int {
	ts.t.Helper()
	churn, cut, err := ts.Churn(ts.t.Context(), tenant, 100)
	require.NoError(ts.t, err)
	require.False(ts.t, cut)
	var before map[format.SeriesID]labels.Labels
	for i, w := range churn {
		all := ts.labelsIn(tenant, w.Window)
		metrics := map[string]bool{}
		both := 0
		for id, ls := range all {
			metrics[ls.Get(labels.MetricName)] = true
			if _, ok := before[id]; ok {
				both++
			}
		}
		want := WindowSeries{Window: w.Window, Start: w.Start, End: w.End, Series: len(all), Metrics: len(metrics), Added: -1, Gone: -1}
		if i > 0 && churn[i-1].End.Equal(w.Start) {
			want.Added, want.Gone = len(all)-both, len(before)-both
		}
		require.Equal(ts.t, want, w, "churn of window %d", w.Window)
		before = all
		for range 3 {
			q := SeriesQuery{Tenant: tenant, Window: w.Window, Limit: []int{1, 2, 3, 50, 100, 101, 1000}[rng.IntN(7)]}
			q.Label = []string{"", "i", "job", "__name__", "none", "mod"}[rng.IntN(6)]
			got, err := ts.CountSeries(ts.t.Context(), q)
			require.NoError(ts.t, err)
			require.Equal(ts.t, naiveCounts(all, q), got, "window %d, label %q, limit %d", w.Window, q.Label, q.Limit)
		}
	}
	return len(churn)
}

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

// TestStoredCountsNeedNoLabels reads no labels for windows that were counted, and counts again those that were written to.
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
			churn, _, err := ts.Churn(t.Context(), "ann", 100)
			require.NoError(t, err)
			require.Len(t, churn, 5)
			require.Equal(t, []int{310, 20, 10}, []int{churn[1].Series, churn[1].Added, churn[1].Gone})
			ofToday := reads
			for _, w := range churn[:4] {
				got, err := ts.CountSeries(t.Context(), SeriesQuery{Tenant: "ann", Window: w.Window, Limit: 100, Label: "mod"})
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
			list, err := ts.Uncounted(t.Context())
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
