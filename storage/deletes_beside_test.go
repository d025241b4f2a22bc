package storage

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
)

// TestTwoProcessesMeetADelete has a query of one process meet a delete and seal the slot. Between its list of the stage
// rows and its reading of them, another process seals the same slot and deletes the rows. The head of the first process
// must still release the deleted sample, which it has in one generation with a row of that slot.
func TestTwoProcessesMeetADelete(t *testing.T) {
	t.Parallel()
	var before atomic.Pointer[func()] // called once, before the stage is read
	meets, seals := twoProcesses(t, func(op faultengine.Op) {
		if op.Kind == faultengine.Scan && op.Table == engine.Stage && !op.Range.KeysOnly && len(op.Range.From) == 0 {
			if f := before.Swap(nil); f != nil {
				(*f)()
			}
		}
	}, nil)
	for _, m := range []*clockMachine{meets, seals} {
		require.NoError(t, m.member.SendHeartbeat(t.Context()))
	}
	at := meets.r.now().Truncate(2 * time.Hour).Add(-time.Hour)
	require.NoError(t, meets.write(at, 1))
	require.Equal(t, 1, seals.visible())
	require.NoError(t, seals.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...))
	require.NoError(t, meets.write(at.Add(time.Minute), 2))
	require.Equal(t, 1, seals.visible())

	f := func() { require.NoError(t, seals.SealAll(t.Context())) }
	before.Store(&f)
	require.Equal(t, 1, meets.visible(), "the deleted sample isn't shown")
	require.Nil(t, before.Load(), "the slot was sealed meanwhile")
	require.Equal(t, 1, meets.visible())
}

// TestProcessThatMeetsNoDelete has a process that neither seals, forgets nor is queried until a delete of samples in
// its head was cleaned and removed: it only follows, or is paused. Then it seals other samples of the slot.
func TestProcessThatMeetsNoDelete(t *testing.T) {
	t.Parallel()
	for _, follows := range []bool{true, false} {
		t.Run(fmt.Sprintf("follows=%v", follows), func(t *testing.T) {
			t.Parallel()
			p := newSeveral(t, passAll)
			ctx, idle, deletes := t.Context(), p.processes[0].store, p.processes[1].store
			at := p.now.Add(-time.Hour)
			p.write(0, "m", at, 1)
			require.NoError(t, deletes.Delete(ctx, "default", -format.MaxTime, format.MaxTime, equal("__name__", "m")))
			for range 5 {
				p.now = p.now.Add(deleteRests / 4)
				require.NoError(t, deletes.member.SendHeartbeat(ctx))
				if follows {
					require.NoError(t, idle.member.SendHeartbeat(ctx))
					require.NoError(t, idle.catchUp(ctx))
				}
			}
			require.NoError(t, deletes.CleanTombstones(ctx, "default"))
			list, err := deletes.deletesOf(ctx, "default")
			require.NoError(t, err)
			require.Empty(t, list)
			require.NoError(t, idle.member.SendHeartbeat(ctx))
			if follows {
				p.requireValues("removed", "m")
			}
			p.write(0, "m", at.Add(time.Second), 2)
			require.NoError(t, idle.SealAll(ctx))
			p.requireValues("sealed", "m", 2)
		})
	}
}
