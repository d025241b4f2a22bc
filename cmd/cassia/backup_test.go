package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestBackupSaysWhatIsWrong checks that the errors of backups that can't be made name the remedy.
func TestBackupSaysWhatIsWrong(t *testing.T) {
	run := func(args ...string) error {
		command, err := parse(args)
		require.NoError(t, err)
		return command.run(context.Background())
	}
	empty := t.TempDir()
	require.ErrorContains(t, run("backup", "--storage.path="+empty, "--to="+t.TempDir()), "no Cassia data found")
	require.ErrorContains(t, run("restore", "--storage.path="+filepath.Join(t.TempDir(), "x"), "--from="+empty),
		"no complete backup")
	_, err := parse([]string{"backup", "--storage.path=" + empty, "--to=" + empty, "--keep=-1"})
	require.ErrorContains(t, err, "--keep=-1")
}

// TestBackupsIntoTheData checks that a backup into a data directory is rejected before anything is changed, by the
// command and by the schedule.
func TestBackupsIntoTheData(t *testing.T) {
	t.Parallel()
	dir, other, folder := cassiatest.StoreWith(t, 1), cassiatest.StoreWith(t, 1), t.TempDir()
	var stderr bytes.Buffer
	require.Zero(t, run([]string{"backup", "--storage.path=" + dir, "--to=" + folder}, &stderr), stderr.String())
	made, err := filepath.Glob(filepath.Join(folder, "*Z-*"))
	require.NoError(t, err)
	before := []string{
		strings.Join(filesOf(t, dir), "\n"), strings.Join(filesOf(t, other), "\n"),
		strings.Join(filesOf(t, folder), "\n"),
	}
	for to, want := range map[string]string{
		dir: "is the data directory", filepath.Join(dir, "backups"): "is in the data directory",
		filepath.Dir(dir): "contains the data directory", other: "contains a store",
		made[0]: "the folder is a backup, or is inside a backup",
	} {
		for _, args := range [][]string{{"backup", "--to=" + to}, {"serve", "--backup.to=" + to}} {
			stderr.Reset()
			require.Equal(t, 1, run(append(args, "--storage.path="+dir), &stderr), args)
			require.Contains(t, stderr.String(), want, args)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
		}
	}
	for to, want := range map[string]string{
		folder: "is the backup folder; restore to another directory", filepath.Join(
			folder, "restored",
		): "is inside the backup folder", made[0]: "the folder is a backup, or is inside a backup",
	} {
		stderr.Reset()
		require.Equal(t, 1, run([]string{"restore", "--from=" + folder, "--storage.path=" + to}, &stderr))
		require.Contains(t, stderr.String(), want)
	}
	stderr.Reset()
	require.Equal(t, 1,
		run([]string{"restore", "--from=" + made[0], "--storage.path=" + filepath.Join(t.TempDir(), "x")}, &stderr))
	require.Contains(t, stderr.String(),
		"which is itself a backup; restore it from its parent folder, with --backup="+filepath.Base(made[0]))
	stderr.Reset()
	require.Equal(
		t, 1, run([]string{"backup", "--storage.path=" + made[0], "--to=" + filepath.Join(t.TempDir(), "x")}, &stderr),
	)
	require.Contains(t, stderr.String(), "is a backup (created by cassia backup); restore it: cassia restore --from=")
	require.Equal(t, before, []string{
		strings.Join(filesOf(t, dir), "\n"), strings.Join(filesOf(t, other), "\n"),
		strings.Join(filesOf(t, folder), "\n"),
	})
}

// filesOf returns the files of a directory, with their sizes and times.
func filesOf(t *testing.T, dir string) (out []string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		out = append(out, fmt.Sprint(path, info.Size(), info.ModTime()))
		return err
	}))
	return out
}

// TestBackupsOfOneSecond checks that backups of one second have different names. The store has no server.
func TestBackupsOfOneSecond(t *testing.T) {
	t.Parallel()
	dir, folder := cassiatest.StoreWith(t, 8), t.TempDir()
	for range 4 {
		var stderr bytes.Buffer
		require.Zero(t, run([]string{"backup", "--storage.path=" + dir, "--to=" + folder}, &stderr), stderr.String())
	}
	made, err := filepath.Glob(filepath.Join(folder, "*Z-*"))
	require.NoError(t, err)
	require.Len(t, made, 4)
}

