package storage

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/rollup"
)

func TestSurvey(t *testing.T) {
	ts := openTestStore(t, func(o *Options) {
		o.Partitions, o.Retention, o.Retention5m, o.Retention1h = 1, 10*24*time.Hour, 20*24*time.Hour, 0
	})
	up := labels.FromStrings(labels.MetricName, "up")
	for range 3 {
		ts.write("ann", up, sample{ts.now.UnixMilli(), 1})
		ts.write("ann", up, sample{ts.now.Add(-3 * time.Hour).UnixMilli(), 1})
		ts.now = ts.now.Add(24 * time.Hour)
		require.NoError(t, ts.SealAll(t.Context()))
	}
	list, cut, err := ts.Survey(t.Context(), "ann")
	require.NoError(t, err)
	require.False(t, cut)
	slots := 0
	for _, w := range list {
		require.Zero(t, w.Again)
		require.Zero(t, w.Unrolled)
		require.Equal(t, w.Resolution == rollup.OneHour, w.Hidden.IsZero(), "hourly ones are kept for ever")
		switch w.Resolution {
		case rollup.Raw:
			slots += w.Slots
			require.Equal(t, 12, w.Of)
		case rollup.FiveMinutes:
			require.Equal(t, 7*12, w.Of)
		}
	}
	require.Equal(t, 6, slots)

	at := ts.now.Add(-3 * 24 * time.Hour)
	ts.write("ann", up, sample{at.Add(-time.Minute).UnixMilli(), 2})
	require.NoError(t, ts.SealAll(t.Context()))
	list, _, err = ts.Survey(t.Context(), "ann")
	require.NoError(t, err)
	again := 0
	for _, w := range list {
		if w.Resolution == rollup.Raw {
			again += w.Again
		}
	}
	require.Equal(t, 1, again, "what came late was sealed once more")

	usual, longest := ts.RetentionOf("ann")
	require.Equal(t, 10*24*time.Hour, usual.Raw)
	require.Equal(t, usual, longest)
	none, _, err := ts.Survey(t.Context(), "bob")
	require.NoError(t, err)
	require.Empty(t, none)
}
