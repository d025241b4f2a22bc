package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestManySeriesOfOneMetric grows a metric to 22,000 series in the middle of a window, with a row per series and hour.
// No partition may contain more of a slot than its share of a window's bound, and all samples must be found.
func TestManySeriesOfOneMetric(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("22,000 series: some seconds")
	}
	ts := openTestStore(t, func(o *Options) { o.Slot = time.Hour })
	start := ts.now.Truncate(24 * time.Hour)
	want := 0
	all := soak.Times(t, 22_000)
	slots := []int{100, all, all}
	for slot, series := range slots {
		ts.now = start.Add(time.Duration(slot)*time.Hour + time.Hour/2)
		for from := 0; from < series; from += 20_000 {
			b := ts.NewBatch("default")
			for i := from; i < min(series, from+20_000); i++ {
				s, err := b.Define(
					nil, labels.FromStrings(labels.MetricName, "requests_total", "pod", fmt.Sprint("pod-", i)),
				)
				require.NoError(t, err)
				require.NoError(t, b.Float(s, ts.now.UnixMilli(), 0, float64(i)))
				want++
			}
			require.NoError(t, b.Commit(t.Context()))
		}
		require.NoError(t, ts.SealAll(t.Context()))
	}
	window := ts.period.RawWindowAt(ts.now.UnixMilli())
	shards, err := ts.readShards(t.Context(), window, "default", "requests_total")
	require.NoError(t, err)
	require.Greater(t, shards, int64(1))
	for shard := range shards {
		rows, bytes := 0, 0
		for row, err := range ts.eng.Scan(t.Context(), engine.Range{
			Table: engine.Raw,
			Partition: format.SeriesPartition(
				window, "default", "requests_total", format.ClassShardOf(retention.DefaultClass, shard),
			),
		}) {
			require.NoError(t, err)
			rows++
			bytes += len(row.Value)
		}
		require.Less(t, rows, 1_000_000*len(slots)/24, "of shard %d", shard)
		require.Less(t, bytes, 100<<20*len(slots)/24, "of shard %d", shard)
	}
	found, err := ts.Select(
		t.Context(), query.Query{Tenant: "default", MinT: start.UnixMilli(), MaxT: ts.now.UnixMilli()},
	)
	require.NoError(t, err)
	require.Len(t, found, all)
	got := 0
	for _, s := range found {
		var samples chunk.Samples
		require.NoError(t, s.Samples(&samples))
		got += samples.Len()
	}
	require.Equal(t, want, got)
}
