package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
)

// TestGivenUpBesideDamage gives up a log in a directory with a table that can't be repaired. The store has another identity then as well: an import
// must not rely on rows of the log.
func TestGivenUpBesideDamage(t *testing.T) {
	dir := cassiatest.SealedDirectory(t, time.Now().Truncate(time.Hour))
	identity := func() (id string) {
		o := offline{Engine: &config.Engine{Kind: config.EnginePebble, Path: dir}, readOnly: true}
		require.NoError(t, o.withStore(t.Context(), func(s *storage.Store) error {
			id = s.Identity()
			return nil
		}))
		return id
	}
	before := identity()
	files := func(pattern string) (paths []string) {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, paths)
		return paths
	}
	size := func(path string) int64 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Size()
	}
	table := slices.MaxFunc(files("*.sst"), func(a, b string) int { return int(size(a) - size(b)) })
	f, err := os.OpenFile(table, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte("x"), 64), size(table)/2)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	logs := files("*.log")
	require.NoError(t, os.Truncate(logs[len(logs)-1], 0))

	var text strings.Builder
	require.Equal(t, 1, run([]string{"restore", "--damaged", "--give-up-log", "--storage.path=" + dir}, &text))
	require.Contains(t, text.String(), ": still damaged: ")
	require.NotEqual(t, before, identity())
}
