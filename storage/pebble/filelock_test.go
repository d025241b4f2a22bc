package pebble

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFileLock checks that only one holder can lock a file, until the holder removes it.
func TestFileLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claim")
	lock, err := LockFile(path)
	require.NoError(t, err)
	_, err = LockFile(path)
	require.ErrorIs(t, err, ErrLockHeld)
	require.ErrorContains(t, err, fmt.Sprintf("locked by this process, %d", os.Getpid()))
	require.FileExists(t, path)
	require.NoError(t, lock.Remove())
	require.NoFileExists(t, path)
	lock, err = LockFile(path)
	require.NoError(t, err)
	require.NoError(t, lock.Remove())
	_, err = LockFile(filepath.Join(filepath.Dir(path), "nowhere", "claim"))
	require.ErrorIs(t, err, fs.ErrNotExist, "the cause, not that another process has it")
	require.NotErrorIs(t, err, ErrLockHeld)
}

// TestFileLockNamesItsHolder checks that the error for a file locked by another process names the process.
func TestFileLockNamesItsHolder(t *testing.T) {
	const variable = "CASSIA_TEST_LOCKED_FILE"
	if path := os.Getenv(variable); path != "" {
		_, err := LockFile(path)
		require.NoError(t, err)
		lock, err := filepath.EvalSymlinks(path)
		require.NoError(t, err)
		require.Equal(t, os.Getpid(), lockHolder(lock)) // lockHolder must not release the lock.
		fmt.Println("locked")
		_, _ = io.Copy(io.Discard, os.Stdin) // Hold the lock until the other process has seen it.
		return
	}
	path := filepath.Join(t.TempDir(), "claim")
	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFileLockNamesItsHolder$")
	holder.Env = append(os.Environ(), variable+"="+path)
	in, err := holder.StdinPipe()
	require.NoError(t, err)
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)
	_, err = LockFile(path)
	require.ErrorIs(t, err, ErrLockHeld)
	require.ErrorContains(t, err, fmt.Sprintf("locked by process %d", holder.Process.Pid))
	require.NoError(t, in.Close())
	require.NoError(t, holder.Wait())
	lock, err := LockFile(path)
	require.NoError(t, err)
	require.NoError(t, lock.Remove())
}
