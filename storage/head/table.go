package head

import (
	"iter"
	"sync/atomic"
)

// table is a hash table with open addressing whose readers take no lock. Writers must hold the tenant's lock.
//
// An entry becomes visible to readers when its pointer is stored. The entry's hash is stored before the pointer and
// never changes. Removed entries are dropped when the table is copied. A slot takes 12 bytes, and there are 1.25 to 1.9
// slots per entry.
type table[T any] struct {
	slots atomic.Pointer[tableSlots[T]] // nil: empty
	used  int
}

// tableSlots are the slots of a table, sorted by hash except for collisions.
type tableSlots[T any] struct {
	hashes  []uint32
	entries []atomic.Pointer[T]
}

func newTableSlots[T any](n int) *tableSlots[T] {
	return &tableSlots[T]{make([]uint32, n), make([]atomic.Pointer[T], n)}
}

// firstSlot returns the first slot for a hash.
func (s *tableSlots[T]) firstSlot(hash uint32) int {
	return int(uint64(hash) * uint64(len(s.hashes)) >> 32)
}

func (s *tableSlots[T]) nextSlot(i int) int {
	if i++; i < len(s.hashes) {
		return i
	}
	return 0
}

func (s *tableSlots[T]) put(hash uint32, entry *T) {
	i := s.firstSlot(hash)
	for s.entries[i].Load() != nil {
		i = s.nextSlot(i)
	}
	s.hashes[i] = hash
	s.entries[i].Store(entry)
}

// each calls f for all entries.
func (s *tableSlots[T]) each(f func(hash uint32, entry *T) bool) {
	for i := range s.entries {
		if entry := s.entries[i].Load(); entry != nil && !f(s.hashes[i], entry) {
			return
		}
	}
}

// find returns the entry with a hash for which is returns true, or nil.
func (t *table[T]) find(hash uint32, is func(*T) bool) *T {
	s := t.slots.Load()
	if s == nil {
		return nil
	}
	for i := s.firstSlot(hash); ; i = s.nextSlot(i) {
		entry := s.entries[i].Load()
		if entry == nil || s.hashes[i] == hash && is(entry) {
			return entry
		}
	}
}

// add adds an entry, which must not be in the table.
func (t *table[T]) add(hash uint32, entry *T) {
	s := t.slots.Load()
	if s == nil || 5*(t.used+1) > 4*len(s.hashes) {
		t.copyTo(t.used, nil)
		s = t.slots.Load()
	}
	s.put(hash, entry)
	t.used++
}

// remove removes the entries for which gone returns true.
func (t *table[T]) remove(gone func(*T) bool) {
	s, stay := t.slots.Load(), 0
	if s == nil {
		return
	}
	s.each(func(_ uint32, entry *T) bool {
		if !gone(entry) {
			stay++
		}
		return true
	})
	if stay < t.used {
		t.copyTo(stay, gone)
	}
}

// copyTo replaces the slots of the table with new slots that contain only the entries for which gone returns false.
// stay is the number of these entries; there are nearly twice as many new slots.
func (t *table[T]) copyTo(stay int, gone func(*T) bool) {
	slots := newTableSlots[T](max(16, stay*15/8))
	if old := t.slots.Load(); old != nil {
		old.each(func(hash uint32, entry *T) bool {
			if gone == nil || !gone(entry) {
				slots.put(hash, entry)
			}
			return true
		})
	}
	t.used = stay
	t.slots.Store(slots)
}

func (t *table[T]) clear() {
	t.slots.Store(nil)
	t.used = 0
}

func (t *table[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		if s := t.slots.Load(); s != nil {
			s.each(func(_ uint32, entry *T) bool { return yield(entry) })
		}
	}
}
