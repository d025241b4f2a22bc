package pebble

// HeapBytes returns how many bytes of Go's heap are memtables and cached blocks. Their sizes are bounded by the options, however
// often garbage is collected, and collecting doesn't look into them. Built with cgo it is 0: then they lie outside of Go's heap.
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

// memTableBytes returns how many bytes memtables take.
func (e *Engine) memTableBytes() int64 {
	m := e.metrics()
	if m == nil {
		return 0
	}
	return int64(m.MemTable.Size) + int64(m.MemTable.ZombieSize)
}
