package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrLockHeld means that a process, possibly this one, holds a lock.
var ErrLockHeld = errors.New("locked")

// FileLock is a locked file. The lock is released when the process removes or closes the file, or exits.
type FileLock struct {
	path string
	lock io.Closer
}

// LockFile creates a file and locks it. If a process, possibly this one, holds the lock, it returns an ErrLockHeld that
// names the process. Any other error means that the file can't be created or locked.
func LockFile(path string) (*FileLock, error) {
	path, err := filepath.Abs(path) // Locks within a process are by name.
	if err != nil {
		return nil, err
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	lock, err := writeLocks{vfs.Default}.Lock(path)
	var cause *os.PathError
	switch {
	case err == nil:
		return &FileLock{path, lock}, nil
	case errors.Is(err, errHeld):
		return nil, fmt.Errorf("%w by this process, %d", ErrLockHeld, os.Getpid())
	case errors.As(err, &cause):
		return nil, err // The file can't be created.
	case !isHeldByOther(err):
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	if pid := lockHolder(path); pid > 0 {
		return nil, fmt.Errorf("%w by process %d", ErrLockHeld, pid)
	}
	return nil, fmt.Errorf("%w by another process", ErrLockHeld)
}

// lockHolder returns the process that holds a lock on a file, or 0 if it is unknown. It doesn't open a file that this
// process has locked, because closing it would release the lock.
func lockHolder(path string) int {
	locks.Lock()
	defer locks.Unlock()
	if locks.held[path] != nil {
		return os.Getpid()
	}
	return otherHolder(path)
}

// Remove removes the file and releases the lock.
func (l *FileLock) Remove() error { return errors.Join(os.Remove(l.path), l.lock.Close()) }

// Close releases the lock and leaves the file.
func (l *FileLock) Close() error { return l.lock.Close() }
