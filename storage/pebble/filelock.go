package pebble

import (
	"errors"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FileLock is a file that a process holds a lock on, until it removes it or ends.
type FileLock struct {
	path string
	lock io.Closer
}

// LockFile makes a file and locks it. It returns an error if somebody holds a lock on it, this process included.
func LockFile(path string) (*FileLock, error) {
	lock, err := vfs.Default.Lock(path)
	if err != nil {
		return nil, err
	}
	return &FileLock{path, lock}, nil
}

// Remove removes the file and gives up the lock.
func (l *FileLock) Remove() error { return errors.Join(os.Remove(l.path), l.lock.Close()) }
