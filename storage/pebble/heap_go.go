//go:build !cgo

package pebble

// onHeap is true without cgo, because Pebble's memtables and cached blocks are then in Go's heap.
const onHeap = true
