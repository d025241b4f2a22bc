//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pebble

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// readLock opens an existing file, which fails if another process has opened it exclusively.
func readLock(name string) (io.Closer, error) {
	f, err := os.Open(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("lock held by another process: %v",
			err) //nolint:errorlint // Callers would report a wrapped fs.PathError as missing permissions.
	}
	return f, err
}

// isHeldByOther reports whether an error of locking means that another process holds the lock.
func isHeldByOther(err error) bool { return err != nil }

// otherHolder returns the other process that holds the lock on a file, or 0, because it is unknown on this system.
func otherHolder(string) int { return 0 }
