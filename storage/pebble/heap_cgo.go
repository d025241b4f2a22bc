//go:build cgo

package pebble

// onHeap is whether Pebble's memtables and cached blocks lie in Go's heap: with cgo it takes them from C's.
const onHeap = false
