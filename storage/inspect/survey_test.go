package inspect

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

func TestSurvey(t *testing.T) {
	r := newRig(t, func(o *storage.Options) {
		o.Partitions, o.Retention, o.Retention5m, o.Retention1h = 1, 10*24*time.Hour, 20*24*time.Hour, 0
	})
	for range 3 {
		r.write("ann", "up", r.now, 1)
		r.write("ann", "up", r.now.Add(-3*time.Hour), 1)
		r.now = r.now.Add(24 * time.Hour)
		require.NoError(t, r.SealAll(t.Context()))
	}
	list, cut, err := ListWindows(t.Context(), r.View(), "ann")
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

	at := r.now.Add(-3 * 24 * time.Hour)
	r.write("ann", "up", at.Add(-time.Minute), 2)
	require.NoError(t, r.SealAll(t.Context()))
	list, _, err = ListWindows(t.Context(), r.View(), "ann")
	require.NoError(t, err)
	again := 0
	for _, w := range list {
		if w.Resolution == rollup.Raw {
			again += w.Again
		}
	}
	require.Equal(t, 1, again, "what came late was sealed once more")

	// An import of days without samples doesn't count as late. Neither does the first seal of samples in one of its
	// slots.
	imported := &chunk.Samples{}
	for i := range int64(48) {
		imported.AppendFloat(at.Add(-72*time.Hour).UnixMilli()+i*time.Hour.Milliseconds(), 0, 1)
	}
	_, err = r.Import(t.Context(), "ann", []storage.ImportedSeries{
		{Labels: labels.FromStrings(labels.MetricName, "up"), Samples: imported},
	})
	require.NoError(t, err)
	r.write("ann", "up", at.Add(-72*time.Hour+time.Minute), 2)
	require.NoError(t, r.SealAll(t.Context()))
	list, _, err = ListWindows(t.Context(), r.View(), "ann")
	require.NoError(t, err)
	again, slots = 0, 0
	for _, w := range list {
		again += w.Again
		slots += w.Imported
		require.True(t, w.Resolution == rollup.Raw || w.Imported == 0)
	}
	require.Equal(t, 1, again, "the import isn't late")
	require.Equal(t, 25, slots)

	usual, longest := r.RetentionOf("ann")
	require.Equal(t, 10*24*time.Hour, usual.Raw)
	require.Equal(t, usual, longest)
	none, _, err := ListWindows(t.Context(), r.View(), "bob")
	require.NoError(t, err)
	require.Empty(t, none)
}

// TestSurveyFitsTheTables compares the sizes of many small windows with the sizes of their tables. The sizes are
// estimated in blocks, which the windows share.
func TestSurveyFitsTheTables(t *testing.T) {
	r := newRig(t)
	for range 20 {
		for i := range 30 {
			r.write("ann", fmt.Sprint("metric_", i), r.now, float64(i))
			r.write("bob", fmt.Sprint("metric_", i), r.now, float64(i))
		}
		r.now = r.now.Add(24 * time.Hour)
		require.NoError(t, r.SealAll(t.Context()))
	}
	e, ok := r.eng.(interface{ CompactAll(context.Context) error })
	require.True(t, ok)
	require.NoError(t, e.CompactAll(t.Context()))
	space, err := SpaceByKind(t.Context(), r.eng)
	require.NoError(t, err)
	all := int64(0)
	for _, table := range []string{"raw", "raw_pages", "r5m", "r5m_pages", "r1h", "r1h_pages", "catalog"} {
		all += space[table]
	}
	for _, tenant := range []string{"ann", "bob"} {
		list, _, err := ListWindows(t.Context(), r.View(), tenant)
		require.NoError(t, err)
		windows := int64(0)
		for _, w := range list {
			require.Positive(t, w.Bytes, "%s, %s", w.Resolution, w.Start)
			windows += w.Bytes
		}
		require.LessOrEqual(t, windows, all, "the windows of %s take no more than the tables", tenant)
	}
	require.Zero(t, space["held"]+space["chosen"], "tables without rows take nothing: %v", space)
}
