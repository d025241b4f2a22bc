package pebble

import (
	"errors"
	"fmt"
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrForeign means that a directory holds something else than an engine's data.
var ErrForeign = errors.New("pebble: the directory holds something else")

// CheckForeign returns an error for which ErrForeign is true where Open makes no engine, since dir, a directory of this
// machine, holds something else.
func CheckForeign(dir string) error { return checkForeign(dir, vfs.Default) }

// checkForeign returns an error for a directory without a database in which there are files that no engine makes: an engine
// made there would hide that its data are elsewhere.
func checkForeign(dir string, fs vfs.FS) error {
	if desc, err := pebbledb.Peek(dir, fs); err != nil || desc.Exists {
		return nil // Opening it returns the error.
	}
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("pebble: open %s: %w", dir, err)
	}
	for _, name := range names {
		if !mayBeOurs(name) {
			return fmt.Errorf("%w: there is no store in %s, but %s; name the directory of a store, or an empty one for a new store", ErrForeign, dir, name)
		}
	}
	return nil
}

// mayBeOurs reports whether a name is one that an engine that was killed while it was made has left, or that a new
// file system or a file manager makes.
func mayBeOurs(name string) bool {
	for _, prefix := range []string{".", "LOCK", "MANIFEST-", "OPTIONS-", "marker.", "CURRENT", "temporary.", ledgerName, "snapshots", "lost+found"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob") || strings.HasSuffix(name, ".dbtmp")
}
