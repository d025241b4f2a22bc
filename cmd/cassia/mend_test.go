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

// TestGivenUpBesideDamage discards a damaged log in a directory that also has a table that can't be repaired. The store
// must get a new identity even then, because a resumed import must not rely on the rows of the log.
func TestGivenUpBesideDamage(t *testing.T) {
	dir := cassiatest.SealedDirectory(t, time.Now().Truncate(time.Hour))
	identity := func() (id string) {
		o := offlineStore{Engine: &config.Engine{Kind: config.EnginePebble, Path: dir}, isReadOnly: true}
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

// TestRepairWithoutTheCurrentManifest checks that a directory in which no file names the current manifest isn't
// repaired, with or without --from. The error says that a complete backup must be restored, and no file is changed.
func TestRepairWithoutTheCurrentManifest(t *testing.T) {
	dir, to := cassiatest.SealedDirectory(t, time.Now().Truncate(time.Hour)), filepath.Join(t.TempDir(), "backups")
	_, errs, status := runPrinted(t, "", "backup", "--storage.path="+dir, "--to="+to)
	require.Zero(t, status, errs)
	for _, pattern := range []string{"SYNCED", "OPTIONS-*", "marker.*"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, paths)
		for _, path := range paths {
			require.NoError(t, os.Remove(path))
		}
	}
	for from, advised := range map[string]string{"": "BACKUPS", to: to} {
		args := []string{"restore", "--damaged", "--storage.path=" + dir}
		if from != "" {
			args = append(args, "--from="+from)
		}
		out, errs, status := runPrinted(t, "", args...)
		require.Equal(t, 1, status)
		require.Contains(t, out,
			"still damaged: neither SYNCED nor a file marker.manifest.* names the current manifest\n")
		require.Equal(t, "cassia: "+dir+
			": can't be repaired; restore a whole backup to a new directory: cassia restore --from="+advised+
			" --storage.path=NEW_DIRECTORY\n", errs)
	}
	out, errs, status := runPrinted(t, "", "restore", "--from="+to, "--storage.path="+filepath.Join(t.TempDir(), "new"))
	require.Zero(t, status, out+errs)
}
