package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/pebble"
)

// looks returns the commands that are documented as read-only. find is a text that the command's output must contain
// for the store of this test.
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
		{[]string{"doctor"}, "with unsealed samples, counted once per partition"},
		{[]string{"doctor", "--json", "--no-verify-files", "--retention.raw=1d"}, "sealed"},
		{[]string{"retention", "--retention.raw=1d"}, "would hide raw"},
		{[]string{"retention", "--retention.raw=0", "--windows"}, "raw"},
		{[]string{"downsample", "--dry-run"}, "to seal"},
		{[]string{"export", "--format=csv", "--output=" + out}, ""},
	}
}

// killedStore creates a directory with sealed days and, from a killed server, staged samples in a log that hasn't been
// replayed. It returns the directory, and a file that lists the samples acknowledged by the server.
func killedStore(t *testing.T, binary string) (data, acks string) {
	home := filepath.Dir(cassiatest.StoreWith(t, 50))
	data = filepath.Join(home, "data")
	_, errs, status := cassiatest.Command(t, binary, "downsample", "--storage.path="+data)
	require.Zero(t, status, errs)
	server := start(t.Context(), t,
		promrig.Cassia(binary, home, cassiatest.FreeAddress(t), "--no-self-monitoring", "--storage.settle=1d"))
	acks = filepath.Join(home, "acks")
	_, errs, status = cassiatest.Command(t, binary, "bench", "--url="+server.URL()+"/api/v1/write", "--series=1000",
		"--interval=1m", "--duration=1h", "--ack-log="+acks)
	require.Zero(t, status, errs)
	server.Kill()
	return data, acks
}

// verifyAcks starts a server on a directory and compares its samples with the acknowledged samples.
func verifyAcks(t *testing.T, binary, data, acks string) {
	t.Helper()
	require.Equal(t, "data", filepath.Base(data))
	server := start(t.Context(), t, promrig.Cassia(
		binary, filepath.Dir(data), cassiatest.FreeAddress(t), "--no-self-monitoring", "--storage.settle=1d",
	))
	out, errs, status := cassiatest.Command(
		t, binary, "bench", "--url="+server.URL()+"/api/v1/write", "--verify-log="+acks,
	)
	require.Zero(t, status, out+errs)
	require.NoError(t, server.Terminate(cassiatest.ReadyWithin))
}

// TestLookingCommands runs each command that is documented as read-only, some concurrently, on the directory of a
// killed server and on a backup of it. Afterwards every file must have the same contents and modification time, and the
// output must match the state after an ordinary start. The restored backup must contain all acknowledged samples.
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
	out, errs, status := cassiatest.Command(t, binary, "backup", "--storage.path="+copied, "--to="+folder)
	require.Zero(t, status, errs)
	name, _, ok := strings.Cut(strings.TrimPrefix(out, "backup "), ": ")
	require.True(t, ok, out)

	exported := map[string]string{}
	for _, dir := range []string{data, name} {
		before := cassiatest.FilesOf(t, filepath.Dir(dir))
		where := t.TempDir()
		commands := looks(filepath.Join(where, "a.csv"))
		type said struct {
			text string
			err  error
		}
		all := make([]said, len(commands))
		g := errgroup.Group{}
		g.SetLimit(3) // Any number of processes may read concurrently.
		for i, c := range commands {
			g.Go(func() error {
				text, err := exec.CommandContext(
					t.Context(), binary, append(c.args, "--storage.path="+dir)...,
				).CombinedOutput()
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
		require.Equal(t, before, cassiatest.FilesOf(t, filepath.Dir(dir)))
		text, err := os.ReadFile(filepath.Join(where, "a.csv"))
		require.NoError(t, err)
		exported[dir] = string(text)
	}
	require.Equal(t, exported[data], exported[name])
	require.Greater(t, strings.Count(exported[data], "\n"), 60_000)

	restored := filepath.Join(t.TempDir(), "data")
	_, errs, status = cassiatest.Command(t, binary, "restore", "--from="+folder, "--storage.path="+restored)
	require.Zero(t, status, errs)
	// This command opens the store for writing, and seals.
	_, errs, status = cassiatest.Command(t, binary, "downsample", "--storage.path="+restored)
	require.Zero(t, status, errs)
	again := filepath.Join(t.TempDir(), "a.csv")
	_, errs, status = cassiatest.Command(
		t, binary, "export", "--format=csv", "--output="+again, "--storage.path="+restored,
	)
	require.Zero(t, status, errs)
	text, err := os.ReadFile(again)
	require.NoError(t, err)
	require.Equal(t, exported[data], string(text), "an ordinary start finds the same samples")
	verifyAcks(t, binary, restored, acks)
	verifyAcks(t, binary, data, acks)
}

// TestLocksBetweenProcesses checks that multiple processes can read a directory at the same time, but no process can
// write while another reads, and none can read while another writes.
func TestLocksBetweenProcesses(t *testing.T) {
	t.Parallel()
	binary, dir := builtCassia(t), cassiatest.StoreWith(t, 1)
	path := "--storage.path=" + dir
	opts := pebble.DefaultOptions()
	for _, opts.ReadOnly = range []bool{true, false} {
		eng, err := pebble.Open(dir, opts)
		require.NoError(t, err)
		_, errs, status := cassiatest.Command(t, binary, "downsample", path)
		require.Equal(t, 1, status)
		require.Contains(t, errs, "in use by another process; stop that process, or choose another directory")
		_, errs, status = cassiatest.Command(t, binary, "check", path)
		if opts.ReadOnly {
			require.Zero(t, status, errs)
		} else {
			require.Equal(t, 1, status)
			require.Contains(t, errs,
				"in use by another process. Stop that process, or take a backup with cassia backup, which works while the server runs, and examine the backup")
		}
		require.NoError(t, eng.Close())
	}
	_, errs, status := cassiatest.Command(t, binary, "downsample", path)
	require.Zero(t, status, errs)
}
