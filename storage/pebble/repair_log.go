package pebble

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/record"
)

// logContent is the readable part of a log.
type logContent struct {
	size  int64
	whole int64 // the end of the last complete record
	// isClosed is set if the log ends with the trailer that Pebble writes when it closes a log, so that nothing is
	// missing at the end.
	isClosed bool
	// err is the reason why reading stopped. io.EOF: the log ends after a complete record.
	err error
	// ingested are the tables that the log adds to the database: the sequence numbers of their batches, by file number.
	ingested map[uint64]uint64
}

// logTrailer is the size of the trailer: the header of an empty chunk, with the number of the next log.
const logTrailer = 4 + 2 + 1 + 4

// maxPadding is the max number of zeros between a record and the trailer, which are written if the trailer doesn't fit
// in the same block.
const maxPadding = 19

// readRecords reads the records of the log with this number.
func (l *logContent) readRecords(f io.Reader, number uint64) {
	l.ingested = map[uint64]uint64{}
	var batch bytes.Buffer
	for r := record.NewReader(f, likeNumber(pebbledb.SSTableInfo{}.BackingSSTNum, number)); ; {
		var one io.Reader
		one, l.err = r.Next()
		batch.Reset()
		if l.err == nil {
			_, l.err = batch.ReadFrom(one)
		}
		if l.err == nil && batch.Len() < batchrepr.HeaderLen {
			l.err = errors.New("a record is not a batch")
		}
		if l.err != nil {
			return
		}
		l.whole = r.Offset()
		l.addIngested(batch.Bytes())
	}
}

// addIngested adds the tables that a batch adds to the database. Such a batch contains nothing else.
func (l *logContent) addIngested(batch []byte) {
	header, ok := batchrepr.ReadHeader(batch)
	if !ok {
		return
	}
	for rows := batchrepr.Read(batch); ; {
		kind, key, _, ok, err := rows.Next()
		if !ok || err != nil || kind != pebbledb.InternalKeyKindIngestSST {
			return
		}
		if number, n := binary.Uvarint(key); n > 0 {
			l.ingested[number] = uint64(header.SeqNum)
		}
	}
}

func readLog(path string) (l logContent, err error) {
	f, err := os.Open(path)
	if err != nil {
		return l, fmt.Errorf("pebble: repair: %w", err)
	}
	defer f.Close()
	number := numberOf(filepath.Base(path))
	l.read(f, number)
	info, err := f.Stat()
	if err != nil {
		return l, fmt.Errorf("pebble: repair: %w", err)
	}
	l.size = info.Size()
	var trailer [logTrailer]byte
	if _, err := f.ReadAt(trailer[:], l.size-logTrailer); err == nil {
		l.isClosed = l.size-l.whole <= logTrailer+maxPadding && binary.LittleEndian.Uint32(trailer[:]) == 0 &&
			binary.LittleEndian.Uint16(trailer[4:]) == 0 &&
			binary.LittleEndian.Uint32(trailer[7:]) == uint32(number+1)
	}
	return l, nil
}

// readLogs returns, by name, the content of the logs with rows that aren't in tables. A link to a missing file counts
// as a damaged log.
func (m *repairer) readLogs() (map[string]logContent, error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, fmt.Errorf("pebble: repair: %w", err)
	}
	logs := map[string]logContent{}
	for _, e := range entries {
		name := e.Name()
		if !isLog(name) || numberOf(name) < m.state.minLog {
			continue
		}
		l, err := readLog(filepath.Join(m.dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			l.err = err
		case err != nil:
			return nil, err
		}
		logs[name] = l
	}
	return logs, nil
}

// unreadableLogs returns the logs that Pebble can't replay, in the order of their numbers. Only the newest log may end
// in the middle of a record, which happens at a crash.
func unreadableLogs(logs map[string]logContent) (names []string) {
	sorted := slices.SortedFunc(maps.Keys(logs), func(a, b string) int { return cmp.Compare(numberOf(a), numberOf(b)) })
	for i, name := range sorted {
		isNewest := i == len(sorted)-1
		if err := logs[name].err; !errors.Is(err, io.EOF) && !(isNewest && errors.Is(err, record.ErrUnexpectedEOF)) {
			names = append(names, name)
		}
	}
	return names
}

// repairUnreadableLogs repairs the logs that Pebble can't replay although they have the bytes recorded in SYNCED. If a
// process was killed, SYNCED can be up to a second older than the log, and no backup is known to have these bytes. It
// returns false if a log can't be repaired.
func (m *repairer) repairUnreadableLogs(reported []*toRepair) (ok bool, err error) {
	logs, err := m.readLogs()
	if err != nil {
		return false, err
	}
	ok = true
	for _, name := range unreadableLogs(logs) {
		if slices.ContainsFunc(reported, func(d *toRepair) bool { return d.file == name && !d.mended }) {
			continue
		}
		if !m.giveUp {
			l := logs[name]
			m.recordLeft(
				"log %s is unreadable after its first %d of %d bytes (%v); --give-up-log continues without the "+
					"lost data",
				name, l.whole, l.size, l.err,
			)
			ok = false
			continue
		}
		m.renew = true
		if err := m.truncateLog(name); err != nil {
			return false, err
		}
	}
	return ok, nil
}

// addIngested adds to files the tables that a log adds to the database. Their sizes are unknown. They are identified by
// the sequence numbers of their batches.
func addIngested(files map[uint64]*liveFile, l *logContent) {
	for number, seq := range l.ingested {
		if files[number] == nil {
			files[number] = &liveFile{tables: []tableEntry{{file: number, firstSeq: seq, lastSeq: seq}}}
		}
	}
}

// likeNumber converts a number to a type of Pebble that has no exported name.
func likeNumber[T ~uint64](_ T, n uint64) T { return T(n) }
