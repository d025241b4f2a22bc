package counts

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/ended"
)

// States of the counts of a window's series, in the lowest bits of what ended.Memory has of it; the others are a hash of the window's states.
const (
	countsThere     = 1 + iota // they are stored
	countsWait                 // they are to be made
	countsWaitAgain            // so are these, and there are some of other states
	countsLost                 // they can't be read, whatever the state is

	countsBits = 7
)

// noted returns what ended.Memory has of a window in these states.
func (c countedState) noted(as uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], c.state)
	binary.LittleEndian.PutUint64(b[8:], c.before)
	return xxhash.Sum64(b[:])&^countsBits | as
}

// known returns whether the series of a window in its states are counted; 0: that isn't known.
func (s *Statistics) known(u *ended.OverWindow) uint64 {
	k := s.env.Memory.Noted(u.Tenant, u.Window)
	if as := k & countsBits; as == countsLost || k == statesOf(u).noted(as) {
		return as
	}
	return 0
}

// setKnown notes whether the series of a window in its states are counted.
func (s *Statistics) setKnown(u *ended.OverWindow, as uint64) {
	s.env.Memory.Note(u.Tenant, u.Window, statesOf(u).noted(as))
}
