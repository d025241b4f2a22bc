package storage

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestFarAnswersTakeFewScans queries one of three slots for all series of a metric on a shared engine, sorted by
// labels, as samples and as buckets. A scan of such an engine costs as much as reading hundreds of rows. The query must
// therefore read and skip rows of other slots, rather than scan once per few series. A query of a single series must
// use one short scan.
func TestFarAnswersTakeFewScans(t *testing.T) {
	const series = 5 * query.GroupSeries
	var raw, rolled atomic.Int64
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan {
			switch op.Table {
			case engine.Raw:
				raw.Add(1)
			case engine.R5m:
				rolled.Add(1)
			}
		}
		return faultengine.Pass()
	})
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: eng}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Shared, ts.opts.seams.still, ts.opts.Partitions = true, true, 2
	rowsOnly(&ts.opts)
	ts.open()
	defer ts.close()
	slot := ts.period.SlotOf(ts.now.UnixMilli()) - 4
	at := ts.period.SlotStart(slot+1) + 1
	b := ts.NewBatch("ann")
	for i := range series {
		x, err := b.Define(nil, labels.FromStrings(labels.MetricName, "up", "job", fmt.Sprint(i)))
		require.NoError(t, err)
		for k := range int64(3) {
			require.NoError(t, b.Float(x, ts.period.SlotStart(slot+k)+1, 0, float64(i)))
		}
	}
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, ts.SealAll(t.Context()))

	q := query.Query{
		Tenant: "ann", MinT: ts.period.SlotStart(slot+1) + 1, MaxT: ts.period.SlotEnd(slot + 1), Sorted: true,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up")},
	}
	count := func(want int) {
		found, err := ts.Select(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, found, want)
		var samples chunk.Samples
		var buckets rollup.Buckets
		var buf query.BucketBuffers
		for _, s := range found {
			if q.Resolution == rollup.Raw {
				samples.Reset()
				require.NoError(t, s.Samples(&samples))
				require.Equal(t, []int64{at}, samples.T)
				require.Equal(t, fmt.Sprint(samples.V[0]), s.Labels.Get("job"))
				continue
			}
			require.NoError(t, s.Buckets(&buckets, &buf))
			require.Equal(t, []uint32{1}, buckets.Count)
		}
	}
	count(series) // Labels are cached from here on.
	raw.Store(0)
	count(series)
	require.EqualValues(t, 1, raw.Load(), "scans of one slot")
	q.Resolution, q.Columns = rollup.FiveMinutes, rollup.ColumnCount
	count(series)
	rolled.Store(0)
	count(series)
	require.EqualValues(t, 1, rolled.Load(), "scans of one window")
	q.Matchers = append(q.Matchers, labels.MustNewMatcher(labels.MatchEqual, "job", "7"))
	rolled.Store(0)
	count(1)
	require.EqualValues(t, 1, rolled.Load())
}
