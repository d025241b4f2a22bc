package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/meter"
)

func TestCountSeriesAndChurn(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 2 })
	write := func(tenant string, from, to int) {
		for i := from; i < to; i++ {
			ls := labels.FromStrings(labels.MetricName, fmt.Sprintf("m%d", i%2), "i", fmt.Sprint(i), "of", tenant)
			ts.write(tenant, ls, sample{ts.now.UnixMilli(), 1})
		}
	}
	days := [][2]int{{0, 10}, {4, 12}, {4, 12}}
	for i, d := range days {
		write("ann", d[0], d[1])
		write("bob", 100, 101)
		if i < len(days)-1 {
			ts.now = ts.now.Add(24 * time.Hour)
			require.NoError(t, ts.SealAll(t.Context()))
		}
	}

	open, err := ts.Counts().CountSeries(
		t.Context(), counts.SeriesQuery{Tenant: "ann", Unsealed: true, Label: "of", Limit: 2},
	)
	require.NoError(t, err)
	require.Equal(t, counts.SeriesCounts{
		Series: 8, AllMetrics: 2, AllLabels: 3, Metrics: []counts.Count{{Name: "m0", Count: 4}, {Name: "m1", Count: 4}},
		Labels: []counts.Count{{Name: "i", Count: 8}, {Name: "__name__", Count: 2}},
		Values: []counts.Count{{Name: "ann", Count: 8}},
	}, open)

	churn, cut, err := ts.Counts().Churn(t.Context(), "ann", 5)
	require.NoError(t, err)
	require.False(t, cut)
	require.Len(t, churn, 2)
	require.Equal(t, []int{10, -1, -1, 2}, []int{churn[0].Series, churn[0].Added, churn[0].Gone, churn[0].Metrics})
	require.Equal(t, []int{8, 2, 4, 2}, []int{churn[1].Series, churn[1].Added, churn[1].Gone, churn[1].Metrics})
	newest, _, err := ts.Counts().Churn(t.Context(), "ann", 1)
	require.NoError(t, err)
	require.Equal(t, churn[1:], newest, "the window before is read to compare, and not listed")

	for range 2 { // The second time from the cache.
		first, err := ts.Counts().CountSeries(
			t.Context(), counts.SeriesQuery{Tenant: "ann", Window: churn[0].Window, Metric: "m1", Label: "i", Limit: 3},
		)
		require.NoError(t, err)
		require.Equal(t, counts.SeriesCounts{
			Series: 5, AllMetrics: 1, AllLabels: 3, Metrics: []counts.Count{{Name: "m1", Count: 5}},
			Labels: []counts.Count{{Name: "i", Count: 5}, {Name: "__name__", Count: 1}, {Name: "of", Count: 1}},
			Values: []counts.Count{{Name: "1", Count: 1}, {Name: "3", Count: 1}, {Name: "5", Count: 1}},
		}, first)
	}

	// Series that are sealed later in a window are also counted.
	ts.write("ann", labels.FromStrings(labels.MetricName, "late"), sample{churn[0].Start.UnixMilli() + 1, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	again, err := ts.Counts().CountSeries(
		t.Context(), counts.SeriesQuery{Tenant: "ann", Window: churn[0].Window, Limit: 5},
	)
	require.NoError(t, err)
	require.Equal(
		t, []counts.Count{{Name: "m0", Count: 5}, {Name: "m1", Count: 5}, {Name: "late", Count: 1}}, again.Metrics,
	)

	// Series in a window past its retention aren't counted.
	ts.now = ts.now.Add(40 * 24 * time.Hour)
	gone, err := ts.Counts().CountSeries(
		t.Context(), counts.SeriesQuery{Tenant: "ann", Window: churn[0].Window, Limit: 5},
	)
	require.NoError(t, err)
	require.Zero(t, gone.Series)
	churn, _, err = ts.Counts().Churn(t.Context(), "ann", 5)
	require.NoError(t, err)
	require.Empty(t, churn)
}

func TestCountSeriesIsBounded(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 1 })
	for i := range 50 {
		ts.write("ann", labels.FromStrings(labels.MetricName, "m", "i", fmt.Sprint(i)), sample{ts.now.UnixMilli(), 1})
	}
	ts.write("ann", labels.FromStrings(labels.MetricName, "other"), sample{ts.now.UnixMilli(), 1})
	ts.now = ts.now.Add(24 * time.Hour)
	require.NoError(t, ts.SealAll(t.Context()))
	churn, _, err := ts.Counts().Churn(t.Context(), "ann", 1)
	require.NoError(t, err)
	ts.Store.opts.QueryBytes = 2000
	ts.openQuerier()
	_, err = ts.Counts().CountSeries(
		t.Context(), counts.SeriesQuery{Tenant: "ann", Window: churn[0].Window, Metric: "m", Limit: 5},
	)
	require.ErrorIs(t, err, meter.ErrQueryTooLarge)
}
