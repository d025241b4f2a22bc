package pebble

// HeapBytes returns the bytes of memtables and cached blocks in Go's heap. Options limits both independently of garbage
// collection, and neither has pointers to scan. With cgo, HeapBytes returns 0, because memtables and blocks are then
// outside of Go's heap.
func (e *Engine) HeapBytes() int64 {
	if !onHeap {
		return 0
	}
	m := e.metrics()
	if m == nil {
		return 0
	}
	return int64(m.MemTable.Size) + int64(m.MemTable.ZombieSize) + m.BlockCache.Size
}

// memTableBytes returns the size of the memtables in bytes.
func (e *Engine) memTableBytes() int64 {
	m := e.metrics()
	if m == nil {
		return 0
	}
	return int64(m.MemTable.Size) + int64(m.MemTable.ZombieSize)
}
