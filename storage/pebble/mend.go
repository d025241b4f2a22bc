package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/prometheus/tsdb/fileutil"
)

// mendSuffix is of a file that is being made to take a damaged one's place.
const mendSuffix = ".mend"

// MendStats say what Mend did.
type MendStats struct {
	// Files and Bytes are how many files were looked at.
	Files int
	Bytes int64
	// Mended names the files that were replaced, and by which backup's; Lost what was given up; Left what is damaged still.
	Mended, Lost, Left []string
}

// Mend replaces the damaged files of an engine's directory, which nobody uses, by copies of the same files from the
// backups in a folder, the newest that has one whole:
//
//	sorted files            the same name and size, whole in the backup, and the same bytes but for the damage
//	logs, manifest, options the same name, and the checksum that was noted when it was written
//
// These files never change once they are written, so nothing else does: rows that are newer than the backup stay. A
// file that the backups don't have, because it is younger, or because compactions have made another of it, is left as it
// is. With giveUp, what a damaged log has after the damage is given up, so that the directory can be opened without it.
func Mend(ctx context.Context, folder, dir string, giveUp bool) (stats MendStats, err error) {
	lock, err := lockDirectory(dir, writeLocks{vfs.Default})
	if err != nil {
		return stats, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	names, _, err := backups(folder)
	if err != nil {
		return stats, err
	}
	m := &mender{ctx: ctx, dir: dir, folder: folder, stats: &stats}
	for _, name := range slices.Backward(names) {
		if list, err := readList(filepath.Join(folder, name)); err == nil {
			m.lists = append(m.lists, namedList{name, list})
		}
	}
	if err := m.tables(); err != nil {
		return stats, err
	}
	return stats, m.others(giveUp)
}

type namedList struct {
	name string
	backedUp
}

// mender mends one directory.
type mender struct {
	ctx         context.Context
	dir, folder string
	lists       []namedList // of the backups, the newest first
	stats       *MendStats
}

// tables mends sorted files.
func (m *mender) tables() error {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return fmt.Errorf("pebble: mend: %w", err)
	}
	opts := tableReaderOptions()
	verify := func(path string) ([]badRange, error) {
		t := tableFile{fs: vfs.Default, name: filepath.Base(path), opts: opts}
		return t.verify(m.ctx, path)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".sst") {
			continue
		}
		found, err := verify(filepath.Join(m.dir, e.Name()))
		if err != nil {
			return fmt.Errorf("pebble: verifying %s: %w", e.Name(), err)
		}
		if info, err := e.Info(); err == nil {
			m.stats.Files++
			m.stats.Bytes += info.Size()
		}
		if len(found) == 0 {
			continue
		}
		from, err := m.find(e.Name(), func(path string) (bool, error) {
			found, err := verify(path)
			if err != nil || len(found) > 0 {
				return false, err
			}
			return m.isMostlySame(filepath.Join(m.dir, e.Name()), path)
		})
		if err != nil {
			return err
		}
		if from == "" {
			for _, b := range found {
				m.stats.Left = append(m.stats.Left, b.String())
			}
			continue
		}
		if err := m.replace(e.Name(), from); err != nil {
			return err
		}
	}
	return nil
}

// find returns the newest backup that has a file as it was backed up, and that fits.
func (m *mender) find(name string, fits func(path string) (bool, error)) (backup string, err error) {
	for _, list := range m.lists {
		i := slices.IndexFunc(list.Files, func(f backedUpFile) bool { return f.Name == name })
		if i < 0 {
			continue
		}
		path := filepath.Join(m.folder, list.name, name)
		sum, n, err := SHA256Of(m.ctx, path)
		if m.ctx.Err() != nil {
			return "", m.ctx.Err()
		}
		if err != nil || n != list.Files[i].Size || sum != list.Files[i].SHA256 {
			continue // It has rotted.
		}
		if ok, err := fits(path); err != nil || ok {
			return list.name, err
		}
	}
	return "", nil
}

