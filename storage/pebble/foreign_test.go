package pebble

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForeignDirectory checks that no engine is created among another program's files, such as those of Prometheus, and
// that nothing is changed.
func TestForeignDirectory(t *testing.T) {
	for _, name := range []string{
		"wal", "chunks_head", "queries.active", "01JD0000000000000000000000", "cassandra.yaml",
	} {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		_, err := Open(dir, DefaultOptions())
		require.ErrorIs(t, err, errForeign)
		require.ErrorContains(t, err, name)
		require.ErrorIs(t, CheckForeign(dir), errForeign)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
	}
	dir := t.TempDir()
	for _, name := range []string{"lost+found", "snapshots", ".DS_Store"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	for range 2 {
		e, err := Open(dir, DefaultOptions())
		require.NoError(t, err)
		require.NoError(t, e.Close())
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "notes"), 0o755), "beside a store anything may be")
		require.NoError(t, CheckForeign(dir))
	}
}
