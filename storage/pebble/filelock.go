package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrLockHeld means that a process holds a lock, this one included.
var ErrLockHeld = errors.New("locked")

// FileLock is a file that a process holds a lock on, until it removes or closes it or ends.
type FileLock struct {
	path string
	lock io.Closer
}

// LockFile makes a file and locks it. It returns an error that is ErrLockHeld, and names the process, if a process holds a
// lock on it, this one included; any other error means that the file can't be made or locked.
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
		return nil, err // The file can't be made.
	case !isHeldByOther(err):
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	if pid := lockHolder(path); pid > 0 {
		return nil, fmt.Errorf("%w by process %d", ErrLockHeld, pid)
	}
	return nil, fmt.Errorf("%w by another process", ErrLockHeld)
}

// lockHolder returns the process that holds a lock on a file; 0: unknown. A file on which this process holds a lock isn't opened: closing it
// would release the lock.
func lockHolder(path string) int {
	locks.Lock()
	defer locks.Unlock()
	if locks.held[path] != nil {
		return os.Getpid()
	}
	return otherHolder(path)
}

// Remove removes the file and gives up the lock.
func (l *FileLock) Remove() error { return errors.Join(os.Remove(l.path), l.lock.Close()) }

// Close gives up the lock; the file stays.
func (l *FileLock) Close() error { return l.lock.Close() }
