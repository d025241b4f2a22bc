package bounds

import (
	"maps"
	"sync"
)

// mapEntries is the max number of entries of a Map.
const mapEntries = 1 << 16

// Map caches facts that can be read again. When it is full, it removes all entries. It may be used concurrently. The
// zero value is empty.
type Map[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]V
}

// Get returns the value of a key.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok = m.of[key]
	return value, ok
}

// Value returns the value of a key, or the zero value.
func (m *Map[K, V]) Value(key K) V {
	value, _ := m.Get(key)
	return value
}

// Set sets the value of a key.
func (m *Map[K, V]) Set(key K, value V) { m.Change(key, func(V) V { return value }) }

// Change sets the value of a key to the result of change for the previous value, or for the zero value.
func (m *Map[K, V]) Change(key K, change func(before V) V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil || len(m.of) >= mapEntries {
		m.of = map[K]V{}
	}
	m.of[key] = change(m.of[key])
}

// Delete deletes the entry of a key.
func (m *Map[K, V]) Delete(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}

// DeleteFunc deletes the entries of the keys for which gone returns true.
func (m *Map[K, V]) DeleteFunc(gone func(K) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.of, func(key K, _ V) bool { return gone(key) })
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.of)
}
