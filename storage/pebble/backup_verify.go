package pebble

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// A backup is verified before it is complete:
//
//	a file that is copied      every block by its checksum, once: the list records that it is verified
//	a file that is shared      by the SHA-256 in its list, each time: hard links share damage caused by the disk
//	logs, manifest, options    by the ledger, recorded when they were written (see ledgerName)
//
// A shared file that has changed is copied again. Files that are damaged in the source are backed up anyway, because a
// backup of almost everything is better than none. The backup's list names them. Such a backup doesn't make older
// backups superfluous, and is restored only if it is selected by name.

// SHA256Of returns the SHA-256 of a file, in hexadecimal digits, and its size in bytes.
func SHA256Of(ctx context.Context, path string) (sum string, n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err = io.Copy(h, Cancelable(ctx, f))
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// verifyCopies verifies the copied files, and records in the list which are intact and which are damaged.
func (c *copier) verifyCopies(list *backedUp) error {
	for i := range list.Files {
		f := &list.Files[i]
		if f.Verified || !strings.HasSuffix(f.Name, ".sst") {
			continue
		}
		found, err := VerifyFile(c.ctx, c.to, f.Name)
		if err != nil {
			return err
		}
		engine.MeterOf(c.ctx).Add(f.Size / verifyShare)
		f.Verified = len(found) == 0
		list.Damaged = append(list.Damaged, found...)
		c.stats.Verified++
	}
	list.Damaged = append(list.Damaged, VerifyLogs(c.to)...)
	c.stats.Damaged = list.Damaged
	return nil
}

// VerifyFile compares each block of a sorted file (.sst) in a copy of an engine's directory with its checksum, and
// describes the damage. An error means that the disk failed or the context ended.
func VerifyFile(ctx context.Context, dir, name string) (damaged []string, err error) {
	t := tableFile{fs: vfs.Default, name: name, opts: tableReaderOptions()}
	found, err := t.verify(ctx, filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("pebble: verifying %s: %w", name, err)
	}
	for _, b := range found {
		damaged = append(damaged, b.String())
	}
	return damaged, nil
}

// VerifyLogs compares the logs, the manifest and the options in a copy of an engine's directory with the ledger that
// was recorded when they were written. It returns the damaged files.
func VerifyLogs(dir string) (damaged []string) {
	if x := (existing{fs: vfs.Default, dir: dir}); x.listFiles() == nil && !x.isStore {
		return nil // There is nothing to verify.
	}
	_, problems := readLedger(vfs.Default, dir)
	for _, problem := range problems {
		damaged = append(damaged, problem.Error())
	}
	return damaged
}

// isUndamaged reports whether a backup had no damage when it was made, and all of its files exist with their recorded
// sizes.
func isUndamaged(folder, name string) bool {
	dir := filepath.Join(folder, name)
	list, err := readList(dir)
	return err == nil && len(list.Damaged) == 0 && len(incompleteFiles(dir, &list)) == 0
}

// surplusBackups returns the backups that keep doesn't select, and a backup that is dated in the future, if any. names
// are sorted, the oldest first.
func surplusBackups(folder string, names []string, keep Keep, now time.Time) (surplus []string, future string) {
	var all []DatedBackup
	for _, name := range names {
		all = append(all, DatedBackup{Name: name, Taken: backupTime(folder, name), Damaged: !isUndamaged(folder, name)})
	}
	return keep.Surplus(all, now)
}

// newestWhole returns the newest backup whose list contains no damage or can't be read, or "". names are sorted, the
// oldest first.
func newestWhole(folder string, names []string) string {
	for i := len(names) - 1; i >= 0; i-- {
		list, err := readList(filepath.Join(folder, names[i]))
		if err != nil || len(list.Damaged) == 0 {
			return names[i]
		}
	}
	return ""
}

// Backups returns the backups of a store in a folder, the oldest first, including those whose lists can't be read. If
// the folder doesn't exist, there are none.
func Backups(folder, store string) (out []DatedBackup, err error) {
	names, _, err := backups(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, name := range names {
		if list, err := readList(filepath.Join(folder, name)); err == nil && list.Store != store {
			continue
		}
		out = append(out, DatedBackup{Name: name, Taken: backupTime(folder, name), Damaged: !isUndamaged(folder, name)})
	}
	return out, err
}

// SizeOf returns the number of files of a backup in a folder, and their bytes, including files shared with other
// backups.
func SizeOf(folder, name string) (files int, bytes int64, err error) {
	list, err := readList(filepath.Join(folder, name))
	if err != nil {
		return 0, 0, err
	}
	for _, f := range list.Files {
		bytes += f.Size
	}
	return len(list.Files), bytes, nil
}
