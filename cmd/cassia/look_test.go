package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/pebble"
)

// filesOf tells all that is in a directory: names, rights, bytes, and when they were changed.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%v %v", info.Mode(), info.ModTime())
		if !d.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d %x", len(b), sha256.Sum256(b))
		}
		files[path] = text
		return nil
	}))
	return files
}

// looks are the commands that say of themselves that they change nothing, with a text that each finds in a store of this
// test's.
func looks(out string) []struct {
	args []string
	find string
} {
	return []struct {
		args []string
		find string
	}{
		{[]string{"check"}, ": 0 problems"},
		{[]string{"inspect"}, `tenant "default"`},
		{[]string{"inspect", "store", "name=store"}, "settings"},
		{[]string{"doctor"}, "hold samples that aren't sealed"},
		{[]string{"doctor", "--json", "--no-verify-files", "--retention.raw=1d"}, "sealed"},
		{[]string{"retention", "--retention.raw=1d"}, "would hide raw"},
		{[]string{"retention", "--retention.raw=0", "--windows"}, "raw"},
		{[]string{"downsample", "--dry-run"}, "to seal"},
		{[]string{"export", "--format=csv", "--output=" + out}, ""},
	}
}

// killedStore makes a directory with sealed days and, from a server that is killed, staged samples in a log that nobody has
// replayed. It returns a file that says what was acknowledged by the server.
func killedStore(t *testing.T, binary string) (data, acks string) {
	home := filepath.Dir(storeWith(t, 50))
	data = filepath.Join(home, "data")
	_, errs, status := command(t, binary, "downsample", "--storage.path="+data)
	require.Zero(t, status, errs)
	server := start(t.Context(), t, promrig.Cassia(binary, home, address(t), "--no-self-monitoring", "--storage.settle=1d"))
	acks = filepath.Join(home, "acks")
	_, errs, status = command(t, binary, "bench", "--url="+server.URL()+"/api/v1/write", "--series=1000", "--interval=1m", "--duration=1h", "--ack-log="+acks)
	require.Zero(t, status, errs)
	server.Kill()
	return data, acks
}

// verifyAcks starts a server on a directory, and compares what it has with what was acknowledged.
func verifyAcks(t *testing.T, binary, data, acks string) {
	t.Helper()
	require.Equal(t, "data", filepath.Base(data))
	server := start(t.Context(), t, promrig.Cassia(binary, filepath.Dir(data), address(t), "--no-self-monitoring", "--storage.settle=1d"))
	out, errs, status := command(t, binary, "bench", "--url="+server.URL()+"/api/v1/write", "--verify-log="+acks)
	require.Zero(t, status, out+errs)
	require.NoError(t, server.Terminate(readyWithin))
}

// TestLookingCommands runs each command that says that nothing is changed, some at once, on what a killed server has left
// and on a backup of it: afterwards every file is as it was, to the byte and to when it was changed; and what they told is what an ordinary start
// finds. The backup can be restored, and has all that was acknowledged.
func TestLookingCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary some thirty times: leave -short out")
	}
	t.Parallel()
	binary := builtCassia(t)
	data, acks := killedStore(t, binary)
	folder := filepath.Join(t.TempDir(), "backups")
	copied := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.CopyFS(copied, os.DirFS(data)))
	out, errs, status := command(t, binary, "backup", "--storage.path="+copied, "--to="+folder)
	require.Zero(t, status, errs)
	name, _, ok := strings.Cut(strings.TrimPrefix(out, "backup "), ": ")
	require.True(t, ok, out)

	exported := map[string]string{}
	for _, dir := range []string{data, name} {
		before := filesOf(t, filepath.Dir(dir))
		where := t.TempDir()
		commands := looks(filepath.Join(where, "a.csv"))
		type said struct {
			text string
			err  error
		}
		all := make([]said, len(commands))
		g := errgroup.Group{}
		g.SetLimit(3) // Any number may look at once.
		for i, c := range commands {
			g.Go(func() error {
				text, err := exec.CommandContext(t.Context(), binary, append(c.args, "--storage.path="+dir)...).CombinedOutput()
				all[i] = said{string(text), err}
				return nil
			})
		}
		require.NoError(t, g.Wait())
		for i, c := range commands {
			require.NoError(t, all[i].err, "%s: %s", c.args, all[i].text)
			require.Contains(t, all[i].text, c.find, c.args)
			require.NotContains(t, all[i].text, "another process", c.args)
		}
		require.Equal(t, before, filesOf(t, filepath.Dir(dir)))
		text, err := os.ReadFile(filepath.Join(where, "a.csv"))
		require.NoError(t, err)
		exported[dir] = string(text)
	}
	require.Equal(t, exported[data], exported[name])
	require.Greater(t, strings.Count(exported[data], "\n"), 60_000)

	restored := filepath.Join(t.TempDir(), "data")
	_, errs, status = command(t, binary, "restore", "--from="+folder, "--storage.path="+restored)
	require.Zero(t, status, errs)
	_, errs, status = command(t, binary, "downsample", "--storage.path="+restored) // It opens the store to write, and seals.
	require.Zero(t, status, errs)
	again := filepath.Join(t.TempDir(), "a.csv")
	_, errs, status = command(t, binary, "export", "--format=csv", "--output="+again, "--storage.path="+restored)
	require.Zero(t, status, errs)
	text, err := os.ReadFile(again)
	require.NoError(t, err)
	require.Equal(t, exported[data], string(text), "an ordinary start finds the same samples")
	verifyAcks(t, binary, restored, acks)
	verifyAcks(t, binary, data, acks)
}

