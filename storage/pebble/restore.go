package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// restoring is the folder, in the directory that Restore makes, in which the files are until they are complete. A directory
// that has it is not opened: some of its files may be missing.
const restoring = "RESTORING"

// ErrUnfinishedRestore says that a directory is in the middle of a restore, or that one ended there.
var ErrUnfinishedRestore = errors.New("pebble: a restore into this directory was begun and not finished; restore again, or remove it")

// checkRestored returns an error for a directory in the middle of a restore.
func checkRestored(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, restoring)); err == nil {
		return fmt.Errorf("%w: %s", ErrUnfinishedRestore, dir)
	}
	return nil
}

// restored is a directory that a restore fills. It was empty, or not there; it may be a link to one, or a file system's root.
type restored struct {
	dir  string
	made bool // by the restore
}

// newRestored begins a restore of the files of a list. What an earlier one left is removed.
func newRestored(dir string, list *backedUp) (r restored, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("pebble: restoring: %w", err)
		}
	}()
	r = restored{dir: dir}
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o755); err != nil { // It fails for a link that leads nowhere.
			return r, err
		}
		r.made = true
	case err != nil:
		return r, err
	case !info.IsDir():
		return r, fmt.Errorf("%s is no directory", dir)
	}
	if checkRestored(dir) != nil {
		for _, f := range list.Files {
			if err := os.Remove(filepath.Join(dir, f.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return r, err
			}
		}
		if err := os.RemoveAll(r.folder()); err != nil {
			return r, err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return r, err
	}
	for _, e := range entries {
		if e.Name() != "lost+found" { // A new file system has it.
			return r, fmt.Errorf("%s must be empty, or not there: it has %s", dir, e.Name())
		}
	}
	return r, os.Mkdir(r.folder(), 0o755)
}

func (r *restored) folder() string { return filepath.Join(r.dir, restoring) }

// undo leaves the directory as it was.
func (r *restored) undo() error {
	err := os.RemoveAll(r.folder())
	if r.made {
		err = errors.Join(err, os.Remove(r.dir))
	}
	return err
}

// finish makes the files those of the directory, durably.
func (r *restored) finish(files []backedUpFile) error {
	if err := syncDir(r.folder()); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Rename(filepath.Join(r.folder(), f.Name), filepath.Join(r.dir, f.Name)); err != nil {
			return fmt.Errorf("pebble: restoring: %w", err)
		}
	}
	if err := syncDir(r.dir); err != nil {
		return err
	}
	if err := os.Remove(r.folder()); err != nil {
		return fmt.Errorf("pebble: restoring: %w", err)
	}
	return errors.Join(syncDir(r.dir), syncDir(filepath.Dir(filepath.Clean(r.dir))))
}
