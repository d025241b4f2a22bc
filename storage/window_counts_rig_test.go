package storage

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// listed returns what an iterator yields.
func listed[T any](all iter.Seq2[T, error]) (list []T, err error) {
	for x, err := range all {
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return list, nil
}

// oldestFirst returns the windows that an iterator yields, in the order in which they are worked on.
func oldestFirst(all iter.Seq2[ended.OverWindow, error]) ([]ended.OverWindow, error) {
	list, err := listed(all)
	slices.SortStableFunc(list, func(a, b ended.OverWindow) int { return cmp.Compare(a.EndMS, b.EndMS) })
	return list, err
}

// countWindows counts all windows that wait for it, and returns how many.
func (s *Store) countWindows(ctx context.Context) (n int, err error) {
	list, err := oldestFirst(s.Counts().Uncounted(ctx, func() {}))
	for i := 0; i < len(list) && err == nil; i++ {
		_, err = s.Counts().CountWindow(ctx, list[i], func() {})
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

type labelsByID map[format.SeriesID]labels.Labels

// labelsIn reads the labels of all series of a window, by themselves: each once, of classes whose rows aren't dropped.
func (s *Store) labelsIn(ctx context.Context, tenant string, window int64) (labelsByID, error) {
	horizons, err := s.retention.Boundaries(ctx, tenant)
	if err != nil {
		return nil, err
	}
	names, err := s.metricsIn(ctx, tenant, window)
	if err != nil {
		return nil, err
	}
	all := labelsByID{}
	var builder labels.ScratchBuilder
	for _, metric := range names {
		shards, err := s.readShards(ctx, window, tenant, metric)
		if err != nil {
			return nil, err
		}
		for at := range format.ClassShards(s.retention.Classes(), shards) {
			if s.period.WindowEnd(window) <= horizons.Missing(at.Class(), rollup.Raw) {
				continue
			}
			for row, err := range s.rows.Scan(ctx, engine.Range{
				Table: engine.Raw, Partition: format.SeriesPartition(window, tenant, metric, at), To: engine.Key{engine.Int(format.KindLabels)},
			}) {
				if err != nil {
					return nil, err
				}
				ls, err := format.ParseLabels(row.Value, metric, &builder)
				if err != nil {
					return nil, err
				}
				all[format.SeriesIDOf(ls)] = ls
			}
		}
	}
	return all, nil
}

// naiveCounts counts series one by one.
func naiveCounts(all labelsByID, q counts.SeriesQuery) (want counts.SeriesCounts) {
	values := map[string]map[string]uint64{}
	for _, ls := range all {
		if q.Metric != "" && ls.Get(labels.MetricName) != q.Metric {
			continue
		}
		want.Series++
		ls.Range(func(l labels.Label) {
			if values[l.Name] == nil {
				values[l.Name] = map[string]uint64{}
			}
			values[l.Name][l.Value]++
		})
	}
	first := func(of map[string]uint64) (list []counts.Count) {
		for name, n := range of {
			list = append(list, counts.Count{Name: name, Count: n})
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

// isWhole reports whether all that was begun in a window is done: seals, imports, rollups.
func (s *Store) isWhole(ctx context.Context, tenant string, window int64) (bool, error) {
	missing, err := s.listUnrolledExcept(ctx, tenant, window, nil)
	if err != nil || len(missing) > 0 {
		return false, err
	}
	start, end := s.period.WindowSpan(window)
	for slot := s.period.SlotOf(start + 1); slot <= s.period.SlotOf(end); slot++ {
		for p := range s.period.OfSlot(slot).Partitions {
			if empty, err := s.isEmptyPartition(ctx, engine.Stage, format.StagePartition(slot, p)); err != nil ||
				!empty {
				return false, err
			}
		}
	}
	return true, nil
}

// wrongCounts compares answers about a tenant's windows with counting labels one by one. It returns how many windows
// were compared, and a difference.
func (s *Store) wrongCounts(
	ctx context.Context, tenant string, rng *rand.Rand,
) (windows int, problem string, err error) {
	churn, cut, err := s.Counts().Churn(ctx, tenant, 1+rng.IntN(100))
	if err != nil || cut {
		return 0, fmt.Sprint("cut: ", cut), err
	}
	var before labelsByID
	for i, w := range churn {
		whole, err := s.isWhole(ctx, tenant, w.Window)
		if err != nil {
			return windows, "", err
		}
		if !whole {
			before = nil
			continue
		}
		all, err := s.labelsIn(ctx, tenant, w.Window)
		if err != nil {
			return windows, "", err
		}
		windows++
		metrics, both := map[string]bool{}, 0
		for id, ls := range all {
			metrics[ls.Get(labels.MetricName)] = true
			if _, ok := before[id]; ok {
				both++
			}
		}
		want := counts.WindowSeries{
			Window:  w.Window,
			Start:   w.Start,
			End:     w.End,
			Series:  len(all),
			Metrics: len(metrics),
			Added:   -1,
			Gone:    -1,
		}
		switch follows := i > 0 && churn[i-1].End.Equal(w.Start); {
		case follows && before != nil:
			want.Added, want.Gone = len(all)-both, len(before)-both
		case follows || i == 0:
			want.Added, want.Gone = w.Added, w.Gone
		}
		if w != want {
			return windows, fmt.Sprintf("churn: got %+v, want %+v", w, want), nil
		}
		if problem, err := s.wrongCountsIn(ctx, tenant, w.Window, all, rng); err != nil || problem != "" {
			return windows, problem, err
		}
		before = all
	}
	return windows, "", nil
}

func (s *Store) wrongCountsIn(
	ctx context.Context, tenant string, window int64, all labelsByID, rng *rand.Rand,
) (problem string, err error) {
	for range 3 {
		q := counts.SeriesQuery{Tenant: tenant, Window: window, Limit: []int{1, 2, 3, 50, 100, 101, 1000}[rng.IntN(7)]}
		q.Label = []string{"", "i", "job", "__name__", "none", "mod", "host"}[rng.IntN(7)]
		if rng.IntN(5) == 0 {
			q.Metric = []string{"m1", "up", "nothing"}[rng.IntN(3)]
		}
		got, err := s.Counts().CountSeries(ctx, q)
		if err != nil {
			return "", err
		}
		if want := naiveCounts(all, q); !reflect.DeepEqual(want, got) {
			return fmt.Sprintf(
				"window %d, metric %q, label %q, limit %d: got %+v, want %+v",
				window,
				q.Metric,
				q.Label,
				q.Limit,
				got,
				want,
			), nil
		}
	}
	return "", nil
}

// requireCounts is wrongCounts of a store in which nothing is half done, and returns how many windows there are.
func (ts *testStore) requireCounts(tenant string, rng *rand.Rand) int {
	ts.t.Helper()
	windows, problem, err := ts.wrongCounts(ts.t.Context(), tenant, rng)
	require.NoError(ts.t, err)
	require.Empty(ts.t, problem)
	return windows
}
