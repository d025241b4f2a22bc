package ended

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestMemory checks that Memory holds many windows, and that Retain removes the windows that are no longer listed.
func TestMemory(t *testing.T) {
	t.Parallel()
	var m Memory
	of := func(w int64) uint64 { return uint64(w) + 1 }
	const tenants, windows = 200, 730
	name := func(tenant int64) string { return string(rune('A' + tenant)) }
	order := rand.New(rand.NewPCG(1, 1)).Perm(windows)
	for tenant := range int64(tenants) {
		for _, w := range order {
			m.SetNote(name(tenant), int64(w), of(int64(w)))
		}
	}
	require.Equal(t, tenants*windows, m.n)
	for tenant := range int64(tenants) {
		for w := range int64(windows) {
			require.Equal(t, of(w), m.Note(name(tenant), w))
		}
		require.Zero(t, m.Note(name(tenant), windows))
	}
	week := format.FirstWindow(rollup.FiveMinutes) + 5
	m.SetVersion(name(7), week, 0, 2)

	m.Retain(name(7), 100, 600, []int64{50, 100, 200, 600, 650})
	require.Equal(t, tenants*windows+1-(501-3), m.n)
	for _, w := range []int64{99, 100, 200, 600, 601} {
		require.Equal(t, of(w), m.Note(name(7), w))
	}
	for _, w := range []int64{101, 599} {
		require.Zero(t, m.Note(name(7), w), w)
	}
	m.Retain(name(7), format.FirstWindow(rollup.Raw), windows, nil)
	version, ok := m.Version(name(7), week, 0)
	require.True(t, ok)
	require.EqualValues(t, 2, version)
	_, ok = m.Version(name(7), week, 1)
	require.False(t, ok, "the engine has another version")
	require.Len(t, m.of[name(7)], 1)
	require.True(t, slices.IsSortedFunc(m.of["A"], func(a, b knownWindow) int { return int(a.window - b.window) }))

	m.n = maxKnown
	m.SetNote(name(8), windows, 3)
	require.Zero(t, m.Note(name(8), windows), "it is full")
	m.SetNote(name(8), 8, 4)
	require.EqualValues(t, 4, m.Note(name(8), 8))
}
