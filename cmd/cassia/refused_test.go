package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
)

// writingCommands returns the commands that open a directory to write to it, by name.
func writingCommands(t *testing.T) map[string][]string {
	samples := filepath.Join(t.TempDir(), "samples.txt")
	require.NoError(t, os.WriteFile(samples, []byte("up 1 1700000000\n# EOF\n"), 0o600))
	return map[string][]string{
		"serve":             {"serve", "--web.listen-address=127.0.0.1:0"},
		"downsample":        {"downsample"},
		"import":            {"import", "openmetrics", samples},
		"schema set-period": {"schema", "set-period", "--slot=1h"},
		"backup":            {"backup", "--to=" + t.TempDir()},
	}
}

// requireRefusal runs a command on a directory and requires that it fails with a one-line error, which it returns. No
// file of the directory may be changed.
func requireRefusal(t *testing.T, args []string, dir string) string {
	t.Helper()
	before := cassiatest.FilesOf(t, dir)
	var stderr bytes.Buffer
	require.Equal(t, 1, run(append(args, "--storage.path="+dir), &stderr), args)
	after := cassiatest.FilesOf(t, dir)
	for _, files := range []map[string]string{before, after} { // Locking an existing file changes its time.
		delete(files, filepath.Join(dir, "LOCK"))
	}
	require.Equal(t, before, after, args)
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	return lines[len(lines)-1]
}

// TestBackupsAreNotWrittenTo runs each writing command on a folder of backups and on a single backup. Each must fail.
func TestBackupsAreNotWrittenTo(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var stderr bytes.Buffer
	require.Zero(t, run([]string{"backup", "--storage.path=" + cassiatest.StoreWith(t, 1), "--to=" + folder}, &stderr),
		stderr.String())
	made, err := filepath.Glob(filepath.Join(folder, "*Z-*"))
	require.NoError(t, err)
	require.Len(t, made, 1)
	for _, args := range writingCommands(t) {
		require.Contains(t, requireRefusal(t, args, folder),
			"is a backup folder (created by cassia backup); restore a backup: cassia restore --from="+folder, args)
		require.Contains(t, requireRefusal(t, args, made[0]),
			"is a backup (created by cassia backup); restore it: cassia restore --from="+folder+" --backup="+
				filepath.Base(made[0]),
			args)
	}
	require.Zero(t, run([]string{"check", "--storage.path=" + made[0]}, &stderr), stderr.String())
	to := filepath.Join(t.TempDir(), "data")
	require.Zero(t, run([]string{"restore", "--from=" + folder, "--storage.path=" + to}, &stderr), stderr.String())
	require.Zero(t, run([]string{"check", "--storage.path=" + to}, &stderr), stderr.String())
}

// TestStoreWithoutMarkerIsNotANewOne removes an empty marker file, as tools and buckets do that skip empty files. Each
// command must report an error instead of creating a new store.
func TestStoreWithoutMarkerIsNotANewOne(t *testing.T) {
	t.Parallel()
	for _, marker := range []string{"marker.manifest.*", "marker.format-version.*"} {
		dir := cassiatest.StoreWith(t, 1)
		found, err := filepath.Glob(filepath.Join(dir, marker))
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.NoError(t, os.Remove(found[0]))
		all := writingCommands(t)
		for _, name := range []string{"check", "inspect", "retention", "export --format=csv", "downsample --dry-run"} {
			all[name] = strings.Fields(name)
		}
		for _, args := range all {
			line := requireRefusal(t, args, dir)
			require.Contains(t, line, "file "+marker+" of "+dir+": missing", args)
			require.Contains(t, line, "cassia restore --damaged --storage.path="+dir, args)
		}
		examined, text, err := examineFiles(t, time.Now(), "--storage.path="+dir)
		require.Error(t, err)
		require.Positive(t, doctor.CountLevel(examined, doctor.Error), text)
		require.Contains(t, text, marker)
		require.Contains(t, text, "cassia restore --damaged --storage.path="+dir)
		require.NotContains(t, text, "there is no store")
	}
}

// TestOtherSettingsChangeNothing starts a server whose slot width differs from its store's, and runs a command on a
// directory without a store. Both the server and the command must fail without changing any file.
func TestOtherSettingsChangeNothing(t *testing.T) {
	t.Parallel()
	dir := cassiatest.StoreWith(t, 1)
	line := requireRefusal(t, []string{"serve", "--storage.slot=1h", "--web.listen-address=127.0.0.1:0"}, dir)
	require.Contains(t, line, "created with other settings")
	require.Contains(t, line, "check --storage.slot and --storage.partitions, or choose another store")
	empty := t.TempDir()
	for _, name := range []string{"downsample", "schema set-period", "backup"} {
		require.Contains(t, requireRefusal(t, writingCommands(t)[name], empty), "no Cassia data found", name)
	}
}
