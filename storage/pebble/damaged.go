package pebble

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/damagedblock"
	"github.com/cassia-db/cassia/storage/pebble/badblocks"
)

// maxBadRanges is the max number of damaged ranges that are kept. Beyond it, files are verified again.
const maxBadRanges = 1000

// damaged holds the ranges of keys that can't be read. When a scan or Verify detects damage, the files of these keys
// are verified completely and their damaged ranges added.
type damaged struct {
	mu       sync.Mutex
	ranges   []badRange // ordered by their starts
	verified map[uint64]time.Time
	locate   sync.Mutex // held while files are verified
}

// verifyInterval is the min interval between two verifications of a file in which no damage was found. Damage may occur
// at any time, but an error that no block explains must not make every scan read whole files.
const verifyInterval = time.Minute

// rangesWithin returns the ranges with keys from start (included) to end (excluded), in order. Adjacent ranges are
// joined.
func (d *damaged) rangesWithin(start, end []byte) (found []badRange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.ranges {
		if bytes.Compare(b.start, end) >= 0 || b.end != nil && bytes.Compare(b.end, start) <= 0 {
			continue
		}
		if n := len(found); n > 0 && (found[n-1].end == nil || bytes.Compare(b.start, found[n-1].end) <= 0) {
			if last := &found[n-1]; last.end != nil && (b.end == nil || bytes.Compare(b.end, last.end) > 0) {
				last.end = b.end
			}
			continue
		}
		found = append(found, b)
	}
	return found
}

// put replaces the damaged ranges of a table.
func (d *damaged) put(table uint64, found []badRange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ranges = slices.DeleteFunc(d.ranges, func(b badRange) bool { return b.table == table })
	if len(d.ranges)+len(found) > maxBadRanges {
		d.ranges = nil
	}
	d.ranges = append(d.ranges, found...)
	slices.SortStableFunc(d.ranges, func(a, b badRange) int {
		return cmp.Or(bytes.Compare(a.start, b.start), cmp.Compare(a.table, b.table))
	})
	if d.verified == nil || len(d.verified) > maxBadRanges {
		d.verified = map[uint64]time.Time{}
	}
	d.verified[table] = time.Now()
}

// isNew reports whether a table wasn't verified within the last verifyInterval.
func (d *damaged) isNew(table uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.verified[table]
	return !ok || time.Since(at) > verifyInterval
}

// damagedWithin returns the damaged ranges of keys from start (included) to end (excluded). If none are known, it first
// verifies the files with these keys.
func (e *Engine) damagedWithin(ctx context.Context, start, end []byte) ([]badRange, error) {
	if found := e.damaged.rangesWithin(start, end); len(found) > 0 {
		return found, nil
	}
	e.damaged.locate.Lock() // One at a time, because the result serves all callers.
	defer e.damaged.locate.Unlock()
	if found := e.damaged.rangesWithin(start, end); len(found) > 0 {
		return found, nil
	}
	if err := e.verify(ctx, e.damaged.isNew, nil, pebbledb.WithKeyRangeFilter(start, end)); err != nil {
		return nil, err
	}
	return e.damaged.rangesWithin(start, end), nil
}

// verify reads the files for which wanted returns true, or all files if wanted is nil, and records their damage. If
// seen is set, it is called for each file with its size and its damaged ranges.
func (e *Engine) verify(
	ctx context.Context, wanted func(table uint64) bool, seen func(bytes uint64, found []badRange),
	which ...pebbledb.SSTablesOption,
) error {
	levels, err := e.db.SSTables(which...)
	if err != nil {
		return translateError("list files", err)
	}
	for _, level := range levels {
		for i := range level {
			info := &level[i]
			t := tableFile{
				fs: e.fs, name: fileName(info), table: uint64(info.FileNum),
				opts: e.tableOptions, smallest: info.Smallest.UserKey, largest: info.Largest.UserKey,
			}
			if wanted != nil && !wanted(t.table) {
				continue
			}
			found, err := t.verify(ctx, e.fs.PathJoin(e.dir, t.name))
			if errors.Is(err, fs.ErrNotExist) && !e.isLive(t.table) {
				continue // It was compacted in the meantime.
			}
			if err != nil {
				return translateError("verify "+t.name, err)
			}
			e.damaged.put(t.table, found)
			if seen != nil {
				seen(info.Size, found)
			}
		}
	}
	return nil
}

func (e *Engine) isLive(table uint64) bool {
	levels, err := e.db.SSTables()
	return err != nil || slices.ContainsFunc(levels, func(level []pebbledb.SSTableInfo) bool {
		return slices.ContainsFunc(level, func(info pebbledb.SSTableInfo) bool { return uint64(info.FileNum) == table })
	})
}

