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

// restoring is the folder, in the destination of a restore, with the files until they are complete. A directory with
// this folder can't be opened, because files may be missing.
const restoring = "RESTORING"

// errUnfinishedRestore means that a restore to the directory is in progress or was interrupted.
var errUnfinishedRestore = errors.New(
	"pebble: a restore to this directory was started but not completed; restore again, or remove the directory",
)

// checkRestored returns an error for a directory with an unfinished restore.
func checkRestored(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, restoring)); err == nil {
		return fmt.Errorf("%w: %s", errUnfinishedRestore, dir)
	}
	return nil
}

// Restored is the destination of a restore: a directory that was empty or didn't exist before. It may be a link to a
// directory, or the root of a file system. No engine can open it until Finish returns without an error.
//
// The folder RESTORING is created first and removed last. So it proves that no engine has opened the directory since it
// was empty, and that files with the names of an engine's files were written by an interrupted restore. A later
// restore, of any backup, removes them.
type Restored struct {
	fs   vfs.FS
	dir  string
	made bool // created by the restore
	// lock is the engine's lock on the directory. No other restore can use the directory, and no server can create a
	// store in it.
	lock *FileLock
}

// BeginRestore starts a restore of the named files to a directory. It removes the files of an earlier, interrupted
// restore. It returns an error if the directory has any other files.
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
		if err := r.fs.MkdirAll(dir, 0o755); err != nil { // This fails for a dangling link.
			return r, err
		}
		r.made = true
	case err != nil:
		return r, err
	case !info.IsDir():
		return r, fmt.Errorf("%s is not a directory", dir)
	}
	if _, _, err := r.readContents(files); err != nil {
		return r, err // Check before changing anything.
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
	entries, begun, err := r.readContents(files)
	if err != nil {
		return r, err
	}
	if begun {
		return r, r.removeFiles(entries)
	}
	if err := r.fs.MkdirAll(r.folder(), 0o755); err != nil {
		return r, err
	}
	return r, syncDir(r.fs, dir)
}

// readContents returns the directory's entries, and whether an interrupted restore of these or other files left them.
// It returns an error for any other entries.
func (r *Restored) readContents(files []string) (entries []fs.DirEntry, begun bool, err error) {
	begun = checkRestored(r.dir) != nil
	if entries, err = os.ReadDir(r.dir); err != nil {
		return nil, begun, err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "lost+found", name == restoring, name == lockName: // New file systems have a lost+found.
		case !begun:
			return nil, begun, fmt.Errorf("%s must be empty or not exist, but contains %s", r.dir, name)
		case e.IsDir() || !mayBeRestored(name) && !slices.Contains(files, name):
			return nil, begun, fmt.Errorf(
				"a restore to %s was interrupted, but %s doesn't belong to it; move it away, then restore again", r.dir,
				name,
			)
		}
	}
	return entries, begun, nil
}

// removeFiles removes the files of an interrupted restore, except the folder.
func (r *Restored) removeFiles(entries []fs.DirEntry) error {
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

// mayBeRestored reports whether files of a backup can have this name.
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

// NoRoom adds the size of the backup's files in bytes to an error of a restore, if the disk of the directory is full.
func NoRoom(err error, dir string, bytes int64) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return fmt.Errorf(
		"%w; the files of the backup need %d MiB (%d bytes) on the disk of %s: free disk space, or restore to "+
			"another disk",
		err, bytes>>20+1, bytes, dir,
	)
}

func (r *Restored) folder() string { return filepath.Join(r.dir, restoring) }

// Write writes a file. It is durable when Write returns without an error.
func (r *Restored) Write(name string, from io.Reader) error {
	return writeSynced(r.fs, filepath.Join(r.folder(), name), from)
}

// Undo restores the previous state of the directory.
func (r *Restored) Undo() error {
	err := removeTree(r.fs, r.folder())
	if r.made && err == nil {
		if err = r.fs.Remove(filepath.Join(r.dir, lockName)); err == nil {
			err = r.fs.Remove(r.dir)
		}
	}
	return errors.Join(err, r.lock.Close())
}

// Finish moves the files into the directory, durably. Before that it calls change, if not nil, with the folder of the
// files, which an engine may open. Changes made there are in the directory before any process can open it.
func (r *Restored) Finish(change func(dir string) error) error {
	if change != nil {
		if err := change(r.folder()); err != nil {
			return errors.Join(err, r.Undo())
		}
	}
	return errors.Join(r.finishMoves(), r.lock.Close())
}

func (r *Restored) finishMoves() error {
	if err := syncDir(r.fs, r.folder()); err != nil {
		return err
	}
	entries, err := os.ReadDir(r.folder())
	if err != nil {
		return fmt.Errorf("pebble: restoring: %w", err)
	}
	for _, e := range entries {
		if e.Name() == lockName { // The directory's own lock is held, and is kept.
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
