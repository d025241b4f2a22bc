package storage

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
)

// TestDeletedWhileASealWaitsForItsTurn makes a process gather staged samples past their raw retention, and wait for its
// turn. While it waits, another process seals the same samples, deletes them, and removes them from the rollups. The
// samples must not reappear.
func TestDeletedWhileASealWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	var meanwhile atomic.Pointer[func()] // called once, before the waiting seal reads the leases
	waits, deletes := twoProcesses(t, func(op faultengine.Op) {
		if op.Kind == faultengine.Scan && op.Table == engine.Lease {
			if f := meanwhile.Swap(nil); f != nil {
				(*f)()
			}
		}
	}, nil)
	r := waits.r
	both := func(f func(m *clockMachine)) {
		for _, m := range []*clockMachine{waits, deletes} {
			require.NoError(t, m.member.SendHeartbeat(t.Context()))
			f(m)
		}
	}
	at := r.now()
	require.NoError(t, waits.write(at, 1))
	// List the window as if other samples had been sealed in it.
	require.NoError(t, waits.listWindow(t.Context(), "t", waits.period.RawWindowAt(at.UnixMilli())))
	for range 11 {
		r.pass(day)
		both(func(m *clockMachine) {
			_, err := m.Expire(t.Context())
			require.NoError(t, err)
		})
	}
	slot := waits.period.SlotOf(at.UnixMilli())
	list, err := waits.head.SlotPartitionsOf(
		t.Context(), "t", &format.Tombstone{Start: -format.MaxTime, End: format.MaxTime, Matchers: ofMetric()},
	)
	require.NoError(t, err)
	require.Len(t, list, 1)
	f := func() {
		require.NoError(t, deletes.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...))
		require.NoError(t, deletes.CleanTombstones(t.Context(), "t"))
	}
	meanwhile.Store(&f)
	_, err = waits.Seal(t.Context(), Work{Slot: slot, Partition: list[0].Partition})
	require.Nil(t, meanwhile.Load(), "it was deleted meanwhile")
	if err != nil {
		require.ErrorIs(t, err, engine.ErrUnavailable)
		_, err = waits.Seal(t.Context(), Work{Slot: slot, Partition: list[0].Partition})
		require.NoError(t, err, "it restarts")
	}
	r.pass(deleteRests + time.Hour)
	both(func(m *clockMachine) { require.NoError(t, m.CleanTombstones(t.Context(), "t")) })
	both(func(m *clockMachine) { require.Zero(t, m.counted()) })
}
