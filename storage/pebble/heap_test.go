package pebble

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeapBytesAreTheMemtables checks the size of the one memtable of a new engine, inside or outside of Go's heap.
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
