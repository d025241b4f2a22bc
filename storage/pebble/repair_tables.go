package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// damagedTable is a table's file that differs from the manifest's entry.
type damagedTable struct {
	toRepair
	path string
	live *liveFile
	// onDisk is the file's size, or -1 if the file doesn't exist.
	onDisk int64
}

// repairTables repairs the files of tables.
func (m *repairer) repairTables() error {
	live, err := m.liveFiles()
	if err != nil {
		return err
	}
	meter := engine.MeterOf(m.ctx)
	for _, f := range live {
		meter.AddExpected(int64(f.size))
	}
	var damaged []*damagedTable
	var all []*toRepair
	for _, number := range slices.Sorted(maps.Keys(live)) {
		d, err := m.verifyTable(number, live[number])
		if err != nil {
			return err
		}
		meter.Add(int64(live[number].size))
		if d == nil {
			continue
		}
		if err := m.shortenTable(d); err != nil {
			return err
		}
		if !d.mended {
			damaged, all = append(damaged, d), append(all, &d.toRepair)
		}
	}
	if err := m.replaceAll(all); err != nil {
		return err
	}
	for _, d := range damaged {
		if d.mended {
			continue
		}
		if err := m.extendTable(d); err != nil {
			return err
		}
		m.stats.Left = append(m.stats.Left, d.words...)
	}
	return nil
}

// liveFiles returns the files of tables in the manifest and the logs.
func (m *repairer) liveFiles() (map[uint64]*liveFile, error) {
	files := m.state.liveFiles()
	logs, err := m.readLogs()
	for _, l := range logs {
		addIngested(files, &l)
	}
	return files, err
}

// verifyTable compares a table's file with the manifest, and every block with its checksum. It returns nil if it is
// intact.
func (m *repairer) verifyTable(number uint64, live *liveFile) (*damagedTable, error) {
	name := fmt.Sprintf("%06d.sst", number)
	t := tableFile{fs: vfs.Default, name: name, opts: tableReaderOptions()}
	t.smallest, t.largest = live.bounds()
	d := &damagedTable{path: filepath.Join(m.dir, name), live: live, onDisk: -1}
	info, err := os.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.words = []string{t.badRangeOf(nil, nil, errors.New("missing")).String()}
	case err != nil:
		return nil, fmt.Errorf("pebble: repair: %w", err)
	case live.size != 0 && info.Size() != int64(live.size):
		d.onDisk = info.Size()
		d.words = []string{
			t.badRangeOf(nil, nil, fmt.Errorf("%d bytes instead of %d", info.Size(), live.size)).String(),
		}
	default:
		d.onDisk = info.Size()
		found, err := t.verify(m.ctx, d.path)
		if err != nil {
			return nil, fmt.Errorf("pebble: verifying %s: %w", name, err)
		}
		for _, b := range found {
			if live.hasKeysIn(b) {
				d.words = append(d.words, b.String())
			}
		}
	}
	m.stats.Files++
	m.stats.Bytes += max(0, d.onDisk)
	if len(d.words) == 0 {
		return nil, nil
	}
	d.file = name
	d.may = func(s *Spare, f SpareFile) (bool, error) {
		if live.size != 0 && f.Size != int64(live.size) {
			return false, nil
		}
		described, err := m.liveFilesOf(s)
		return described[number] != nil && described[number].isSame(live), err
	}
	d.fits = func(copied string) (bool, error) {
		found, err := t.verify(m.ctx, copied)
		return len(found) == 0, err
	}
	return d, nil
}

// liveFilesOf returns the files of tables in a backup's manifest and logs. It returns none if the manifest can't be
// read.
func (m *repairer) liveFilesOf(s *Spare) (map[uint64]*liveFile, error) {
	if files, ok := m.described[s.Name]; ok {
		return files, nil
	}
	files := map[uint64]*liveFile{}
	m.described[s.Name] = files
	for name, f := range s.Files {
		isManifest := strings.HasPrefix(name, manifestPrefix) // A checkpoint has only one manifest.
		if !isManifest && !isLog(name) {
			continue
		}
		var text bytes.Buffer
		err := f.Copy(m.ctx, func(from io.Reader) error {
			text.Reset()
			_, err := text.ReadFrom(from)
			return err
		})
		switch {
		case errors.Is(err, ErrBackup): // The backup's file is damaged or missing.
		case err != nil:
			return nil, err
		case isManifest:
			if state, err := readManifestState(&text); err == nil {
				maps.Copy(files, state.liveFiles())
			}
		default:
			l := logContent{}
			l.readRecords(&text, numberOf(name))
			addIngested(files, &l)
		}
	}
	return files, nil
}

// shortenTable repairs a file that has grown, if its first bytes are the complete table.
func (m *repairer) shortenTable(d *damagedTable) (err error) {
	if live := int64(d.live.size); live == 0 || d.onDisk <= live {
		return nil
	}
	d.mended, err = m.replaceWith(&d.toRepair, func(to string) error {
		return copyBeginning(d.path, to, int64(d.live.size))
	})
	if d.mended {
		m.recordRepaired("truncated file %s from %d bytes to the %d bytes of the table", d.file, d.onDisk, d.live.size)
	}
	return err
}

// extendTable extends a file that is too short or missing to the size in the manifest. Pebble opens a directory only if
// all files have the sizes in the manifest. Reading the file then returns an error, which describes the missing rows.
func (m *repairer) extendTable(d *damagedTable) error {
	if d.live.size == 0 || d.onDisk == int64(d.live.size) {
		return nil
	}
	whole := d.toRepair
	whole.fits = func(string) (bool, error) { return true, nil }
	_, err := m.replaceWith(&whole, func(to string) error { return copyBeginning(d.path, to, int64(d.live.size)) })
	for i := range d.words {
		d.words[i] += "; the directory can be opened without these rows"
	}
	return err
}

// copyBeginning copies the first size bytes of a file. If the file is shorter or missing, it adds zeros.
func copyBeginning(from, to string, size int64) error {
	in := io.Reader(strings.NewReader(""))
	f, err := os.Open(from)
	if err == nil {
		defer f.Close()
		in = f
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pebble: repair: %w", err)
	}
	return writeSynced(vfs.Default, to, io.LimitReader(io.MultiReader(in, zeros{}), size))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
