package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// Damage at the end of the list of staged slots is counted once a day, though the list is read every minute: gaps that are named one by one
// are bounded, and further ones must find room.
func TestDamageAtTheEndOfAListIsCountedOnce(t *testing.T) {
	r := &clockRig{t: t, eng: memory.New()}
	m := r.start(0)
	for range 60 {
		list := m.slotsIn(engine.Damage{After: engine.Key{engine.Int(m.period.SlotOf(r.now().UnixMilli())), engine.Int(0)}, Err: engine.ErrCorrupt})
		require.Contains(t, list, m.period.SlotOf(r.now().Add(day).UnixMilli()))
		r.pass(time.Minute)
	}
	require.Equal(t, 1, m.Damaged())
}
