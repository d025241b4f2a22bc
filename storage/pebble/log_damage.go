package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/record"

	"github.com/cassia-db/cassia/storage/pebble/badblocks"
)

// errSyncedRecord means that a log has a damaged record that was synced, so that it wasn't torn by a crash.
var errSyncedRecord = errors.New("a damaged record")

// A record of a log consists of one or more chunks. No chunk crosses a block of 32 KiB:
//
//	+-----------+--------------+------------+-----------------+-------------------+------+
//	| CRC (4 B) | length (2 B) | type (1 B) | log number (4 B)| synced size (8 B) | data |
//	+-----------+--------------+------------+-----------------+-------------------+------+
//
// The checksum covers the bytes from the type on. The synced size is the part of the log that was synced before the
// chunk was written.
const (
	logBlock       = 32 << 10
	logChunkHeader = 4 + 2 + 1 + 4 + 8
	firstChunkType = 9 // the types from 9 to 12 have this header
	lastChunkType  = 12
)

// logChunk returns the size of a chunk at the start of p, and the synced size in the chunk's header. Both are 0 if p
// doesn't start with a valid chunk.
func logChunk(p []byte, number uint64) (size int, synced int64) {
	if len(p) < logChunkHeader || p[6] < firstChunkType || p[6] > lastChunkType ||
		binary.LittleEndian.Uint32(p[7:]) != uint32(number) {
		return 0, 0
	}
	size = logChunkHeader + int(binary.LittleEndian.Uint16(p[4:]))
	if size > len(p) || badblocks.MaskedCRC(p[6:size]) != binary.LittleEndian.Uint32(p) {
		return 0, 0
	}
	return size, int64(binary.LittleEndian.Uint64(p[11:]))
}

// findSyncedDamage looks for proof that a log isn't torn but damaged: a later chunk that was written after the first
// invalid chunk had been synced. from is the end of the last complete record. It returns the position of the invalid
// chunk, or -1. Pebble looks for this proof only in later blocks. So it takes a damaged record in the last 32 KiB for a
// torn one, and it doesn't return the position of other damaged records. Damage of the last synced records can't be
// proved, because no chunk was written after their sync.
func findSyncedDamage(f io.ReaderAt, number uint64, from int64) (at int64, err error) {
	at = -1
	block := make([]byte, logBlock)
	for base := from / logBlock * logBlock; ; base += logBlock {
		n, err := f.ReadAt(block, base)
		if err != nil && !errors.Is(err, io.EOF) {
			return -1, err
		}
		i := int(max(0, from-base))
		for n-i >= logChunkHeader {
			size, synced := logChunk(block[i:n], number)
			switch {
			case at < 0 && size == 0:
				at = base + int64(i)
			case at < 0:
				i += size
				continue
			case size > 0 && synced > at:
				return at, nil
			}
			i++
		}
		if n < logBlock {
			return -1, nil
		}
	}
}

// checkLogs returns an error if the newest log has a damaged record. Pebble would take some damaged records for records
// torn by a crash, and silently drop them and all later records. Its errors for other damaged records don't contain the
// name of the file.
func (x *existing) checkLogs() error {
	logs := slices.DeleteFunc(slices.Clone(x.names), func(name string) bool { return !isLog(name) })
	if len(logs) == 0 {
		return nil
	}
	name := slices.MaxFunc(logs, func(a, b string) int { return int(numberOf(a)) - int(numberOf(b)) })
	f, err := x.fs.Open(x.fs.PathJoin(x.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return damagedFile(x.dir, name, "missing"+lostWrites) // The name is a dangling link.
	}
	if err != nil {
		return fmt.Errorf("pebble: open %s: %w", name, err)
	}
	defer f.Close()
	var l logContent
	l.read(f, numberOf(name))
	switch {
	case errors.Is(l.err, io.EOF), errors.Is(l.err, record.ErrUnexpectedEOF):
		return nil
	case isSystemError(l.err):
		return fmt.Errorf("pebble: read %s: %w", name, l.err)
	}
	return damagedFile(x.dir, name, l.err.Error()+lostWrites)
}

// read reads the records of a log. If one is incomplete or damaged, it looks for proof that the record isn't torn.
func (l *logContent) read(f interface {
	io.Reader
	io.ReaderAt
}, number uint64,
) {
	l.readRecords(f, number)
	if !errors.Is(l.err, record.ErrUnexpectedEOF) && !errors.Is(l.err, record.ErrInvalidChunk) &&
		!errors.Is(l.err, record.ErrZeroedChunk) {
		return
	}
	at, err := findSyncedDamage(f, number, l.whole)
	switch {
	case err != nil:
		l.err = err
	case at >= 0:
		l.err = fmt.Errorf("%w at byte %d is followed by records written after it was synced", errSyncedRecord, at)
	}
}
