package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
	"github.com/cassia-db/cassia/storage/cassandra"
)

// TestLookingSaysWhatIsWrong checks that read-only commands fail with a one-line error if there is no readable store,
// and that they create no files.
func TestLookingSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	commands := [][]string{
		{"check"}, {"inspect"}, {"retention"}, {"downsample", "--dry-run"}, {"export", "--format=csv"},
	}
	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "a"), []byte("a"), 0o600))
	used := cassiatest.StoreWith(t, 1)
	server := startServe(t, "--storage.path="+used)
	for _, args := range commands {
		for dir, want := range map[string]string{
			filepath.Join(foreign, "none"): "no Cassia data found",
			foreign:                        "no Cassia data found",
			t.TempDir():                    "no Cassia data found",
			used:                           "in use by another process. Stop that process, or take a backup with cassia backup, which works while the server runs, and examine the backup",
		} {
			if dir == used && args[0] == "export" {
				continue // This command sends a request to the server, see TestExportBesideItsServer.
			}
			var stderr bytes.Buffer
			require.Equal(t, 1, run(append(args, "--storage.path="+dir), &stderr), args)
			require.Contains(t, stderr.String(), want, args)
			require.Contains(t, stderr.String(), dir, args)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
		}
	}
	require.NoError(t, server.stop())
	entries, err := os.ReadDir(foreign)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// TestManifestIsGone checks that read-only commands and the server report an error for a directory without its
// manifest, rather than treat it as an empty directory.
func TestManifestIsGone(t *testing.T) {
	t.Parallel()
	dir := cassiatest.StoreWith(t, 1)
	for _, pattern := range []string{"MANIFEST-*", "marker.manifest.*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			require.NoError(t, os.Remove(name))
		}
	}
	before := cassiatest.FilesOf(t, dir)
	var stderr bytes.Buffer
	require.Equal(t, 1, run([]string{"check", "--storage.path=" + dir}, &stderr))
	require.Contains(t, stderr.String(), "cassia restore")
	found, text, err := examineFiles(t, time.Now(), "--storage.path="+dir)
	require.Error(t, err)
	require.Positive(t, doctor.CountLevel(found, doctor.Error), text)
	require.Contains(t, text, "marker.manifest.*")
	require.Equal(t, before, cassiatest.FilesOf(t, dir))
}

// rowsOf returns the tables of a keyspace and all their rows.
func rowsOf(t *testing.T, flags []string) (rows []string) {
	t.Helper()
	app := kingpin.New("cassia", "")
	c := config.RegisterEngine(app.Command("serve", ""))
	_, err := app.Parse(append([]string{"serve"}, flags...))
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	session, err := cassandra.OpenForeign(t.Context(), c.Cassandra)
	require.NoError(t, err)
	defer session.Close()
	tables := session.Query("SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = ?",
		c.Cassandra.Keyspace).Iter()
	var name, id string
	for tables.Scan(&name, &id) {
		rows = append(rows, "table "+name+" "+id)
		all := session.Query(fmt.Sprintf("SELECT JSON * FROM %s.%q", c.Cassandra.Keyspace, name)).Iter()
		var text string
		for all.Scan(&text) {
			rows = append(rows, name+" "+text)
		}
		require.NoError(t, all.Close())
	}
	require.NoError(t, tables.Close())
	slices.Sort(rows)
	return rows
}

// TestLookingOnCassandra runs the read-only commands on a keyspace without a server. The commands must not write or
// delete any row, or create a keyspace.
func TestLookingOnCassandra(t *testing.T) {
	t.Parallel()
	flags := append(cassiatest.OnCassandra(t), "--cassandra.timeout=1m")
	look := func(args ...string) (status int, stderr string) {
		var errs bytes.Buffer
		status = run(append(args, flags...), &errs)
		return status, errs.String()
	}
	for range 2 { // The first run must not create a keyspace.
		status, errs := look("check")
		require.Equal(t, 1, status)
		require.Contains(t, errs, "doesn't exist")
	}

	storeBy(t, month, flags...)()
	before := rowsOf(t, flags)
	require.NotEmpty(t, before)
	for _, args := range [][]string{
		{"check"}, {"inspect"}, {"doctor"}, {"retention", "--retention.raw=1d"},
		{"downsample", "--dry-run", "--retention.raw=30d"},
		{"export", "--format=csv", "--output=" + filepath.Join(t.TempDir(), "a.csv")},
	} {
		status, errs := look(args...)
		require.Zero(t, status, "%s: %s", args, errs)
		require.Equal(t, before, rowsOf(t, flags), args)
	}
}
