package pebble

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// restoring is the folder, in the directory that Restore makes, in which the files are until they are complete. A directory
// that has it is not opened: some of its files may be missing.
const restoring = "RESTORING"

// ErrUnfinishedRestore means that a directory is in the middle of a restore, or that one ended there.
var ErrUnfinishedRestore = errors.New("pebble: a restore into this directory was begun and not finished; restore again, or remove it")

// checkRestored returns an error for a directory in the middle of a restore.
func checkRestored(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, restoring)); err == nil {
		return fmt.Errorf("%w: %s", ErrUnfinishedRestore, dir)
	}
	return nil
}

// Restored is a directory that a restore fills. It was empty, or not there; it may be a link to one, or a file system's root.
// Until Finish returns without an error no engine opens it.
type Restored struct {
	dir   string
	made  bool // by the restore
	files []string
}

// BeginRestore begins a restore of files into a directory. What an earlier one left of them is removed. It returns an error if
// the directory has anything else.
func BeginRestore(dir string, files []string) (r *Restored, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("pebble: restoring: %w", err)
		}
	}()
	r = &Restored{dir: dir, files: files}
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
		for _, name := range files {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
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

func (r *Restored) folder() string { return filepath.Join(r.dir, restoring) }

// Write makes one of the files. It is on the disk when Write returns without an error.
func (r *Restored) Write(name string, from io.Reader) error {
	return writeSynced(filepath.Join(r.folder(), name), from)
}

// Undo leaves the directory as it was.
func (r *Restored) Undo() error {
	err := os.RemoveAll(r.folder())
	if r.made {
		err = errors.Join(err, os.Remove(r.dir))
	}
	return err
}

// Finish makes the files those of the directory, durably.
func (r *Restored) Finish() error {
	if err := syncDir(r.folder()); err != nil {
		return err
	}
	for _, name := range r.files {
		if err := os.Rename(filepath.Join(r.folder(), name), filepath.Join(r.dir, name)); err != nil {
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
