package storage

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/query"
)

// TestMetricsSeen checks the first and the last window of metrics that start, stop, and start again.
func TestMetricsSeen(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = 20 * day })
	first := ts.now.Truncate(day)
	for d, names := range [][]string{{"all", "old"}, {"all", "once", "back"}, {"all"}, {"all", "new", "back"}} {
		ts.now = first.Add(time.Duration(d)*day + 12*time.Hour)
		for _, name := range names {
			ts.write("ann", labels.FromStrings(labels.MetricName, name), sample{ts.now.Add(-time.Hour).UnixMilli(), 1})
		}
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.write("ann", labels.FromStrings(labels.MetricName, "unsealed"), sample{ts.now.UnixMilli(), 1})
	ts.write(
		"ann", labels.FromStrings(labels.MetricName, "unsealed", "b", "1"),
		sample{ts.now.Add(-time.Hour).UnixMilli(), 1},
	)
	for name, want := range map[string]time.Time{"unsealed": ts.now, "nothing": {}} {
		newest, err := ts.NewestUnsealed(t.Context(), "ann", name)
		require.NoError(t, err)
		require.True(t, want.Equal(newest), "%s: %s", name, newest)
	}
	days := func(from, to int) query.SeenRange {
		return query.SeenRange{First: first.Add(time.Duration(from) * day), Last: first.Add(time.Duration(to+1) * day)}
	}
	for range 2 { // The second time from the cache.
		seen, err := ts.MetricsSeen(
			t.Context(), "ann", []string{"all", "old", "once", "back", "new", "unsealed", "nothing"},
		)
		require.NoError(t, err)
		require.Equal(t, map[string]query.SeenRange{
			"all": days(0, 3), "old": days(0, 0), "once": days(1, 1), "back": days(1, 3), "new": days(3, 3),
		}, seen)
	}
	ts.now = first.Add(21*day + 12*time.Hour)
	seen, err := ts.MetricsSeen(t.Context(), "ann", []string{"all", "old", "back"})
	require.NoError(t, err)
	require.Equal(t, map[string]query.SeenRange{"all": days(1, 3), "back": days(1, 3)}, seen, "of what is shown")
	seen, err = ts.MetricsSeen(t.Context(), "bob", []string{"all"})
	require.NoError(t, err)
	require.Empty(t, seen)
}
