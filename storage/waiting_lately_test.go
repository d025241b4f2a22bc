package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// latelyRig is a shared store of one partition whose scans are counted.
type latelyRig struct {
	*testStore
	scans atomic.Int64
}

// probing is an engine that is asked about several partitions at once.
type probing struct {
	engine.Engine
	asked *atomic.Int64
}

// Occupied implements engine.Prober.
func (p probing) Occupied(ctx context.Context, t *engine.Table, partitions []engine.Key) ([]bool, error) {
	scans := p.asked.Load()
	found, err := faultengine.Occupied(ctx, p.Engine, t, partitions)
	p.asked.Store(scans + 1)
	return found, err
}

func newLatelyRig(t *testing.T, probes bool) *latelyRig {
	r := &latelyRig{}
	var eng engine.Engine = unclosed{faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan {
			r.scans.Add(1)
		}
		return faultengine.Pass()
	})}
	if probes {
		eng = probing{eng, &r.scans}
	}
	r.testStore = &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), memory: eng}
	r.opts.Now = func() time.Time { return r.now }
	r.opts.Shared, r.opts.seams.still, r.opts.Partitions = true, true, 1
	r.open()
	t.Cleanup(r.close)
	return r
}

// slots are those that a list has.
func (r *latelyRig) slots(list func(*Store) ([]Staged, error)) (slots []int64) {
	r.t.Helper()
	found, err := list(r.Store)
	require.NoError(r.t, err)
	for _, w := range found {
		slots = append(slots, w.Slot)
	}
	slices.Sort(slots)
	return slots
}

func (r *latelyRig) lately() []int64 {
	return r.slots(func(s *Store) ([]Staged, error) { return s.StagedLately(r.t.Context(), 0, 0) })
}

func (r *latelyRig) whole() []int64 {
	return r.slots(func(s *Store) ([]Staged, error) { return s.Staged(r.t.Context(), 0, 0) })
}

// TestStagedLately compares the two lists, and the scans that each takes, of work of this process, of another one, in young slots and old ones.
func TestStagedLately(t *testing.T) {
	for _, probes := range []bool{false, true} {
		t.Run(fmt.Sprint("probes ", probes), func(t *testing.T) { testStagedLately(t, probes) })
	}
}

func testStagedLately(t *testing.T, probes bool) {
	r := newLatelyRig(t, probes)
	up := labels.FromStrings(labels.MetricName, "up")
	at := func(ago time.Duration) (ms, slot int64) {
		ms = r.now.Add(-ago).UnixMilli()
		return ms, r.period.SlotOf(ms)
	}
	require.Empty(t, r.lately())
	r.scans.Store(0)
	require.Empty(t, r.lately())
	require.LessOrEqual(t, r.scans.Load(), int64(2*nearHours+1))
	require.Empty(t, r.whole())
	if probes {
		require.LessOrEqual(t, r.scans.Load(), int64(5))
	} else {
		require.Greater(t, r.scans.Load(), int64(60), "what a thorough look takes")
	}

	young, youngSlot := at(5 * time.Hour)
	old, oldSlot := at(50 * time.Hour)
	r.write("ann", up, sample{young, 1})
	r.write("ann", up, sample{old, 1})
	require.Equal(t, []int64{oldSlot, youngSlot}, r.lately())
	require.Equal(t, r.whole(), r.lately())

	other := openReady(t, r.memory, r.opts)
	theirs, theirSlot := at(8 * time.Hour)
	b := other.NewBatch("ann")
	series, err := b.Define(nil, labels.FromStrings(labels.MetricName, "theirs"))
	require.NoError(t, err)
	require.NoError(t, b.Float(series, theirs, 0, 1))
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, other.Close())
	require.Len(t, r.all("ann"), 2, "it follows")
	require.Equal(t, []int64{oldSlot, theirSlot, youngSlot}, r.lately())
	r.close()
	r.open()
	require.Len(t, r.all("ann"), 2, "the head is rebuilt")
	require.Equal(t, []int64{oldSlot, theirSlot, youngSlot}, r.whole())
	require.NoError(t, r.SealAll(t.Context()))
	require.Empty(t, r.lately())
	require.Empty(t, r.whole())
}

// TestStagedLatelyRemembers has a row that no process has in its head. A thorough look finds it, and those that follow do until it is sealed.
func TestStagedLatelyRemembers(t *testing.T) {
	r, elsewhere := newLatelyRig(t, false), newLatelyRig(t, false)
	ms := r.now.Add(-5 * time.Hour).UnixMilli()
	slot := r.period.SlotOf(ms)
	elsewhere.write("ann", labels.FromStrings(labels.MetricName, "up"), sample{ms, 1})
	stage := engine.Range{Table: engine.Stage, Partition: format.StagePartition(slot, 0)}
	for row, err := range elsewhere.memory.Scan(t.Context(), stage) {
		require.NoError(t, err)
		require.NoError(t, r.memory.Write(t.Context(), []engine.Batch{{Table: engine.Stage, Partition: stage.Partition, Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Text(strings.Clone(row.Clustering[0].Text)), row.Clustering[1]}, Timestamp: format.StageTimestamp, Value: slices.Clone(row.Value),
		}}}}))
	}
	require.Empty(t, r.lately())
	for range 2 {
		require.Equal(t, []int64{slot}, r.whole())
		require.Equal(t, []int64{slot}, r.lately())
		require.Equal(t, []int64{slot}, r.lately())
	}
	_, err := r.Seal(t.Context(), Work{Slot: slot})
	require.NoError(t, err)
	require.Empty(t, r.lately())
	require.Empty(t, r.whole())
	require.Len(t, r.all("ann"), 1)
}
