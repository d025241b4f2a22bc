package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// A backup shares a file with an earlier backup by a hard link:
//
//	same name, size and time as in the newest backup of the store      the file at the source isn't read
//	same size and SHA-256 as any file of any backup in the folder      the file at the source is read
//
// The first case applies to sorted files, which never change under the same name and which a checkpoint links. The
// second applies to files that a checkpoint copies (options, manifest, logs without new writes), and to a restored
// directory, whose files have other times and, after the next flush, other names.

// contents are the files of a folder's backups, by size and SHA-256. Each list starts with the file of the newest
// backup.
type contents map[int64]map[string][]storedFile

// storedFile is a file of a backup.
type storedFile struct {
	backedUpFile
	backup string // name of the backup
}

// filesBefore returns the files of the store's newest backup, by name, or none if its list can't be read.
func (c *copier) filesBefore() map[string]backedUpFile {
	known := map[string]backedUpFile{}
	if c.before == "" {
		return known
	}
	if list, err := readList(c.before); err == nil {
		for _, f := range list.Files {
			known[f.Name] = f
		}
	}
	return known
}

// shareUnchanged links f, the file of the same name in the previous backup, if the file at the source is unchanged.
func (c *copier) shareUnchanged(f backedUpFile, source fs.FileInfo) (backedUpFile, bool) {
	if f.Name == "" || f.Size != source.Size() || f.Changed != source.ModTime().UnixNano() || c.noLinks {
		return f, false
	}
	backup := filepath.Base(c.before)
	return f, c.isShared(f, backup) && c.linkFile(f.Name, f, backup)
}

// shareContent links a file of any backup in the folder that has the same content as the file at the source.
func (c *copier) shareContent(source fs.FileInfo) (f backedUpFile, ok bool, err error) {
	if c.noLinks || !source.Mode().IsRegular() {
		return f, false, nil
	}
	if c.contents == nil {
		if c.contents, err = contentsOf(filepath.Dir(c.to)); err != nil {
			return f, false, err
		}
	}
	if len(c.contents[source.Size()]) == 0 {
		return f, false, nil
	}
	sum, n, err := SHA256Of(c.ctx, filepath.Join(c.from, source.Name()))
	if err != nil {
		return f, false, fmt.Errorf("pebble: copying: %w", err)
	}
	var rotten []fs.FileInfo
	for _, stored := range c.contents[n][sum] {
		info, err := os.Stat(c.pathOf(stored.Name, stored.backup))
		if err != nil || slices.ContainsFunc(rotten, func(r fs.FileInfo) bool { return os.SameFile(r, info) }) {
			continue
		}
		if !c.isShared(stored.backedUpFile, stored.backup) {
			if err := c.ctx.Err(); err != nil {
				return f, false, err
			}
			rotten = append(rotten, info)
			continue
		}
		f = stored.backedUpFile
		f.Name, f.Changed = source.Name(), source.ModTime().UnixNano()
		return f, c.linkFile(stored.Name, f, stored.backup), nil
	}
	return f, false, nil
}

func (c *copier) pathOf(name, backup string) string {
	return filepath.Join(filepath.Dir(c.to), backup, name)
}

// linkFile makes f a hard link to the file called name in a backup.
func (c *copier) linkFile(name string, f backedUpFile, backup string) bool {
	err := c.files.Link(c.pathOf(name, backup), filepath.Join(c.to, f.Name))
	if err != nil && !errors.Is(err, syscall.EMLINK) { // The number of links to a file is limited, to 65,000 on ext4.
		c.noLinks = true
	}
	return err == nil
}

// isShared reports whether a backup's copy of a file still has the content that was backed up.
func (c *copier) isShared(f backedUpFile, backup string) bool {
	sum, n, err := SHA256Of(c.ctx, c.pathOf(f.Name, backup))
	if err == nil && n == f.Size && sum == f.SHA256 {
		return true
	}
	text := fmt.Sprintf("file %s of backup %s differs from the file that was backed up; the new backup stores its own "+
		"copy, but earlier backups that share the damaged file can't be restored", f.Name, backup)
	if c.ctx.Err() == nil && !slices.Contains(c.stats.Rotten, text) {
		c.stats.Rotten = append(c.stats.Rotten, text)
	}
	return false
}

// contentsOf reads the lists of all backups in a folder. An unreadable list contributes no files.
func contentsOf(folder string) (contents, error) {
	names, _, err := backups(folder)
	if err != nil {
		return nil, err
	}
	all := contents{}
	for _, name := range slices.Backward(names) {
		list, err := readList(filepath.Join(folder, name))
		if err != nil {
			continue
		}
		for _, f := range list.Files {
			if all[f.Size] == nil {
				all[f.Size] = map[string][]storedFile{}
			}
			all[f.Size][f.SHA256] = append(all[f.Size][f.SHA256], storedFile{f, name})
		}
	}
	return all, nil
}
