package storage

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestBucketsOfTheSlotWithTheHorizon deletes another series while the raw retention boundary is within a slot. Until
// the rollups include the delete, earlier samples of the slot must be read from buckets and not be missing.
func TestBucketsOfTheSlotWithTheHorizon(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention, o.seams.still = 10*day, true })
	at := ts.now.Add(-8 * day).Truncate(2 * time.Hour)
	for _, job := range []string{"kept", "gone"} {
		ls := labels.FromStrings(labels.MetricName, "up", "job", job)
		ts.write("default", ls, every(at.Add(time.Minute), time.Minute, 100)...)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.passes(at.Add(10*day + time.Hour))
	require.NoError(t, ts.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("job", "gone")))
	for _, res := range rollup.Resolutions {
		require.Equal(t, map[string]int{"kept": 100}, ts.bucketsOf("default", res))
	}
}
