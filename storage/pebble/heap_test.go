package pebble

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeapBytesAreTheMemtables checks that HeapBytes of a new engine, which has one memtable, is positive only if
// memtables are in Go's heap, and that it is 0 after Close.
func TestHeapBytesAreTheMemtables(t *testing.T) {
	e, err := Open(t.TempDir(), DefaultOptions())
	require.NoError(t, err)
	if onHeap {
		require.Positive(t, e.HeapBytes())
	} else {
		require.Zero(t, e.HeapBytes())
	}
	require.NoError(t, e.Close())
	require.Zero(t, e.HeapBytes(), "closed")
}
