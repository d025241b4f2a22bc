package storage

import "sync/atomic"

// aliasHash is what an alias is known by: 128 bits of hash (storage/decisions/001-aliases-by-hash.md).
type aliasHash [2]uint64

// aliasTable finds series by alias: a hash table with open addressing whose readers take no lock, for every
// series of every request comes through here. Writers hold the tenant's lock.
//
// A slot is published by its series: its hash is written before, and never changed after. What is removed
// is left out when the slots are copied.
type aliasTable struct {
	slots atomic.Pointer[[]aliasSlot] // a power of two; nil: empty
	used  int
}

type aliasSlot struct {
	hash   aliasHash
	series atomic.Pointer[Series]
}

// find returns the series of an alias, or nil.
func (t *aliasTable) find(hash aliasHash) *Series {
	p := t.slots.Load()
	if p == nil {
		return nil
	}
	slots := *p
	mask := uint64(len(slots) - 1)
	for i := hash[0] & mask; ; i = (i + 1) & mask {
		s := slots[i].series.Load()
		if s == nil || slots[i].hash == hash {
			return s
		}
	}
}

// add makes hash an alias of s. It must not be in the table.
func (t *aliasTable) add(hash aliasHash, s *Series) {
	p := t.slots.Load()
	if p == nil || 4*(t.used+1) > 3*len(*p) {
		t.copyTo(max(16, t.used), nil)
		p = t.slots.Load()
	}
	put(*p, hash, s)
	t.used++
}

// clear forgets all aliases.
func (t *aliasTable) clear() {
	t.slots.Store(nil)
	t.used = 0
}

// remove forgets the aliases of the series that gone names.
func (t *aliasTable) remove(gone func(*Series) bool) {
	if t.used > 0 {
		t.copyTo(max(16, t.used), gone)
	}
}

// copyTo moves the aliases to at least twice as many new slots as there are to be aliases.
func (t *aliasTable) copyTo(aliases int, gone func(*Series) bool) {
	n := 16
	for n < 2*aliases {
		n *= 2
	}
	slots := make([]aliasSlot, n)
	t.used = 0
	if old := t.slots.Load(); old != nil {
		for i := range *old {
			if s := (*old)[i].series.Load(); s != nil && (gone == nil || !gone(s)) {
				put(slots, (*old)[i].hash, s)
				t.used++
			}
		}
	}
	t.slots.Store(&slots)
}

func put(slots []aliasSlot, hash aliasHash, s *Series) {
	mask := uint64(len(slots) - 1)
	i := hash[0] & mask
	for slots[i].series.Load() != nil {
		i = (i + 1) & mask
	}
	slots[i].hash = hash
	slots[i].series.Store(s)
}
