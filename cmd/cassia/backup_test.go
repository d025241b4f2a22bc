package main

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// TestBackupDuringWrites backs a server up under load, some times while it seals, kills it in the end, and compares what
// each backup restores to with what was acknowledged before that backup began, bit by bit.
func TestBackupDuringWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary under load: leave -short out")
	}
	t.Parallel()
	binary := builtCassia(t)
	home, folder := t.TempDir(), filepath.Join(t.TempDir(), "backups")
	data := filepath.Join(home, "data")
	flags := []string{"--storage.slot=1h", "--storage.settle=1s", "--retention.raw=90d", "--no-self-monitoring"}
	program := promrig.Cassia(binary, home, address(t), flags...)
	k := newKilled(t, killLoads(t, time.Now())[:2], program)
	k.processes = []*promrig.Process{start(k.ctx, t, program)}
	stopLoads := k.startLoads()
	cassia := func(args ...string) string {
		out, err := exec.CommandContext(k.ctx, binary, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	const backups = 3
	var at [backups]*killed // what was acknowledged before each
	var names []string      // of each; two may be of one second
	backup := func(url string) {
		out := cassia("backup", "--storage.path="+data, "--to="+folder, "--url="+url)
		t.Log(out)
		name, _, ok := strings.Cut(strings.TrimPrefix(out, "backup "+folder+"/"), ": ")
		require.True(t, ok, out)
		names = append(names, name)
	}
	for i := range at {
		k.live(0)
		for _, l := range k.loads {
			require.Eventually(t, func() bool { return l.acks.Count() > 0 }, readyWithin, time.Millisecond, "something is acknowledged before")
		}
		at[i] = k.known()
		backup(k.processes[0].URL())
	}
	k.processes[0].Kill()
	stopLoads()
	backup("http://localhost:1") // of a directory that nobody uses

	left, err := filepath.Glob(filepath.Join(data, snapshotsFolder, "*"))
	require.NoError(t, err)
	require.Empty(t, left, "snapshots take space")
	found, err := filepath.Glob(filepath.Join(folder, "*Z-*"))
	require.NoError(t, err)
	require.Len(t, found, backups+1)
	for i, name := range names {
		known := k // The last one has everything.
		if i < backups {
			known = at[i]
		}
		dir := t.TempDir()
		require.Contains(t, cassia("restore", "--from="+folder, "--backup="+name, "--storage.path="+filepath.Join(dir, "data")), ": 0 problems")
		known.processes = []*promrig.Process{start(k.ctx, t, promrig.Cassia(binary, dir, address(t), flags...))}
		known.verify(0, "restored "+name)
		known.stop(0)
	}
}

// TestBackupSaysWhatIsWrong names what to do when a copy can't be had.
func TestBackupSaysWhatIsWrong(t *testing.T) {
	run := func(args ...string) error {
		command, err := parse(args)
		require.NoError(t, err)
		return command.run(context.Background())
	}
	empty := t.TempDir()
	require.ErrorContains(t, run("backup", "--storage.path="+empty, "--to="+empty), "there are no data of Cassia's")
	require.ErrorContains(t, run("restore", "--storage.path="+filepath.Join(empty, "x"), "--from="+empty), "no complete backup")
	require.ErrorContains(t, run("backup", "--storage.path="+empty, "--to="+empty, "--keep=-1"), "--keep")
}

// TestBackupsOfOneSecond are of a store that no server uses, one right after the other: more than one falls into a second.
func TestBackupsOfOneSecond(t *testing.T) {
	t.Parallel()
	dir, folder := storeWith(t, 8), t.TempDir()
	for range 4 {
		var stderr bytes.Buffer
		require.Zero(t, run([]string{"backup", "--storage.path=" + dir, "--to=" + folder}, &stderr), stderr.String())
	}
	made, err := filepath.Glob(filepath.Join(folder, "*Z-*"))
	require.NoError(t, err)
	require.Len(t, made, 4)
}
