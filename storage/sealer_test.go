package storage

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// TestSealedOnce seals a slot with two processes in turn, while both heads still contain samples that the other process
// has sealed. Every sample must be in one chunk.
func TestSealedOnce(t *testing.T) {
	eng := memory.New()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	open := func() *Store {
		o := DefaultOptions()
		o.Shared, o.Now, o.Partitions = true, func() time.Time { return now }, 2
		s := openReady(t, eng, o)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	stores := []*Store{open(), open()}
	slotStart := now.Add(-6 * time.Hour)
	written := 0
	for round := range 6 {
		writer, sealer := stores[round%2], stores[(round/2)%2]
		b := writer.NewBatch("default")
		for i := range 20 {
			s, err := b.Define(nil, labels.FromStrings(labels.MetricName, "up", "instance", string(rune('a'+i%4))))
			require.NoError(t, err)
			require.NoError(t, b.Float(
				s, slotStart.Add(time.Duration(round*20+i)*time.Second+time.Millisecond).UnixMilli(), 0, float64(i),
			))
			written++
		}
		require.NoError(t, b.Commit(t.Context()))
		for _, s := range stores { // Both heads contain the sample.
			found, err := s.Select(
				t.Context(), query.Query{Tenant: "default", MinT: slotStart.UnixMilli(), MaxT: now.UnixMilli()},
			)
			require.NoError(t, err)
			require.Len(t, found, 4)
		}
		require.NoError(t, sealer.SealAll(t.Context()))
	}
	stats, err := stores[0].Check(t.Context(), func(problem string) { t.Error(problem) })
	require.NoError(t, err)
	require.Equal(t, written, stats.Samples)
}

// TestSweep makes sealed stage rows reappear in slots that aren't listed any more, as if a replica had missed their
// deletion. SealUnlisted must remove them, and answers must not change.
func TestSweep(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions, o.Shared, o.seams.still = 2, true, true })
	for i := range 8 {
		ts.write(
			"default", labels.FromStrings(labels.MetricName, "up", "instance", string(rune('a'+i))),
			sample{ts.now.UnixMilli(), 1},
		)
	}
	slot := ts.period.SlotOf(ts.now.UnixMilli())
	var back []engine.Batch
	for p := range ts.Partitions() {
		for row, err := range ts.Store.eng.Scan(
			t.Context(), engine.Range{Table: engine.Stage, Partition: format.StagePartition(slot, p)},
		) {
			require.NoError(t, err)
			back = append(back, engine.Batch{
				Table: engine.Stage, Partition: format.StagePartition(slot, p), Mutations: []engine.Mutation{{
					Clustering: format.StageRowOf(row).Key(), Timestamp: format.StageTimestamp,
					Value: slices.Clone(row.Value),
				}},
			})
		}
	}
	require.NotEmpty(t, back)
	require.NoError(t, ts.SealAll(t.Context()))
	ts.now = ts.now.Add(9 * 24 * time.Hour)
	ts.reopen()
	for p := range ts.Partitions() {
		require.NoError(t, ts.UnlistSlots(t.Context(), p))
	}
	want := ts.all("default")
	require.NoError(t, ts.Store.eng.Write(t.Context(), back))
	found := 0
	for p := range ts.Partitions() {
		n, err := ts.SealUnlisted(t.Context(), p)
		require.NoError(t, err)
		found += n
		empty, err := ts.isEmptyPartition(t.Context(), engine.Stage, format.StagePartition(slot, p))
		require.NoError(t, err)
		require.True(t, empty)
	}
	require.NotZero(t, found)
	require.Equal(t, want, ts.all("default"))
	require.Equal(t, 8, ts.check().Samples)
}
