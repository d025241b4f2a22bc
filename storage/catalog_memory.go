package storage

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
)

// catalogMemory remembers which catalog rows this process has written, so that a name is written once a
// window and not once a seal. It is bounded: when full it forgets all.
type catalogMemory struct {
	mu   sync.Mutex
	seed maphash.Seed
	seen map[catalogName]struct{}
}

// maxCatalogMemory bounds catalogMemory, rows.
const maxCatalogMemory = 1 << 20

// catalogName stands for a catalog row.
type catalogName [2]uint64

// name returns what stands for a row that lives so long.
func (m *catalogMemory) name(window int64, life uint32, tenant string, kind int64, label, value string) catalogName {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seed, m.seen = maphash.MakeSeed(), map[catalogName]struct{}{}
	}
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, life))
	_, _ = h.WriteString(tenant)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(label)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(value)
	return catalogName{h.Sum64(), uint64(window)<<2 | uint64(kind)}
}

// has says whether the row was written.
func (m *catalogMemory) has(name catalogName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.seen[name]
	return ok
}

// add remembers rows that are durable, not before: a seal of another partition relies on it.
func (m *catalogMemory) add(names map[catalogName]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.seen)+len(names) > maxCatalogMemory {
		clear(m.seen)
	}
	for name := range names {
		m.seen[name] = struct{}{}
	}
}
