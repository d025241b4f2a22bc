package main

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

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
	dir, folder := cassiatest.StoreWith(t, 8), t.TempDir()
	for range 4 {
		var stderr bytes.Buffer
		require.Zero(t, run([]string{"backup", "--storage.path=" + dir, "--to=" + folder}, &stderr), stderr.String())
	}
	made, err := filepath.Glob(filepath.Join(folder, "*Z-*"))
	require.NoError(t, err)
	require.Len(t, made, 4)
}

// TestBackupFlags are refused before anything is done.
func TestBackupFlags(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"backup", "--storage.path=" + dir, "--to=s3://key:secret@bucket"}, "must not have credentials"},
		{[]string{"backup", "--storage.path=" + dir, "--to=" + dir, "--key-file=x"}, "a key is for backups in a bucket"},
		{[]string{"restore", "--storage.path=" + dir, "--from=s3://b"}, "must have 3 to 63"},
		{[]string{"serve", "--storage.path=" + dir, "--backup.keep=3"}, "need --backup.to"},
		{[]string{"serve", "--storage.path=" + dir, "--backup.to=x", "--backup.every=1s"}, "must be at least 1m"},
		{[]string{"serve", "--storage.path=" + dir, "--backup.to=s3://bucket?secret_key=x"}, "must not have credentials"},
		{[]string{"serve", "--storage.engine=cassandra", "--cassandra.hosts=x", "--backup.to=x"}, "over Cassandra, docker/cassandra/snapshot"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(c.args, &stderr), c.args)
		require.Contains(t, stderr.String(), c.want)
	}
}
