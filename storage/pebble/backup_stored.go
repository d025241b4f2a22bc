package pebble

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// StoredBackup describes a complete backup of any store.
type StoredBackup struct {
	Name  string    `json:"name"`
	Taken time.Time `json:"taken"`
	// Store, Host and Tenants are as in Lineage.
	Store   string   `json:"store,omitempty"`
	Host    string   `json:"host,omitempty"`
	Tenants []string `json:"tenants,omitempty"`
	Files   int      `json:"files"`
	Bytes   int64    `json:"bytes"`
	// Damaged are the parts that were already damaged in the source when the backup was made. All other files were
	// verified then.
	Damaged []string `json:"damaged,omitempty"`
	// Incomplete describes the files of the backup that are missing or have a wrong size. Wrong contents are found only
	// by FolderVerifier.
	Incomplete []string `json:"incomplete,omitempty"`
	// Unreadable is the reason why the list of files can't be read, or empty if it can. If Unreadable is set, only Name
	// and Taken of the other fields are set.
	Unreadable string `json:"unreadable,omitempty"`
}

// IsWhole reports whether the backup has no known damage, and all of its files exist and have their recorded sizes.
func (b *StoredBackup) IsWhole() bool {
	return b.Unreadable == "" && len(b.Damaged) == 0 && len(b.Incomplete) == 0
}

// BackupVersionError means that another release made a backup. It is an ErrBackup, because the backup can't be used.
type BackupVersionError struct {
	Backup             string
	Version, Supported int
}

func (e *BackupVersionError) Error() string {
	return fmt.Sprintf("pebble: the backup %s has version %d; this release supports version %d",
		e.Backup, e.Version, e.Supported)
}

// Is supports errors.Is.
func (e *BackupVersionError) Is(target error) bool { return target == ErrBackup }

// MultipleStoresError means that a destination has backups of multiple stores, so that the newest backup may be of
// another store than intended.
type MultipleStoresError struct {
	At string
	// Newest has the newest backup of each store.
	Newest []string
}

func (e *MultipleStoresError) Error() string {
	return fmt.Sprintf("pebble: %s has backups of %d stores; choose one with --backup. The newest of each store: %s",
		e.At, len(e.Newest), strings.Join(e.Newest, ", "))
}

// StoredBackups returns the backups in a folder, the oldest first, or none if the folder doesn't exist.
func StoredBackups(folder string) (out []StoredBackup, err error) {
	names, _, err := backups(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, name := range names {
		list, err := readList(filepath.Join(folder, name))
		b := StoredBackup{Name: name, Taken: backupTime(folder, name).UTC()}
		if err != nil {
			b.Unreadable = err.Error()
		} else {
			b.Store, b.Host, b.Tenants = list.Store, list.Host, list.Tenants
			b.Damaged, b.Files = list.Damaged, len(list.Files)
			for _, f := range list.Files {
				b.Bytes += f.Size
			}
			b.Incomplete = incompleteFiles(filepath.Join(folder, name), &list)
		}
		out = append(out, b)
	}
	return out, err
}

// incompleteFiles returns a text for each file of a backup that is missing or has a wrong size. It reads no contents.
func incompleteFiles(dir string, list *backedUp) (texts []string) {
	for _, f := range list.Files {
		path := filepath.Join(dir, f.Name)
		switch info, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			texts = append(texts, path+" is missing")
		case err != nil:
			texts = append(texts, fmt.Sprintf("%s can't be read: %v", path, err))
		case info.Size() != f.Size:
			texts = append(texts, fmt.Sprintf("%s has %d of %d bytes", path, info.Size(), f.Size))
		}
	}
	return texts
}

// FolderVerifier reads backups of a folder and compares them with their lists. A file that multiple backups share is
// read once. An engine.WorkMeter of the context counts the bytes of all files.
type FolderVerifier struct {
	Folder string

	// sums are the hashes of the files that have been read, by their expected hash.
	sums map[string][]summed
}

// summed is a file that has been read.
type summed struct {
	info os.FileInfo
	sum  string
}

// Verify returns the files of a backup that are missing or differ from the files that were backed up. An error means
// that the list can't be read, the disk failed, or the context ended.
func (v *FolderVerifier) Verify(ctx context.Context, name string) (damaged []string, err error) {
	dir := filepath.Join(v.Folder, name)
	list, err := readList(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(dir); statErr != nil {
			return nil, fmt.Errorf("%w at %s", ErrNoBackup, dir)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, f := range list.Files {
		path := filepath.Join(dir, f.Name)
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			damaged = append(damaged, path+" is missing")
		case err != nil:
			return damaged, fmt.Errorf("pebble: verifying a backup: %w", err)
		default:
			sum, err := v.hashFile(ctx, path, f.SHA256, info)
			if ctx.Err() != nil {
				return damaged, ctx.Err()
			}
			if err != nil {
				damaged = append(damaged, fmt.Sprintf("%s can't be read: %v", path, err))
			} else if sum != f.SHA256 {
				damaged = append(damaged, path+" differs from the file that was backed up")
			}
		}
	}
	return damaged, nil
}

// hashFile returns the hash of a file. want is its expected hash.
func (v *FolderVerifier) hashFile(ctx context.Context, path, want string, info os.FileInfo) (string, error) {
	for _, s := range v.sums[want] {
		if os.SameFile(s.info, info) {
			engine.MeterOf(ctx).Add(info.Size())
			return s.sum, nil
		}
	}
	sum, _, err := SHA256Of(ctx, path)
	if err != nil {
		return "", err
	}
	if v.sums == nil {
		v.sums = map[string][]summed{}
	}
	v.sums[want] = append(v.sums[want], summed{info, sum})
	return sum, nil
}

// DeleteBackups removes backups from a folder. All of them must exist. While DeleteBackups runs, no backup can be made
// in the folder.
func DeleteBackups(ctx context.Context, folder string, names []string) (err error) {
	lock, err := lockFolder(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	all, _, err := backups(folder)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("%w named %s in %s", ErrNoBackup, name, folder)
		}
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := removeBackup(vfs.Default, folder, name); err != nil {
			return err
		}
	}
	return nil
}
