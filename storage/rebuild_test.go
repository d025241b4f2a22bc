package storage

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// TestRebuildIsTriedAgain opens a store on a cluster that is unavailable for the first reads. Queries must wait, and
// then be answered.
func TestRebuildIsTriedAgain(t *testing.T) {
	var away atomic.Int64
	away.Store(3)
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.Staged && away.Add(-1) >= 0 {
			return faultengine.Fail(fmt.Errorf("%w: two nodes are down", engine.ErrUnavailable))
		}
		return faultengine.Pass()
	})
	o := DefaultOptions()
	o.Shared = true
	s := openReady(t, eng, o)
	defer func() { require.NoError(t, s.Close()) }()
	require.Negative(t, away.Load())
	_, err := s.Select(t.Context(), query.Query{Tenant: "default", MaxT: format.MaxTime})
	require.NoError(t, err)
}

// TestRebuildOfOneProcessIsTriedAgain opens the store of a single process while its engine can't read most of the
// staging log. Ready must return the reason, and the rebuild must continue when the engine is available again. No row
// may be added to the head twice.
func TestRebuildOfOneProcessIsTriedAgain(t *testing.T) {
	var left atomic.Int64 // number of scans of the staging log that still succeed
	left.Store(1 << 40)
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.Stage && !op.Range.KeysOnly && left.Add(-1) < 0 {
			return faultengine.Fail(fmt.Errorf("%w: too many open files", engine.ErrUnavailable))
		}
		return faultengine.Pass()
	})
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: eng}
	ts.opts.Now, ts.opts.Partitions = func() time.Time { return ts.now }, 1
	ts.open()
	const slots = 6
	for slot := range slots {
		at := ts.now.Add(-time.Duration(slot) * 2 * time.Hour).UnixMilli()
		ts.write("default", labels.FromStrings("__name__", "m"), sample{at, float64(slot)})
	}
	require.NoError(t, ts.Store.Close())
	ts.Store = openReady(t, eng, ts.opts)
	bytes := ts.head.Bytes()
	require.NoError(t, ts.Store.Close())

	left.Store(2)
	s, err := Open(t.Context(), eng, ts.opts)
	require.NoError(t, err)
	require.ErrorIs(t, s.WaitReady(t.Context()), engine.ErrUnavailable, "a command doesn't wait")
	require.NoError(t, s.Close())

	left.Store(2)
	ts.opts.RetryRebuild = true
	ts.Store, err = Open(t.Context(), eng, ts.opts)
	require.NoError(t, err)
	t.Cleanup(ts.close)
	require.Eventually(t, func() bool { return ts.rebuildWaits.Load() != nil }, time.Minute, time.Millisecond)
	require.ErrorIs(t, ts.Ready(), ErrNotReady)
	require.ErrorContains(t, ts.Ready(), "too many open files")
	left.Store(1 << 40)
	require.NoError(t, ts.WaitReady(t.Context()))
	require.Equal(t, slots, samplesOfAll(t, ts))
	require.Equal(t, bytes, ts.head.Bytes())
}

// onceReader counts the active calls of ReadOnce, the scans of the staging log (reads), and the scans of the staging
// log while no call of ReadOnce is active (others).
type onceReader struct {
	engine.Engine
	under, others atomic.Int64
	reads         atomic.Int64
}

// ReadOnce implements engine.Caching.
func (o *onceReader) ReadOnce() func() {
	o.under.Add(1)
	return func() { o.under.Add(-1) }
}

// Version implements engine.Versioned.
func (o *onceReader) Version(t *engine.Table, partition engine.Key) (uint64, bool) {
	return o.Engine.(engine.Versioned).Version(t, partition)
}

// Scan implements engine.Engine.
func (o *onceReader) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if r.Table == engine.Stage && !r.KeysOnly {
		if o.reads.Add(1); o.under.Load() == 0 {
			o.others.Add(1)
		}
	}
	return o.Engine.Scan(ctx, r)
}

// TestARebuildKeepsNothingButTheHead checks that opening a store reads the staging log once and retains only the head,
// but neither cached blocks nor the state of its streams. With days of unsealed samples, both would take multiple times
// the memory of the head.
func TestARebuildKeepsNothingButTheHead(t *testing.T) {
	eng := &onceReader{Engine: memory.New()}
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: eng}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.open()
	for slot := range 20 {
		for i := range 5 {
			at := ts.now.Add(-time.Duration(slot) * 2 * time.Hour).UnixMilli()
			ts.write(
				"default", labels.FromStrings("__name__", "m", "i", fmt.Sprint(i)), sample{at, float64(slot)},
				sample{at + 1000, 1},
			)
		}
	}
	require.NoError(t, ts.Store.Close())
	eng.reads.Store(0)
	eng.others.Store(0)
	ts.Store = openReady(t, eng, ts.opts)
	t.Cleanup(ts.close)
	require.GreaterOrEqual(t, eng.reads.Load(), int64(20))
	require.Zero(t, eng.others.Load())
	require.Zero(t, eng.under.Load())
	for i := range ts.follower.parts {
		require.Empty(t, ts.follower.parts[i].slots)
	}
	require.Equal(t, 200, samplesOfAll(t, ts))
}

func samplesOfAll(t *testing.T, ts *testStore) (n int) {
	t.Helper()
	found, err := ts.Select(t.Context(), query.Query{Tenant: "default", MaxT: format.MaxTime})
	require.NoError(t, err)
	for _, s := range found {
		var samples chunk.Samples
		require.NoError(t, s.Samples(&samples))
		n += samples.Len()
	}
	return n
}
