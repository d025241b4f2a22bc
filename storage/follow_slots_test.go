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
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/query"
)

// TestFollowingManyThatEnded stops multiple processes one after the other, and seals their samples. The next process
// must not read the stream of each of them repeatedly, and must find the samples of running processes.
func TestFollowingManyThatEnded(t *testing.T) {
	t.Parallel()
	const processes, passes = 12, 5
	var reads atomic.Int64
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.Stage {
			reads.Add(1)
		}
		return faultengine.Pass()
	})
	now := time.Date(2026, 5, 1, 12, 30, 0, 0, time.UTC)
	open := func() *Store {
		o := DefaultOptions()
		o.Now = func() time.Time { return now }
		o.Shared, o.seams.still = true, true
		s := openReady(t, eng, o)
		return s
	}
	write := func(s *Store, at time.Time, v float64) {
		b := s.NewBatch("default")
		for i := range 64 {
			series, err := b.Define(nil, labels.FromStrings(labels.MetricName, "m", "i", fmt.Sprint(i)))
			require.NoError(t, err)
			require.NoError(t, b.Float(series, at.UnixMilli(), 0, v))
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	begun := now
	for i := range processes {
		s := open()
		write(s, begun.Add(-3*time.Hour).Add(time.Duration(i)*time.Minute), float64(i))
		if i == processes-1 {
			require.NoError(t, s.SealAll(t.Context()))
		}
		require.NoError(t, s.Close())
	}
	s, writer := open(), open()
	defer func() { require.NoError(t, writer.Close()) }()
	defer func() { require.NoError(t, s.Close()) }()
	reads.Store(0)
	for i := range passes {
		write(writer, now, float64(i))
		found, err := s.Select(
			t.Context(), query.Query{Tenant: "default", MinT: now.UnixMilli(), MaxT: now.UnixMilli()},
		)
		require.NoError(t, err)
		require.Len(t, found, 64)
		now = now.Add(time.Second)
	}
	partitions := int64(s.Partitions())
	require.LessOrEqual(
		t, reads.Load(), passes*2*partitions, "two cells of each partition: what is sealed, and what is written now",
	)
	reads.Store(0)
	for range 2 * gapInterval / time.Second {
		require.NoError(t, s.follower.makePass(t.Context(), false))
		now = now.Add(time.Second)
	}
	require.LessOrEqual(
		t, reads.Load(), 2*2*partitions, "where nobody waits, what isn't there is looked for now and then",
	)
	found, err := s.Select(
		t.Context(), query.Query{Tenant: "default", MinT: begun.Add(-4 * time.Hour).UnixMilli(), MaxT: now.UnixMilli()},
	)
	require.NoError(t, err)
	require.Len(t, found, 64)
}

// TestGapsAreLookedForWhereSomebodyWaits makes a row of a stream visible after its successor. A pass must skip the gap
// if no query waits for it, and read it for a waiting query.
func TestGapsAreLookedForWhereSomebodyWaits(t *testing.T) {
	t.Parallel()
	late := false
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if late && op.Kind == faultengine.Write && op.Table == engine.Stage {
			return faultengine.Withhold(nil)
		}
		return faultengine.Pass()
	})
	now := time.Date(2026, 5, 1, 12, 30, 0, 0, time.UTC)
	open := func() *Store {
		o := DefaultOptions()
		o.Now = func() time.Time { return now }
		o.Shared, o.seams.still, o.Partitions = true, true, 1
		return openReady(t, eng, o)
	}
	writer, s := open(), open()
	defer func() { require.NoError(t, writer.Close()) }()
	defer func() { require.NoError(t, s.Close()) }()
	at := head.SlotPartition{Slot: s.period.SlotOf(now.UnixMilli())}
	for i := range 3 {
		b := writer.NewBatch("default")
		series, err := b.Define(nil, labels.FromStrings(labels.MetricName, "m"))
		require.NoError(t, err)
		require.NoError(t, b.Float(series, now.UnixMilli()-int64(i), 0, 1))
		late = i == 1
		require.Equal(t, late, b.Commit(t.Context()) != nil)
		late = false
	}
	require.NoError(t, s.follower.makePass(t.Context(), false))
	require.Equal(t, 2, s.head.CountRows(at))
	require.NoError(t, eng.ApplyWithheld(t.Context()))
	now = now.Add(time.Second)
	require.NoError(t, s.follower.makePass(t.Context(), false))
	require.Equal(t, 2, s.head.CountRows(at))

	found, err := s.Select(t.Context(), query.Query{Tenant: "default", MaxT: now.UnixMilli()})
	require.NoError(t, err)
	require.Len(t, found, 1)
	var samples chunk.Samples
	require.NoError(t, found[0].Samples(&samples))
	require.Equal(t, 3, samples.Len())
}