// isMostlySame says whether two files are of one size and half of their bytes, or more, are the same: then they are one
// file, of which a part is damaged. Different ones, compressed, have next to nothing in common but their beginnings and
// ends; a store that was restored gives old names to new files.
func (m *mender) isMostlySame(a, b string) (bool, error) {
	af, err := os.Open(a)
	if err != nil {
		return false, fmt.Errorf("pebble: mend: %w", err)
	}
	defer af.Close()
	bf, err := os.Open(b)
	if err != nil {
		return false, fmt.Errorf("pebble: mend: %w", err)
	}
	defer bf.Close()
	ab, bb := make([]byte, 1<<16), make([]byte, 1<<16)
	same, total := int64(0), int64(0)
	for m.ctx.Err() == nil {
		n, aErr := io.ReadFull(af, ab)
		k, bErr := io.ReadFull(bf, bb)
		if n != k {
			return false, nil
		}
		if bytes.Equal(ab[:n], bb[:n]) {
			same += int64(n)
		} else {
			for i := range n {
				if ab[i] == bb[i] {
					same++
				}
			}
		}
		total += int64(n)
		if aErr != nil || bErr != nil {
			ended := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
			if !ended(aErr) || !ended(bErr) {
				return false, fmt.Errorf("pebble: mend: %w", errors.Join(aErr, bErr))
			}
			return 2*same >= total, nil
		}
	}
	return false, m.ctx.Err()
}

// replace puts a backup's file in a damaged one's place.
func (m *mender) replace(name, backup string) error {
	to := filepath.Join(m.dir, name)
	if err := os.Remove(to + mendSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pebble: mend: %w", err)
	}
	in, err := os.Open(filepath.Join(m.folder, backup, name))
	if err != nil {
		return fmt.Errorf("pebble: mend: %w", err)
	}
	defer in.Close()
	if err := writeSynced(to+mendSuffix, cancelable{m.ctx, in}); err != nil {
		return errors.Join(err, os.Remove(to+mendSuffix))
	}
	if err := fileutil.Replace(to+mendSuffix, to); err != nil {
		return fmt.Errorf("pebble: mend: %w", err)
	}
	m.stats.Mended = append(m.stats.Mended, fmt.Sprintf("file %s is that of backup %s again", name, backup))
	return nil
}

// others mends the files that the ledger tells of.
func (m *mender) others(giveUp bool) error {
	l, problems := readLedger(vfs.Default, m.dir)
	if l == nil { // Of the ledger itself.
		return m.renew(giveUp, problems[0])
	}
	for _, p := range problems {
		w := l.files[p.file]
		from, err := m.find(p.file, func(path string) (bool, error) {
			n, sum, err := sumOf(vfs.Default, path, w.synced)
			return n == w.synced && sum == w.syncSum, err
		})
		if err != nil {
			return err
		}
		switch {
		case from != "":
			err = m.replace(p.file, from)
		case strings.HasPrefix(p.file, "MANIFEST-"):
			m.stats.Left = append(m.stats.Left, p.Error()) // Without it nobody knows which files count.
			return nil
		case !giveUp:
			m.stats.Left = append(m.stats.Left, p.Error()+"; --give-up-log goes on without what is lost")
		case strings.HasSuffix(p.file, ".log"):
			err = m.cut(p.file)
		}
		if err != nil {
			return err
		}
	}
	if len(m.stats.Left) > 0 && !giveUp || len(problems) == 0 {
		return nil
	}
	return m.renew(true, nil)
}

// renew writes the ledger anew, of what there is.
func (m *mender) renew(may bool, cause error) error {
	if !may {
		m.stats.Left = append(m.stats.Left, cause.Error()+"; --give-up-log goes on without knowing whether the log is whole")
		return nil
	}
	return noteCopy(vfs.Default, m.dir)
}

// cut leaves of a log what Pebble can read before the damage.
func (m *mender) cut(name string) error {
	path := filepath.Join(m.dir, name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		m.stats.Lost = append(m.stats.Lost, fmt.Sprintf("log %s, which is gone", name))
		return nil
	}
	if err != nil {
		return fmt.Errorf("pebble: mend: %w", err)
	}
	defer f.Close()
	number, _ := strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 64)
	r := record.NewReader(f, likeNumber(pebbledb.SSTableInfo{}.BackingSSTNum, number))
	whole := int64(0)
	for {
		one, err := r.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, one)
		}
		if err != nil {
			break
		}
		whole = r.Offset()
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("pebble: mend: %w", err)
	}
	m.stats.Lost = append(m.stats.Lost, fmt.Sprintf("what log %s had after its first %d bytes, of %d", name, whole, info.Size()))
	if err := os.Truncate(path, whole); err != nil {
		return fmt.Errorf("pebble: mend: %w", err)
	}
	return nil
}

// likeNumber makes a number of a type that can't be named here.
func likeNumber[T ~uint64](_ T, n uint64) T { return T(n) }
