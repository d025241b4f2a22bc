package storage

import (
	"hash/maphash"
	"sync"
)

// catalogMemory remembers which catalog rows this process has written, so that a name is written once a
// window and not once a seal. It is bounded: when full it forgets all.
type catalogMemory struct {
	mu   sync.Mutex
	seed maphash.Seed
	seen map[[2]uint64]struct{}
}

// maxCatalogMemory bounds catalogMemory, rows.
const maxCatalogMemory = 1 << 20

// add says whether the row is new to it.
func (m *catalogMemory) add(window int64, tenant string, kind int64, label, value string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seed, m.seen = maphash.MakeSeed(), map[[2]uint64]struct{}{}
	}
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.WriteString(tenant)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(label)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(value)
	k := [2]uint64{h.Sum64(), uint64(window)<<2 | uint64(kind)}
	if _, ok := m.seen[k]; ok {
		return false
	}
	if len(m.seen) >= maxCatalogMemory {
		clear(m.seen)
	}
	m.seen[k] = struct{}{}
	return true
}

func (m *catalogMemory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.seen)
}
