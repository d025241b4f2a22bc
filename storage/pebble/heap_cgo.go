//go:build cgo

package pebble

// onHeap is false with cgo, because Pebble's memtables and cached blocks are then in C's heap.
const onHeap = false
