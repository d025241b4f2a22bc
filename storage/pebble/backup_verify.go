package pebble

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A backup is verified before it counts:
//
//	a file that is copied      every block of it against its checksum, once: that it is verified stands in the list
//	a file that is shared      against the SHA-256 of its list, each time: links share what a disk does to a file
//	logs, manifest, options    against what was noted when they were written (see ledgerName)
//
// A shared file that has changed is copied anew. What is damaged at its source is backed up all the same, for a backup
// of almost everything is better than none, but its list says so: it takes no other backup's place, and is restored
// only by its name.

// isShared says whether the newest backup's copy of a file is as it was when it was backed up.
func (c *copier) isShared(f backedUpFile) bool {
	sum, n, err := sha256Of(c.ctx, filepath.Join(c.before, f.Name))
	if err == nil && n == f.Size && sum == f.SHA256 {
		return true
	}
	c.stats.Rotten = append(c.stats.Rotten, fmt.Sprintf("file %s of backup %s isn't what was backed up; it is copied anew, and the backups that share it can't be restored", f.Name, filepath.Base(c.before)))
	return false
}

func sha256Of(ctx context.Context, path string) (sum string, n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err = io.Copy(h, cancelable{ctx, f})
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// verify looks at what was copied, and notes in the list what is whole and what isn't.
func (c *copier) verify(list *backedUp) error {
	opts := tableReaderOptions()
	for i := range list.Files {
		f := &list.Files[i]
		if f.Verified || !strings.HasSuffix(f.Name, ".sst") {
			continue
		}
		t := tableFile{fs: vfs.Default, name: f.Name, opts: opts}
		found, err := t.verify(c.ctx, filepath.Join(c.to, f.Name))
		if err != nil {
			return fmt.Errorf("pebble: verifying %s: %w", f.Name, err)
		}
		f.Verified = len(found) == 0
		for _, b := range found {
			list.Damaged = append(list.Damaged, b.String())
		}
		c.stats.Verified++
	}
	_, problems := readLedger(vfs.Default, c.to)
	for _, problem := range problems {
		list.Damaged = append(list.Damaged, problem.Error())
	}
	c.stats.Damaged = list.Damaged
	return nil
}

// isWhole says whether nothing of a backup was damaged when it was made.
func isWhole(folder, name string) bool {
	list, err := readList(filepath.Join(folder, name))
	return err == nil && len(list.Damaged) == 0
}

// superseded returns which of the backups before a whole one, the oldest first, go where keep stay: of those that are
// whole the oldest ones, and with them what lies before the oldest that stays.
func superseded(folder string, before []string, keep int) []string {
	if keep <= 0 {
		return nil
	}
	whole := 1 // the new one
	for i := len(before) - 1; i >= 0; i-- {
		if whole == keep {
			return before[:i+1]
		}
		if isWhole(folder, before[i]) {
			whole++
		}
	}
	return nil
}

// newestWhole returns the newest backup of those, the oldest first, in which nothing was damaged as far as can be told;
// "": there is none.
func newestWhole(folder string, names []string) string {
	for i := len(names) - 1; i >= 0; i-- {
		list, err := readList(filepath.Join(folder, names[i]))
		if err != nil || len(list.Damaged) == 0 {
			return names[i]
		}
	}
	return ""
}