// TestLookingSaysWhatIsWrong: where nothing can be looked at, the commands say so in one line, and leave nothing behind.
func TestLookingSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	commands := [][]string{{"check"}, {"inspect"}, {"retention"}, {"downsample", "--dry-run"}, {"export", "--format=csv"}}
	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "a"), []byte("a"), 0o600))
	used := storeWith(t, 1)
	server := startServe(t, "--storage.path="+used)
	for _, args := range commands {
		for dir, want := range map[string]string{
			filepath.Join(foreign, "none"): "there are no data of Cassia's",
			foreign:                        "there are no data of Cassia's",
			t.TempDir():                    "there are no data of Cassia's",
			used:                           "another process has it open; stop that one, or take a backup",
		} {
			if dir == used && args[0] == "export" {
				continue // It asks the server: see TestExportBesideItsServer.
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

// TestManifestIsGone isn't a directory without a store, for those who look as little as for a server.
func TestManifestIsGone(t *testing.T) {
	t.Parallel()
	dir := storeWith(t, 1)
	for _, pattern := range []string{"MANIFEST-*", "marker.manifest.*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			require.NoError(t, os.Remove(name))
		}
	}
	before := filesOf(t, dir)
	var stderr bytes.Buffer
	require.Equal(t, 1, run([]string{"check", "--storage.path=" + dir}, &stderr))
	require.Contains(t, stderr.String(), "cassia restore")
	found, text, err := examineFiles(t, time.Now(), "--storage.path="+dir)
	require.Error(t, err)
	require.Positive(t, doctor.Count(found, doctor.Error), text)
	require.Contains(t, text, "MANIFEST-")
	require.Equal(t, before, filesOf(t, dir))
}

// TestLocksBetweenProcesses: while one process looks, others may look, and none may write; while one writes, none may look.
func TestLocksBetweenProcesses(t *testing.T) {
	t.Parallel()
	binary, dir := builtCassia(t), storeWith(t, 1)
	path := "--storage.path=" + dir
	opts := pebble.DefaultOptions()
	for _, opts.ReadOnly = range []bool{true, false} {
		eng, err := pebble.Open(dir, opts)
		require.NoError(t, err)
		_, errs, status := command(t, binary, "downsample", path)
		require.Equal(t, 1, status)
		require.Contains(t, errs, "another process has it open; stop that one, or choose")
		_, errs, status = command(t, binary, "check", path)
		if opts.ReadOnly {
			require.Zero(t, status, errs)
		} else {
			require.Equal(t, 1, status)
			require.Contains(t, errs, "another process has it open; stop that one, or take a backup")
		}
		require.NoError(t, eng.Close())
	}
	_, errs, status := command(t, binary, "downsample", path)
	require.Zero(t, status, errs)
}

// rowsOf tells all rows of a keyspace's tables, and the tables.
func rowsOf(t *testing.T, flags []string) (rows []string) {
	t.Helper()
	app := kingpin.New("cassia", "")
	c := config.RegisterEngine(app.Command("serve", ""))
	_, err := app.Parse(append([]string{"serve"}, flags...))
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	session, err := cassandra.Foreign(t.Context(), c.Cassandra)
	require.NoError(t, err)
	defer session.Close()
	tables := session.Query("SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = ?", c.Cassandra.Keyspace).Iter()
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

// TestLookingOnCassandra runs the same commands on a keyspace that no server uses: no row is written and none goes, and where
// there is no keyspace none is made.
func TestLookingOnCassandra(t *testing.T) {
	t.Parallel()
	flags := append(onCassandra(t), "--cassandra.timeout=1m")
	look := func(args ...string) (status int, stderr string) {
		var errs bytes.Buffer
		status = run(append(args, flags...), &errs)
		return status, errs.String()
	}
	for range 2 { // The first one makes none.
		status, errs := look("check")
		require.Equal(t, 1, status)
		require.Contains(t, errs, "doesn't exist")
	}

	storeBy(t, month, flags...)()
	before := rowsOf(t, flags)
	require.NotEmpty(t, before)
	for _, args := range [][]string{
		{"check"}, {"inspect"}, {"doctor"}, {"retention", "--retention.raw=1d"}, {"downsample", "--dry-run", "--retention.raw=30d"},
		{"export", "--format=csv", "--output=" + filepath.Join(t.TempDir(), "a.csv")},
	} {
		status, errs := look(args...)
		require.Zero(t, status, "%s: %s", args, errs)
		require.Equal(t, before, rowsOf(t, flags), args)
	}
}
