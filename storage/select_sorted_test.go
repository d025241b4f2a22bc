package storage

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/query"
)

// TestSortedAnswersReadPagesSeldom checks that an answer that is sorted by labels reads each page a few times, not once
// per few series. Pages are ordered by series id.
func TestSortedAnswersReadPagesSeldom(t *testing.T) {
	counter := countScans(memory.New())
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: counter}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions = 1
	ts.open()
	t.Cleanup(ts.close)
	const n = 40 * query.GroupSeries
	for i := range n {
		ts.write(
			"default", labels.FromStrings(labels.MetricName, "m", "i", fmt.Sprint(i)),
			sample{ts.now.UnixMilli(), float64(i)},
		)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	read := func(sorted, backward bool) (scans int) {
		q := query.Query{
			Tenant: "default", MaxT: ts.now.UnixMilli(), Sorted: sorted,
			Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "m")},
		}
		series, err := ts.Select(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, series, n)
		counter.since(engine.Raw)
		counter.since(engine.RawPages)
		if backward {
			series = slices.Clone(series)
			slices.Reverse(series)
		}
		samples := 0
		for _, s := range series {
			var all chunk.Samples
			require.NoError(t, s.Samples(&all))
			samples += all.Len()
			require.Equal(t, s.Labels.Get("i"), fmt.Sprint(all.V[0]))
		}
		require.Equal(t, n, samples)
		return counter.since(engine.Raw) + counter.since(engine.RawPages)
	}
	for range 2 { // From rows, and from the cache filled by the first read.
		require.LessOrEqual(t, read(true, false), 4, "a few series, and all others")
		require.LessOrEqual(t, read(true, true), 4)
		t.Log(read(false, false))
	}
}

// TestOrderOfLargeAnswersIsCached checks that the order of a large answer is cached by the ids of its series.
func TestOrderOfLargeAnswersIsCached(t *testing.T) {
	ts := openTestStore(t, nil)
	write := func(from, to int) {
		batch := ts.NewBatch("default")
		for i := from; i < to; i++ {
			series, err := batch.Define(
				fmt.Append(nil, i),
				labels.FromStrings(labels.MetricName, "m", "host", fmt.Sprint(i%9), "i", fmt.Sprint(i)),
			)
			require.NoError(t, err)
			require.NoError(t, batch.Float(series, ts.now.UnixMilli(), 0, float64(i)))
		}
		require.NoError(t, batch.Commit(t.Context()))
	}
	const n = 5000
	requireSorted := func(series, cached int, matchers ...*labels.Matcher) {
		t.Helper()
		for range 2 { // first without and then with the cached order
			q := query.Query{
				Tenant: "default", MaxT: ts.now.UnixMilli(), Sorted: true,
				Matchers: append(matchers, labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "m")),
			}
			list, err := ts.Select(t.Context(), q)
			require.NoError(t, err)
			require.Len(t, list, series)
			require.True(t, slices.IsSortedFunc(list, func(a, b *query.SelectedSeries) int {
				return labels.Compare(a.Labels, b.Labels)
			}))
			var all chunk.Samples
			require.NoError(t, list[7].Samples(&all))
			require.Equal(t, list[7].Labels.Get("i"), fmt.Sprint(all.V[0]))
			require.Len(t, ts.cache.EntriesOf(cache.KindRanks), cached)
		}
	}
	write(0, n)
	requireSorted(n, 1)
	require.NoError(t, ts.SealAll(t.Context()))
	requireSorted(n, 1)
	write(n-10, n+1)
	requireSorted(n+1, 2)
	requireSorted(n/9+1, 2, labels.MustNewMatcher(labels.MatchEqual, "host", "3"))
}
