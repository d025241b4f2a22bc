package pebble

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// restoring is the folder, in the directory that Restore makes, in which the files are until they are complete. A directory
// that has it is not opened: some of its files may be missing.
const restoring = "RESTORING"

// ErrUnfinishedRestore means that a directory is in the middle of a restore, or that one ended there.
var ErrUnfinishedRestore = errors.New("pebble: a restore to this directory was started but not completed; restore again, or remove the directory")

// checkRestored returns an error for a directory in the middle of a restore.
func checkRestored(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, restoring)); err == nil {
		return fmt.Errorf("%w: %s", ErrUnfinishedRestore, dir)
	}
	return nil
}

// Restored is a directory that a restore fills. It was empty, or not there; it may be a link to one, or a file system's root.
// Until Finish returns without an error no engine opens it.
//
// The folder RESTORING is made first and removed last, so that it proves what the files beside it are: no engine has opened
// the directory since it was empty, and files with the names of an engine's were put there by a restore that was interrupted.
// A later restore, of whichever backup, removes them.
type Restored struct {
	fs   vfs.FS
	dir  string
	made bool // by the restore
	// lock is the engine's on the directory: no other restore fills it, and no server makes a store there.
	lock *FileLock
}

// BeginRestore begins a restore of files of these names into a directory. The files that an earlier, interrupted restore put there are removed.
// It returns an error if the directory has anything else.
func BeginRestore(dir string, files []string) (r *Restored, err error) {
	return beginRestore(vfs.Default, dir, files)
}

func beginRestore(changes vfs.FS, dir string, files []string) (r *Restored, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("pebble: restoring: %w", err)
		}
	}()
	r = &Restored{fs: changes, dir: dir}
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		if err := r.fs.MkdirAll(dir, 0o755); err != nil { // It fails for a link that leads nowhere.
			return r, err
		}
		r.made = true
	case err != nil:
		return r, err
	case !info.IsDir():
		return r, fmt.Errorf("%s is not a directory", dir)
	}
	if _, _, err := r.contents(files); err != nil {
		return r, err // Before anything is changed.
	}
	if r.lock, err = LockFile(filepath.Join(dir, lockName)); errors.Is(err, ErrLockHeld) {
		return r, fmt.Errorf("%s is in use by another restore or a server (%w)", dir, err)
	} else if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.lock.Close())
		}
	}()
	entries, begun, err := r.contents(files)
	if err != nil {
		return r, err
	}
	if begun {
		return r, r.clear(entries)
	}
	if err := r.fs.MkdirAll(r.folder(), 0o755); err != nil {
		return r, err
	}
	return r, syncDir(r.fs, dir)
}

// contents returns the directory's entries, and whether an interrupted restore of these or other files left them. It returns an error for any
// others.
func (r *Restored) contents(files []string) (entries []fs.DirEntry, begun bool, err error) {
	begun = checkRestored(r.dir) != nil
	if entries, err = os.ReadDir(r.dir); err != nil {
		return nil, begun, err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "lost+found", name == restoring, name == lockName: // A new file system has the first.
		case !begun:
			return nil, begun, fmt.Errorf("%s must be empty or not exist, but contains %s", r.dir, name)
		case e.IsDir() || !mayBeRestored(name) && !slices.Contains(files, name):
			return nil, begun, fmt.Errorf("a restore to %s was interrupted, but %s doesn't belong to it; move it away, then restore again", r.dir, name)
		}
	}
	return entries, begun, nil
}

// clear removes what an interrupted restore left, all but the folder.
func (r *Restored) clear(entries []fs.DirEntry) error {
	for _, e := range entries {
		if !e.IsDir() && e.Name() != lockName {
			if err := r.fs.Remove(filepath.Join(r.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	half, err := os.ReadDir(r.folder())
	if err != nil {
		return err
	}
	for _, e := range half {
		if err := r.fs.Remove(filepath.Join(r.folder(), e.Name())); err != nil {
			return err
		}
	}
	return syncDir(r.fs, r.dir)
}

// mayBeRestored reports whether a name is one that files of a backup have.
func mayBeRestored(name string) bool {
	for _, prefix := range []string{"MANIFEST-", "OPTIONS-", "marker.", "CURRENT", ledgerName} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch filepath.Ext(name) {
	case ".sst", ".log", ".blob":
		return true
	}
	return false
}

// NoRoom adds to an error of a restore, if the disk of the directory is full, how many bytes the files of the backup have.
func NoRoom(err error, dir string, bytes int64) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return fmt.Errorf("%w; the files of the backup need %d MiB (%d bytes) on the disk of %s: free disk space, or restore to another disk",
		err, bytes>>20+1, bytes, dir)
}

func (r *Restored) folder() string { return filepath.Join(r.dir, restoring) }

// Write makes one of the files. It is on the disk when Write returns without an error.
func (r *Restored) Write(name string, from io.Reader) error {
	return writeSynced(r.fs, filepath.Join(r.folder(), name), from)
}

// Undo leaves the directory as it was.
func (r *Restored) Undo() error {
	err := removeTree(r.fs, r.folder())
	if r.made && err == nil {
		if err = r.fs.Remove(filepath.Join(r.dir, lockName)); err == nil {
			err = r.fs.Remove(r.dir)
		}
	}
	return errors.Join(err, r.lock.Close())
}

// Finish makes the files those of the directory, durably. Before that it calls change, unless that is nil, with the folder that they are in
// and that an engine may open: what change writes there is in the directory before anybody can open that.
func (r *Restored) Finish(change func(dir string) error) error {
	if change != nil {
		if err := change(r.folder()); err != nil {
			return errors.Join(err, r.Undo())
		}
	}
	return errors.Join(r.finish(), r.lock.Close())
}

func (r *Restored) finish() error {
	if err := syncDir(r.fs, r.folder()); err != nil {
		return err
	}
	entries, err := os.ReadDir(r.folder())
	if err != nil {
		return fmt.Errorf("pebble: restoring: %w", err)
	}
	for _, e := range entries {
		if e.Name() == lockName { // The directory's own is held, and stays.
			if err := r.fs.Remove(filepath.Join(r.folder(), lockName)); err != nil {
				return fmt.Errorf("pebble: restoring: %w", err)
			}
			continue
		}
		if err := r.fs.Rename(filepath.Join(r.folder(), e.Name()), filepath.Join(r.dir, e.Name())); err != nil {
			return fmt.Errorf("pebble: restoring: %w", err)
		}
	}
	if err := syncDir(r.fs, r.dir); err != nil {
		return err
	}
	if err := r.fs.Remove(r.folder()); err != nil {
		return fmt.Errorf("pebble: restoring: %w", err)
	}
	return errors.Join(syncDir(r.fs, r.dir), syncDir(r.fs, filepath.Dir(filepath.Clean(r.dir))))
}
