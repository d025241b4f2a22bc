package storage

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// problems runs Check and returns the reported problems.
func (ts *testStore) problems() (list []string) {
	_, err := ts.Check(ts.t.Context(), func(p string) { list = append(list, p) })
	require.NoError(ts.t, err)
	return list
}

// partitionOf returns the partition of a tenant's only series with unsealed samples in a slot.
func (ts *testStore) partitionOf(tenant string, slot int64) int {
	ts.t.Helper()
	for series := range ts.head.Select(ts.t.Context(), tenant, nil, -format.MaxTime, format.MaxTime, false) {
		return ts.head.PartitionOf(series, slot)
	}
	require.FailNow(ts.t, "nothing is unsealed")
	return 0
}

// TestCheckNamesDamage damages rows one after the other, and repairs each of them. Check must report the damage.
func TestCheckNamesDamage(t *testing.T) {
	ts := openTestStore(t, rowsOnly)
	ls := labels.FromStrings(labels.MetricName, "up", "job", "a")
	at := ts.now.Add(-5 * time.Hour)
	ts.write("default", ls, sample{at.UnixMilli(), 1}, sample{at.UnixMilli() + 15_000, 2})
	require.NoError(t, ts.SealAll(t.Context()))
	ts.write("default", ls, sample{at.UnixMilli() + 30_000, 3})
	require.Empty(t, ts.problems())

	slot := ts.period.SlotOf(at.UnixMilli())
	window := ts.period.RawWindowOfSlot(slot)
	id := format.SeriesIDOf(ls).String()
	partition := ts.partitionOf("default", slot)
	raw := format.SeriesPartition(window, "default", "up", 0)
	var chunkAt engine.Key
	for row, err := range ts.eng.Scan(
		t.Context(), engine.Range{Table: engine.Raw, Partition: raw, From: engine.Key{engine.Int(format.KindChunk)}},
	) {
		require.NoError(t, err)
		chunkAt = format.ChunkKey(id, row.Clustering[1].Int, strings.Clone(row.Clustering[3].Text))
	}
	for _, damage := range []struct {
		name      string
		table     *engine.Table
		partition engine.Key
		key       engine.Key
		change    func([]byte) []byte
		say       string
	}{
		{"a chunk's byte", engine.Raw, raw, chunkAt, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "the version doesn't match the hash of the chunk"},
		{"a chunk cut short", engine.Raw, raw, chunkAt, func(b []byte) []byte { return b[:len(b)-1] }, "chunk: corrupt"},
		{"another series' labels", engine.Raw, raw, format.RawLabelsKey(id), func([]byte) []byte {
			return format.AppendLabels(nil, labels.FromStrings(labels.MetricName, "up", "job", "b"))
		}, "belong to series"},
		{"labels cut short", engine.Raw, raw, format.RawLabelsKey(id), func(b []byte) []byte { return b[:len(b)-1] }, "malformed labels: truncated"},
		{"a blob's byte", engine.Stage, format.StagePartition(slot, partition), engine.Key{engine.Text(ts.writer), engine.Int(2)},
			func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, "malformed blob: checksum"},
	} {
		t.Run(damage.name, func(t *testing.T) {
			var good []byte
			for row, err := range ts.eng.Scan(
				t.Context(),
				engine.Range{Table: damage.table, Partition: damage.partition, From: damage.key, To: damage.key},
			) {
				require.NoError(t, err)
				good = slices.Clone(row.Value)
			}
			require.NotNil(t, good)
			put := func(b []byte) {
				require.NoError(t, ts.eng.Write(context.Background(), []engine.Batch{{
					Table: damage.table, Partition: damage.partition,
					Mutations: []engine.Mutation{{Clustering: damage.key, Timestamp: 2, Value: b}},
				}}))
			}
			put(damage.change(slices.Clone(good)))
			require.Contains(t, strings.Join(ts.problems(), "\n"), damage.say)
			put(good)
			require.Empty(t, ts.problems())
		})
	}
}

// TestCheckCountsSeriesOfRollups checks that metrics and series are also counted in windows that only have rollups.
func TestCheckCountsSeriesOfRollups(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(*Options) {})
	at := ts.now.Add(-8 * time.Hour).Truncate(2 * time.Hour)
	for _, job := range []string{"a", "b"} {
		ts.write("default", jobLabels(job), every(at.Add(time.Minute), time.Minute, 60)...)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	stats, err := ts.Check(t.Context(), func(problem string) { require.Fail(t, problem) })
	require.NoError(t, err)
	require.Equal(t, []int{3, 3, 6}, []int{stats.Windows, stats.Metrics, stats.Series})
}
