package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// RetentionError means that a backup was made but removing older backups failed.
type RetentionError struct{ Err error }

func (e *RetentionError) Error() string {
	return fmt.Sprintf("the backup is complete, but removing older backups failed: %v", e.Err)
}

func (e *RetentionError) Unwrap() error { return e.Err }

// ErrInBackup means that a folder is a backup or is inside one, and therefore can't be used for anything else.
var ErrInBackup = errors.New("pebble: the folder is a backup, or is inside a backup")

// CheckBackupFolder returns an error if a folder, which may not exist, can't be used for backups: it is inside a
// backup, or it is a store's directory.
func CheckBackupFolder(folder string) error {
	abs, err := absoluteDir(folder)
	if err != nil {
		return err
	}
	for dir := abs; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, backupList)); err == nil {
			return fmt.Errorf("%w: %s (see %s)", ErrInBackup, folder, filepath.Join(dir, backupList))
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if x := (existing{fs: vfs.Default, dir: abs}); x.listFiles() == nil && x.isStore {
		// This also applies to a store that has lost files.
		return fmt.Errorf("pebble: backup folder: %s contains a store; choose another folder", folder)
	}
	return nil
}

// removeBackup removes a backup from a folder. The backup is renamed first. So an interrupted removal leaves either the
// complete backup or an incomplete one, which the next backup removes.
func removeBackup(files vfs.FS, folder, name string) error {
	dir := filepath.Join(folder, name)
	if err := rename(files, dir, dir+partialSuffix); err != nil {
		return err
	}
	return removeTree(files, dir+partialSuffix)
}

// removeTree removes a directory and everything in it, if it exists.
func removeTree(files vfs.FS, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pebble: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			err = removeTree(files, path)
		} else if err = files.Remove(path); err != nil {
			err = fmt.Errorf("pebble: %w", err)
		}
		if err != nil {
			return err
		}
	}
	if err := files.Remove(dir); err != nil {
		return fmt.Errorf("pebble: %w", err)
	}
	return nil
}

// lockFolder locks a folder of backups for one backup.
func lockFolder(folder string) (*FileLock, error) {
	lock, err := LockFile(filepath.Join(folder, "lock"))
	if errors.Is(err, ErrLockHeld) {
		return nil, fmt.Errorf("%w: %s (%w)", errBackupBusy, folder, err)
	}
	if err != nil {
		return nil, fmt.Errorf("pebble: backup folder: %w", err)
	}
	return lock, nil
}
