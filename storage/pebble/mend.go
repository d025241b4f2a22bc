package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
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

// MendStats are the results of Mend.
type MendStats struct {
	// Files and Bytes are how many files were looked at.
	Files int
	Bytes int64
	// Mended names the files that were replaced, and by which backup's; Lost those that were given up; Left those that are still
	// damaged.
	Mended, Lost, Left []string
}

// Mend replaces the damaged files of an engine's directory, which nobody uses, by copies of the same files from
// backups, the newest that has one whole:
//
//	sorted files            the same name and size, whole in the backup, and the same bytes but for the damage
//	logs, manifest, options the same name, and the checksum that was noted when it was written
//
// These files never change once they are written, so nothing else does: rows that are newer than the backup stay. A
// file that the backups don't have, because it is younger, or because compactions have made another of it, is left as it
// is. With giveUp, what a damaged log has after the damage is given up, so that the directory can be opened without it.
//
// Spares come the newest first. They are asked for only as long as something is damaged.
func Mend(ctx context.Context, spares iter.Seq2[Spare, error], dir string, giveUp bool) (stats MendStats, err error) {
	lock, err := lockDirectory(dir, writeLocks{vfs.Default})
	if err != nil {
		return stats, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	m := &mender{ctx: ctx, dir: dir, stats: &stats}
	tables, err := m.tables()
	if err != nil {
		return stats, err
	}
	ledger, problems := readLedger(vfs.Default, dir)
	var others []*toMend
	if ledger != nil {
		others = m.others(ledger, problems)
	}
	if err := m.replaceAll(spares, slices.Concat(tables, others)); err != nil {
		return stats, err
	}
	for _, d := range tables {
		if !d.mended {
			stats.Left = append(stats.Left, d.words...)
		}
	}
	if ledger == nil {
		return stats, m.renew(giveUp, problems[0])
	}
	return stats, m.settle(others, giveUp)
}

// mender mends one directory.
type mender struct {
	ctx   context.Context
	dir   string
	stats *MendStats
}

// toMend is a damaged file, which needs a copy in its place.
type toMend struct {
	file string
	// words describe the damage.
	words []string
	// may reports whether a copy of a size can be the file at all, and fits whether a copy that is as it was backed up is it.
	may  func(size int64) bool
	fits func(path string) (bool, error)

	tried  map[string]bool // by SpareFile.ID
	mended bool
}

// tables looks for damage in sorted files.
func (m *mender) tables() (all []*toMend, err error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, fmt.Errorf("pebble: mend: %w", err)
	}
	opts := tableReaderOptions()
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".sst") {
			continue
		}
		name, path := e.Name(), filepath.Join(m.dir, e.Name())
		t := tableFile{fs: vfs.Default, name: name, opts: opts}
		found, err := t.verify(m.ctx, path)
		if err != nil {
			return nil, fmt.Errorf("pebble: verifying %s: %w", name, err)
		}
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("pebble: mend: %w", err)
		}
		m.stats.Files++
		m.stats.Bytes += info.Size()
		if len(found) == 0 {
			continue
		}
		d := &toMend{file: name, tried: map[string]bool{}, may: func(size int64) bool { return size == info.Size() }}
		d.fits = func(copied string) (bool, error) {
			found, err := t.verify(m.ctx, copied)
			if err != nil || len(found) > 0 {
				return false, err
			}
			return m.isMostlySame(path, copied)
		}
		for _, b := range found {
			d.words = append(d.words, b.String())
		}
		all = append(all, d)
	}
	return all, nil
}

// others are the damaged ones of the files in the ledger.
func (m *mender) others(l *ledger, problems []ledgerProblem) (all []*toMend) {
	for _, p := range problems {
		w := l.files[p.file]
		all = append(all, &toMend{
			file: p.file, words: []string{p.Error()}, tried: map[string]bool{},
			may: func(size int64) bool { return size >= w.synced },
			fits: func(copied string) (bool, error) {
				n, sum, err := sumOf(vfs.Default, copied, w.synced)
				return n == w.synced && sum == w.syncSum, err
			},
		})
	}
	return all
}

// replaceAll puts copies in the place of damaged files, as far as there are any.
func (m *mender) replaceAll(spares iter.Seq2[Spare, error], all []*toMend) error {
	left := len(all)
	if left == 0 {
		return nil
	}
	for spare, err := range spares {
		if err != nil {
			return err
		}
		for _, d := range all {
			f, ok := spare.Files[d.file]
			if !ok || d.mended || d.tried[f.ID] || !d.may(f.Size) {
				continue
			}
			d.tried[f.ID] = true
			if d.mended, err = m.replace(d, spare.Name, f); err != nil {
				return err
			}
			if d.mended {
				left--
			}
		}
		if left == 0 {
			break
		}
	}
	return m.ctx.Err()
}

// replace puts a backup's file in a damaged one's place, if it is whole and fits.
func (m *mender) replace(d *toMend, backup string, f SpareFile) (ok bool, err error) {
	to := filepath.Join(m.dir, d.file)
	copied := to + mendSuffix
	remove := func() error {
		if err := os.Remove(copied); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("pebble: mend: %w", err)
		}
		return nil
	}
	if err := remove(); err != nil {
		return false, err
	}
	defer func() {
		if !ok {
			err = errors.Join(err, remove())
		}
	}()
	err = f.Copy(m.ctx, func(from io.Reader) error { return writeSynced(vfs.Default, copied, from) })
	if errors.Is(err, ErrBackup) {
		return false, nil // It has rotted, or is gone.
	}
	if err != nil {
		return false, err
	}
	if ok, err := d.fits(copied); err != nil || !ok {
		return false, err
	}
	if err := fileutil.Replace(copied, to); err != nil {
		return false, fmt.Errorf("pebble: mend: %w", err)
	}
	m.stats.Mended = append(m.stats.Mended, fmt.Sprintf("file %s is that of backup %s again", d.file, backup))
	return true, nil
}

// isMostlySame reports whether two files are of one size and half of their bytes, or more, are the same: then they are one
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

// settle handles the files of the ledger that weren't mended: logs are cut if they may be given up, and others stay damaged. It
// writes the ledger anew unless some do.
func (m *mender) settle(others []*toMend, giveUp bool) error {
	for _, d := range others {
		switch {
		case d.mended:
		case strings.HasPrefix(d.file, "MANIFEST-"):
			m.stats.Left = append(m.stats.Left, d.words...) // Without it, it can't be determined which files count.
			return nil
		case !giveUp:
			m.stats.Left = append(m.stats.Left, d.words[0]+"; --give-up-log goes on without what is lost")
		case strings.HasSuffix(d.file, ".log"):
			if err := m.cut(d.file); err != nil {
				return err
			}
		}
	}
	if len(m.stats.Left) > 0 && !giveUp || len(others) == 0 {
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