// TestBackupsAtOneMoment makes concurrent backups of a directory without a server. Backups into different folders
// succeed. Of two backups into the same folder, one may fail with an error that names the other backup as the cause.
func TestBackupsAtOneMoment(t *testing.T) {
	t.Parallel()
	dir, folder := cassiatest.StoreWith(t, 8), t.TempDir()
	var running sync.WaitGroup
	var own, shared [4]string
	for i := range own {
		running.Go(func() {
			var stderr bytes.Buffer
			run([]string{"backup", "--storage.path=" + dir, "--to=" + filepath.Join(folder, fmt.Sprint(i))}, &stderr)
			own[i] = stderr.String()
		})
		running.Go(func() {
			var stderr bytes.Buffer
			run([]string{"backup", "--storage.path=" + dir, "--to=" + filepath.Join(folder, "shared")}, &stderr)
			shared[i] = stderr.String()
		})
	}
	running.Wait()
	require.Equal(t, [4]string{}, own)
	made := 0
	for _, text := range shared {
		if text == "" {
			made++
			continue
		}
		require.Contains(t, text, "another backup to this destination is in progress: "+filepath.Join(folder, "shared")+
			" (locked by this process")
		require.NotContains(t, text, "resource temporarily unavailable")
	}
	names, err := filepath.Glob(filepath.Join(folder, "shared", "*Z-*"))
	require.NoError(t, err)
	require.Len(t, names, made)
	require.Positive(t, made)
	left, err := os.ReadDir(filepath.Join(dir, snapshotsFolder))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestSnapshotsOfKilledCommands checks that a snapshot of a command is removed if the command exited before the
// snapshot was made, or was killed before the server started. A snapshot that a user requested is kept.
func TestSnapshotsOfKilledCommands(t *testing.T) {
	t.Parallel()
	dir := cassiatest.StoreWith(t, 3)
	snapshots := filepath.Join(dir, snapshotsFolder)
	const killed = "20261122T103000Z-1f"
	kill := func() { // Leave an incomplete snapshot and an unlocked claim, as kill -9 does.
		require.NoError(t, os.MkdirAll(filepath.Join(snapshots, killed), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(snapshots, killed+".claim"), nil, 0o644))
	}
	kill()
	server := startServe(t, "--storage.path="+dir)
	left := func() (names []string) {
		entries, err := os.ReadDir(snapshots)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	require.Eventually(t, func() bool { return len(left()) == 0 }, cassiatest.Patience, 10*time.Millisecond)

	post := func(query string) (status int, text string) {
		resp, err := http.Post(server.URL+"/api/v1/admin/tsdb/snapshot"+query, "", nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		return resp.StatusCode, string(body)
	}
	status, text := post("?claim=" + killed)
	require.Equal(t, 500, status)
	require.Contains(t, text,
		"the server found no request for this snapshot in its --storage.path; the command probably has a different --storage.path",
		"nothing is made for whom it isn't removed")
	// The claim file exists but isn't locked, as after a command was killed while it waited for the response.
	require.NoError(t, os.WriteFile(filepath.Join(snapshots, killed+".claim"), nil, 0o644))
	status, text = post("?claim=" + killed)
	require.Equal(t, 500, status)
	require.Contains(t, text, "the process that requested the snapshot has exited")
	require.Empty(t, left())

	status, text = post("")
	require.Equal(t, 200, status, text)
	kill()
	var stderr bytes.Buffer
	require.Zero(
		t, run([]string{"backup", "--storage.path=" + dir, "--to=" + t.TempDir(), "--url=" + server.URL}, &stderr),
		stderr.String(),
	)
	require.Len(t, left(), 1)
	require.Contains(t, text, left()[0], "the user's")
	require.NoError(t, server.stop())

	again := startServe(t, "--storage.path="+dir)
	require.NoError(t, again.stop())
	require.Contains(t, again.log.String(),
		"snapshots exist; their files use disk space until the snapshots are removed")
	require.Len(t, left(), 1)

	// The server of another directory doesn't make a snapshot.
	startServe(t, "--storage.path="+dir)
	elsewhere := cassiatest.StoreWith(t, 1)
	other := startServe(t, "--storage.path="+elsewhere)
	require.Equal(
		t, 1, run([]string{"backup", "--storage.path=" + dir, "--to=" + t.TempDir(), "--url=" + other.URL}, &stderr),
	)
	require.Contains(t, stderr.String(),
		"the server found no request for this snapshot in its --storage.path; the command probably has a different --storage.path")
	require.NoDirExists(t, filepath.Join(elsewhere, snapshotsFolder))
	require.Len(t, left(), 1)
}

// TestBackupFlags checks that invalid flags are rejected before any work starts.
func TestBackupFlags(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"backup", "--storage.path=" + dir, "--to=s3://key:secret@bucket"}, "must not contain credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or AWS_PROFILE with ~/.aws/credentials"},
		{[]string{"backup", "--storage.path=" + dir, "--to=" + dir, "--key-file=x"}, "the key encrypts backups in a bucket (s3://…) only; backups in a folder aren't encrypted"},
		{[]string{"restore", "--storage.path=" + dir, "--from=s3://b"}, "must have 3 to 63"},
		{[]string{"serve", "--storage.path=" + dir, "--backup.keep=3"}, "--backup.keep=3: has no effect without --backup.to"},
		{[]string{"serve", "--storage.path=" + dir, "--backup.every=5h"}, "--backup.every=5h: has no effect without --backup.to"},
		{[]string{"serve", "--storage.path=" + dir, "--backup.to=x", "--backup.every=1s"}, "from 1m to 1y"},
		{[]string{"serve", "--storage.path=" + dir, "--backup.to=s3://bucket?secret_key=x"}, "must not contain credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or AWS_PROFILE with ~/.aws/credentials"},
		{[]string{"serve", "--storage.engine=cassandra", "--cassandra.hosts=x", "--backup.to=x"}, "applies to a data directory only; on Cassandra, back up the cluster with docker/cassandra/snapshot"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(c.args, &stderr), c.args)
		require.Contains(t, stderr.String(), c.want)
	}
}
