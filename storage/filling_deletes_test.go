package storage

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// turnEngine calls a function once, before leases are read.
type turnEngine struct {
	engine.Engine
	before atomic.Pointer[func()]
}

// Scan implements engine.Engine.
func (e *turnEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if r.Table == engine.Lease {
		if f := e.before.Swap(nil); f != nil {
			(*f)()
		}
	}
	return e.Engine.Scan(ctx, r)
}

// TestDeletedWhileASealWaitsForItsTurn has a process gather staged samples past their retention, and wait for its turn. Meanwhile
// another one seals the same samples, deletes them, and takes them out of the rollups: they don't come back.
func TestDeletedWhileASealWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	eng := &turnEngine{Engine: memory.New()}
	r := &clockRig{t: t, shared: true}
	r.eng = &clockedEngine{eng, r.now}
	keep := func(o *Options) { o.Retention = 2 * day }
	waits, deletes := r.start(0, keep), r.start(0, keep)
	both := func(f func(m *clockMachine)) {
		for _, m := range []*clockMachine{waits, deletes} {
			require.NoError(t, m.member.Beat(t.Context()))
			f(m)
		}
	}
	at := r.now()
	require.NoError(t, waits.write(at, 1))
	require.NoError(t, waits.listWindow(t.Context(), "t", waits.period.RawWindowAt(at.UnixMilli()))) // As if something else were sealed there.
	for range 11 {
		r.pass(day)
		both(func(m *clockMachine) {
			_, err := m.Expire(t.Context())
			require.NoError(t, err)
		})
	}
	slot := waits.period.SlotOf(at.UnixMilli())
	list := waits.head.SlotPartitionsOf("t", &format.Tombstone{Start: -format.MaxTime, End: format.MaxTime, Matchers: ofMetric()})
	require.Len(t, list, 1)
	f := func() {
		require.NoError(t, deletes.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...))
		require.NoError(t, deletes.CleanTombstones(t.Context(), "t"))
	}
	eng.before.Store(&f)
	_, err := waits.Seal(t.Context(), Work{Slot: slot, Partition: list[0].Partition})
	require.Nil(t, eng.before.Load(), "it was deleted meanwhile")
	if err != nil {
		require.ErrorIs(t, err, engine.ErrUnavailable)
		_, err = waits.Seal(t.Context(), Work{Slot: slot, Partition: list[0].Partition})
		require.NoError(t, err, "it begins anew")
	}
	r.pass(deleteRests + time.Hour)
	both(func(m *clockMachine) { require.NoError(t, m.CleanTombstones(t.Context(), "t")) })
	both(func(m *clockMachine) { require.Zero(t, m.counted()) })
}
