package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/record"
)

// logContent is the part of a log that Pebble reads.
type logContent struct {
	size  int64
	whole int64 // the end of the last record that is whole
	// isClosed reports that the log ends with the trailer that Pebble writes when it closes a log: nothing was cut off.
	isClosed bool
	// ingested are the tables that the log adds to the database: the sequence numbers of their batches, by file number.
	ingested map[uint64]uint64
}

// logTrailer is the size of the trailer: a chunk's header without content, of the log with the next number.
const logTrailer = 4 + 2 + 1 + 4

// maxPadding is the largest number of zeros between a record and the trailer, which doesn't fit in the same block.
const maxPadding = 19

// readRecords reads the records of a log with a number.
func (l *logContent) readRecords(f io.Reader, number uint64) {
	l.ingested = map[uint64]uint64{}
	var batch bytes.Buffer
	for r := record.NewReader(f, likeNumber(pebbledb.SSTableInfo{}.BackingSSTNum, number)); ; {
		one, err := r.Next()
		batch.Reset()
		if err == nil {
			_, err = batch.ReadFrom(one)
		}
		if err != nil {
			return
		}
		l.whole = r.Offset()
		l.addIngested(batch.Bytes())
	}
}

// addIngested adds the tables of a batch, which has nothing else then.
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

// readLog reads a log.
func readLog(path string) (l logContent, err error) {
	f, err := os.Open(path)
	if err != nil {
		return l, fmt.Errorf("pebble: mend: %w", err)
	}
	defer f.Close()
	number := numberOf(filepath.Base(path))
	l.readRecords(f, number)
	info, err := f.Stat()
	if err != nil {
		return l, fmt.Errorf("pebble: mend: %w", err)
	}
	l.size = info.Size()
	var trailer [logTrailer]byte
	if _, err := f.ReadAt(trailer[:], l.size-logTrailer); err == nil {
		l.isClosed = l.size-l.whole <= logTrailer+maxPadding && binary.LittleEndian.Uint32(trailer[:]) == 0 && binary.LittleEndian.Uint16(trailer[4:]) == 0 &&
			binary.LittleEndian.Uint32(trailer[7:]) == uint32(number+1)
	}
	return l, nil
}

// logs reads the logs with rows that aren't in tables, by name.
func (m *mender) logs() (map[string]logContent, error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, fmt.Errorf("pebble: mend: %w", err)
	}
	logs := map[string]logContent{}
	for _, e := range entries {
		if name := e.Name(); isLog(name) && numberOf(name) >= m.state.minLog {
			if logs[name], err = readLog(filepath.Join(m.dir, name)); err != nil {
				return nil, err
			}
		}
	}
	return logs, nil
}

// addIngested adds the files of tables that logs add to the database, of unknown size. They are told apart by the sequence numbers of their batches.
func addIngested(files map[uint64]*liveFile, l *logContent) {
	for number, seq := range l.ingested {
		if files[number] == nil {
			files[number] = &liveFile{tables: []tableEntry{{file: number, firstSeq: seq, lastSeq: seq}}}
		}
	}
}

// likeNumber makes a number of a type that can't be named here.
func likeNumber[T ~uint64](_ T, n uint64) T { return T(n) }
