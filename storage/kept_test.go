package storage

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/rollup"
)

// TestKeptTellsWhatExpires holds the dry run to what Expire does then, day by day.
func TestKeptTellsWhatExpires(t *testing.T) {
	ts := openTestStore(t, func(o *Options) {
		o.Partitions, o.Retention, o.Retention5m, o.Retention1h = 2, 48*time.Hour, 9*24*time.Hour, 0
	})
	ls := labels.FromStrings(labels.MetricName, "up")
	for range 20 {
		ts.write("ann", ls, sample{ts.now.UnixMilli(), 1})
		ts.write("bob", ls, sample{ts.now.UnixMilli(), 1})
		require.NoError(t, ts.SealAll(t.Context()))
		ts.now = ts.now.Add(24 * time.Hour)
	}
	dropped, found := 0, map[rollup.Resolution]bool{}
	for range 60 {
		kept, err := ts.Kept(t.Context())
		require.NoError(t, err)
		due := map[int64]bool{}
		for _, k := range kept {
			if !k.Goes.IsZero() { // Rows that go by themselves don't stay longer.
				require.LessOrEqual(t, ts.expires(k.Window, k.Tenant), k.Goes.Unix())
				require.Equal(t, k.End.Add(ts.classes.base.Of(k.Resolution)), k.Hidden)
			}
			require.Positive(t, k.End.Sub(k.Start))
			require.Zero(t, k.Unrolled)
			found[k.Resolution] = true
			if !k.Goes.IsZero() && !k.Goes.After(ts.now) {
				due[k.Window] = true
			}
		}
		n, err := ts.Expire(t.Context())
		require.NoError(t, err)
		require.Equal(t, len(due), n)
		dropped += n
		after, err := ts.Kept(t.Context())
		require.NoError(t, err)
		require.Len(t, after, len(kept)-2*n, "of both tenants")
		ts.now = ts.now.Add(12 * time.Hour)
	}
	require.Greater(t, dropped, 20)
	require.Len(t, found, 3)
	kept, err := ts.Kept(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	for _, k := range kept {
		require.Equal(t, rollup.OneHour, k.Resolution, "kept for ever")
		require.Equal(t, 30*24*time.Hour, k.End.Sub(k.Start))
	}
}