// VerifyFiles reads all sorted files and compares every block with its checksum. report is called with a
// damagedblock.BlockError for each damaged part of a sorted file, whose rows can't be read, and with another error for
// each other file that is damaged.
func (e *Engine) VerifyFiles(ctx context.Context, report func(problem error)) (files int, bytes int64, err error) {
	if err := e.begin(ctx); err != nil {
		return 0, 0, err
	}
	defer e.release()
	meter := engine.MeterOf(ctx)
	if levels, err := e.db.SSTables(); err == nil {
		for _, level := range levels {
			for i := range level {
				meter.AddExpected(int64(level[i].Size))
			}
		}
	}
	var damaged []badRange
	err = e.verify(ctx, nil, func(size uint64, found []badRange) {
		meter.Add(int64(size))
		files++
		bytes += int64(size)
		damaged = append(damaged, found...)
	})
	for _, part := range partsOf(damaged) {
		report(part)
	}
	for _, problem := range e.ledger.verify() {
		report(problem)
	}
	return files, bytes, err
}

// DamagedFiles describes the damaged parts of files that reads and compactions have found since the engine was opened,
// except the parts of deleted files. If a file was verified because of a scan that skips damage, its damaged parts are
// described as VerifyFiles describes them.
func (e *Engine) DamagedFiles() (problems []string) {
	if e.acquire() != nil {
		return nil
	}
	defer e.release()
	levels, err := e.db.SSTables()
	if err != nil {
		return nil
	}
	tables, files := map[uint64]bool{}, map[string]bool{} // in use
	for _, level := range levels {
		for i := range level {
			tables[uint64(level[i].FileNum)], files[fileName(&level[i])] = true, true
		}
	}
	e.damaged.mu.Lock()
	ranges := slices.Clone(e.damaged.ranges)
	e.damaged.mu.Unlock()
	for _, part := range partsOf(slices.DeleteFunc(ranges, func(b badRange) bool { return !tables[b.table] })) {
		problems = append(problems, part.Error())
		delete(files, part.File) // All damage of the file is known.
	}
	for _, block := range e.events.blocks.Blocks() {
		if files[block.File] {
			problems = append(problems, fmt.Sprintf("file %s is damaged: %v", block.File, block.Err))
		}
	}
	return problems
}

// fileName returns the name of the file that contains a table.
func fileName(table *pebbledb.SSTableInfo) string {
	return fmt.Sprintf("%06d.sst", uint64(table.BackingSSTNum))
}

// cause returns the error for rows in the range. It is the same for every scan that finds the damage.
func (b badRange) cause() error { return fmt.Errorf("pebble: %w", b.block()) }

func (b badRange) block() *damagedblock.BlockError { return badblocks.LocateIn(b.file, b.err) }

func (b badRange) String() string { return (&damagedPart{b.block(), []badRange{b}}).Error() }

// damagedPart is a damaged part of a file. There are multiple ranges if multiple tables use the file.
type damagedPart struct {
	*damagedblock.BlockError
	ranges []badRange
}

// partsOf groups ranges by the damaged parts of files to which they belong.
func partsOf(ranges []badRange) (parts []*damagedPart) {
	for _, r := range ranges {
		block := r.block()
		i := slices.IndexFunc(parts, func(p *damagedPart) bool {
			return p.File == block.File && p.Offset == block.Offset
		})
		if i < 0 {
			i, parts = len(parts), append(parts, &damagedPart{BlockError: block})
		}
		parts[i].ranges = append(parts[i].ranges, r)
	}
	return parts
}

// maxRangesShown is the max number of ranges in the text of a damagedPart.
const maxRangesShown = 3

func (p *damagedPart) Error() string {
	var rows []string
	for _, r := range p.ranges[:min(len(p.ranges), maxRangesShown)] {
		rows = append(rows, fmt.Sprintf("%s to %s", keyInWords(r.start), keyInWords(r.end)))
	}
	list := strings.Join(rows, ", and from ")
	if more := len(p.ranges) - len(rows); more > 0 {
		list += fmt.Sprintf(", and %d more ranges", more)
	}
	return fmt.Sprintf("file %s is damaged: rows from %s are unreadable: %v", p.File, list, p.Err)
}

func (p *damagedPart) Unwrap() error { return p.BlockError }

// keyInWords describes the fields of a key, or of a prefix of a key.
func keyInWords(key []byte) string {
	if len(key) == 0 {
		return "the beginning"
	}
	i := slices.IndexFunc(engine.Tables, func(t *engine.Table) bool { return t.ID == key[0] })
	switch {
	case key[0] == formatKey[0]:
		return fmt.Sprintf("the engine's row %q", key[1:])
	case i < 0:
		return fmt.Sprintf("%x", key)
	}
	t := engine.Tables[i]
	words, rest := t.Name, key[1:]
	d := keyDecoder{}
	for _, f := range slices.Concat(t.Partition, t.Clustering) {
		v, after, err := d.cutValue(f.Kind, rest)
		if err != nil {
			break
		}
		switch f.Kind {
		case engine.KindInt:
			words += fmt.Sprintf(" %s=%d", f.Name, v.Int)
		case engine.KindText:
			words += fmt.Sprintf(" %s=%q", f.Name, v.Text)
		case engine.KindID:
			words += fmt.Sprintf(" %s=%x", f.Name, v.Text)
		}
		rest = after
	}
	return words
}
