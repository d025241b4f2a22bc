package counts

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage/ended"
)

// These values describe the stored counts of a window's series. They are stored in the lowest bits of the window's
// value in ended.Memory. The other bits are a hash of the window's states.
const (
	countsStored     = 1 + iota // counts are stored
	countsMissing               // counts are missing
	countsOutdated              // counts are missing, and counts of other states are stored
	countsUnreadable            // counts are unreadable, in any state of the window

	countsBits = 7
)

// cacheValue returns the value to be stored in ended.Memory for a window with these states.
func (c countedState) cacheValue(as uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], c.state)
	binary.LittleEndian.PutUint64(b[8:], c.before)
	return xxhash.Sum64(b[:])&^countsBits | as
}

// cachedState returns the cached value about the counts of a window, or 0 if the cache has no value for the window's
// states.
func (s *Statistics) cachedState(u *ended.OverWindow) uint64 {
	k := s.env.Memory.Note(u.Tenant, u.Window)
	if as := k & countsBits; as == countsUnreadable || k == newCountedState(u).cacheValue(as) {
		return as
	}
	return 0
}

// setCachedState caches a value about the counts of a window, for the window's states.
func (s *Statistics) setCachedState(u *ended.OverWindow, as uint64) {
	s.env.Memory.SetNote(u.Tenant, u.Window, newCountedState(u).cacheValue(as))
}
