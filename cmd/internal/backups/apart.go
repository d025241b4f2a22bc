package backups

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cassia-db/cassia/storage/pebble"
)

// CheckBeside returns an error if this location can't contain backups of a data directory. This is the case for a
// folder that is the directory, is inside it or contains it, that is a data directory itself, or that is inside a
// backup.
func (l *Location) CheckBeside(dir string) error {
	if l.InBucket() || l.At == "" {
		return nil
	}
	const instead = "choose a folder next to it, preferably on another disk"
	switch inner, outer := isWithin(l.At, dir), isWithin(dir, l.At); {
	case inner && outer:
		return fmt.Errorf("%s is the data directory: %s", l.At, instead)
	case inner:
		return fmt.Errorf("%s is in the data directory %s: %s", l.At, dir, instead)
	case outer:
		return fmt.Errorf("%s contains the data directory %s: %s", l.At, dir, instead)
	}
	return pebble.CheckBackupFolder(l.At)
}

// CheckRestoreTo returns an error if a backup can't be restored to dir. This is the case if dir is the folder of the
// backups, is inside it or contains it, or is inside a backup.
func (l *Location) CheckRestoreTo(dir string) error {
	if err := pebble.CheckBackupFolder(dir); errors.Is(err, pebble.ErrInBackup) {
		return fmt.Errorf("%w; restore to another directory", err)
	}
	if l.InBucket() {
		return nil
	}
	switch inner, outer := isWithin(dir, l.At), isWithin(l.At, dir); {
	case inner && outer:
		return fmt.Errorf("%s is the backup folder; restore to another directory", dir)
	case inner:
		return fmt.Errorf("%s is inside the backup folder %s; restore to another directory", dir, l.At)
	case outer:
		return fmt.Errorf("%s contains the backup folder %s; restore to another directory", dir, l.At)
	}
	return nil
}

// isWithin reports whether path is dir or is inside dir. It detects this even if the paths contain symbolic links or
// name the same folder differently. Neither path needs to exist.
func isWithin(path, dir string) bool {
	path, dir = resolvePath(path), resolvePath(dir)
	of, err := os.Stat(dir)
	for {
		if path == dir {
			return true
		}
		// path and dir are the same folder under different names, because of a bind mount or a case-insensitive file
		// system.
		if info, pathErr := os.Stat(path); err == nil && pathErr == nil && os.SameFile(info, of) {
			return true
		}
		parent := filepath.Dir(path)
		if parent == path {
			return false
		}
		path = parent
	}
}

// resolvePath returns the absolute path without symbolic links. Parts that don't exist are left unchanged.
func resolvePath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	rest := ""
	for {
		if real, err := filepath.EvalSymlinks(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(cmp.Or(real, path), rest)
		}
		if parent := filepath.Dir(path); parent != path {
			path, rest = parent, filepath.Join(filepath.Base(path), rest)
			continue
		}
		return filepath.Join(path, rest)
	}
}
