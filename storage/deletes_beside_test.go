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
		require.NoError(t, m.member.Beat(t.Context()))
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
