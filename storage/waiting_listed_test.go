package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// TestDamageAtTheEndOfAListIsCountedOnce damages the end of the list of staged slots. The damage must be counted once a
// day, although the list is read every minute, because the number of gaps that are reported individually is limited.
func TestDamageAtTheEndOfAListIsCountedOnce(t *testing.T) {
	r := &clockRig{t: t, eng: memory.New()}
	m := r.start(0)
	for range 60 {
		list := m.slotsInGap(engine.Damage{
			After: engine.Key{engine.Int(m.period.SlotOf(r.now().UnixMilli())), engine.Int(0)}, Err: engine.ErrCorrupt,
		})
		require.Contains(t, list, m.period.SlotOf(r.now().Add(day).UnixMilli()))
		r.pass(time.Minute)
	}
	require.Equal(t, 1, m.Damaged())
}

// TestGapsInAListAreListedOrNamed makes a gap in the list of staged slots. Its slots must be returned, or their time
// must be reported, even if the slots on both sides of the gap are old.
func TestGapsInAListAreListedOrNamed(t *testing.T) {
	for name, c := range map[string]struct{ after, before time.Duration }{
		"from an old slot to the present": {-365 * day, 0},
		"between old slots":               {-365 * day, -100 * day},
		"from the present to a later one": {0, 365 * day},
	} {
		t.Run(name, func(t *testing.T) {
			r := &clockRig{t: t, eng: memory.New()}
			m := r.start(0)
			key := func(ago time.Duration) engine.Key {
				return engine.Key{engine.Int(m.period.SlotOf(r.now().Add(ago).UnixMilli())), engine.Int(0)}
			}
			after, before := key(c.after), key(c.before)
			list := m.slotsInGap(engine.Damage{After: after, Before: before, Err: engine.ErrCorrupt})
			require.Subset(t, list, []int64{after[0].Int, before[0].Int})
			require.Equal(t, 1, m.Damaged(), "the slots in between that aren't listed")
		})
	}
}
