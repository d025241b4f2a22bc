//go:build !cgo

package pebble

// onHeap is whether Pebble's memtables and cached blocks lie in Go's heap: without cgo there is no other.
const onHeap = true
