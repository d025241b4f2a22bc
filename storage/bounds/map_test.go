package bounds

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMap checks that a map removes all entries when it is full.
func TestMap(t *testing.T) {
	var m Map[int, int]
	require.Zero(t, m.Value(1))
	m.Delete(1)
	for i := range mapEntries {
		m.Set(i, i)
	}
	m.DeleteFunc(func(key int) bool { return key == 1 })
	require.Equal(t, mapEntries-1, m.Len())
	m.Change(2, func(before int) int { return before + 5 })
	require.Equal(t, 7, m.Value(2))
	m.Set(1, 1)
	_, ok := m.Get(2)
	require.True(t, ok)
	m.Set(-1, 3)
	require.Equal(t, 1, m.Len())
	require.Equal(t, 3, m.Value(-1))
}
