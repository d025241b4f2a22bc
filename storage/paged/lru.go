package paged

import (
	"container/list"
	"sync"
)

// lru is a cache of the most recently used values, up to a size in bytes. Values are immutable.
type lru[K comparable, V any] struct {
	capacity int64

	mu      sync.Mutex
	entries map[K]*list.Element
	recent  *list.List // of *lruEntry, the most recently used first
	bytes   int64
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
	bytes int64
}

func newLRU[K comparable, V any](capacity int64) *lru[K, V] {
	return &lru[K, V]{capacity: capacity, entries: map[K]*list.Element{}, recent: list.New()}
}

// get returns the value of a key, or V's zero value if the key has none.
func (c *lru[K, V]) get(key K) (value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		c.recent.MoveToFront(e)
		value = e.Value.(*lruEntry[K, V]).value
	}
	return value
}

// add adds a value of this many bytes, unless the key has a value.
func (c *lru[K, V]) add(key K, value V, bytes int64) { c.addIf(nil, key, value, bytes) }

// addIf is like add, but adds nothing if holds returns false. holds may be nil. The call of holds and the addition are
// atomic with respect to remove.
func (c *lru[K, V]) addIf(holds func() bool, key K, value V, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] != nil || bytes > c.capacity || holds != nil && !holds() {
		return
	}
	c.entries[key] = c.recent.PushFront(&lruEntry[K, V]{key, value, bytes})
	for c.bytes += bytes; c.bytes > c.capacity; {
		oldest := c.recent.Remove(c.recent.Back()).(*lruEntry[K, V])
		delete(c.entries, oldest.key)
		c.bytes -= oldest.bytes
	}
}

// remove removes the value of a key, if any.
func (c *lru[K, V]) remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		c.bytes -= c.recent.Remove(e).(*lruEntry[K, V]).bytes
		delete(c.entries, key)
	}
}
