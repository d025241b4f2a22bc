//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// readLock takes a read lock on an existing file, unless the file system doesn't support locks.
func readLock(name string) (io.Closer, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_RDLCK, Whence: io.SeekStart})
	if err != nil && !errors.Is(err, syscall.ENOLCK) && !errors.Is(err, syscall.EINVAL) {
		return nil, errors.Join(fmt.Errorf("lock held by another process: %w", err), f.Close())
	}
	return f, nil
}

// isHeldByOther reports whether an error of locking means that another process holds the lock.
func isHeldByOther(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES)
}

// otherHolder returns the other process that holds the lock on a file, or 0 if it is unknown.
func otherHolder(name string) int {
	f, err := os.Open(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	l := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &l); err != nil || l.Type == syscall.F_UNLCK {
		return 0
	}
	return int(l.Pid)
}
