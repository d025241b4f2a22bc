package pebble

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file is locked by one, until it is removed.
func TestFileLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claim")
	lock, err := LockFile(path)
	require.NoError(t, err)
	_, err = LockFile(path)
	require.Error(t, err)
	require.FileExists(t, path)
	require.NoError(t, lock.Remove())
	require.NoFileExists(t, path)
	lock, err = LockFile(path)
	require.NoError(t, err)
	require.NoError(t, lock.Remove())
}
