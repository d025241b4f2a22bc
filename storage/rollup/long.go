package rollup

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/chunk"
)

// longFormat is the first byte of a long chunk, which contains consecutive chunks of one series and width: the start
// and the version of each part, and one chunk with the buckets of all parts.
//
//	+---------+---------+--------+----------+--------+- - - - -+
//	| format  | parts   | starts | versions | crc32c | chunk   |
//	| 1 byte:3| uvarint | run    | run      | 4, LE  |         |
//	+---------+---------+--------+----------+--------+- - - - -+
//
// The runs are integers of package chunk: starts are in milliseconds, ascending; versions are modulo 2^64. The checksum
// (Castagnoli) covers all bytes before it. The chunk has version 0 and its own checksum. It is a chunk without buckets
// if all parts are empty.
const longFormat = 3

// MaxParts is the max number of parts in a long chunk. It bounds the memory that a reader allocates for a long chunk of
// a few bytes.
const MaxParts = chunk.MaxColumn

// Part identifies a chunk in a long chunk: the start of its interval in milliseconds, and its version.
type Part struct {
	Start   int64
	Version uint64
}

// Long is a parsed long chunk. It retains the bytes that it was parsed from.
type Long struct {
	// Parts are the 1 to MaxParts parts, ascending by Start.
	Parts []Part
	// Chunk is the chunk of the buckets of all parts, with version 0. It has no buckets if all parts are empty.
	Chunk []byte
}

// AppendLong appends the long chunk of 1 to MaxParts consecutive chunks of one series. width is in milliseconds. b
// contains the buckets of all parts in order, at most MaxBuckets, with all columns. The buckets of part i must end
// after its start and not after the start of part i + 1. AppendLong panics if this is violated, and whenever
// AppendChunk would panic. Equal parts and buckets always produce equal bytes.
func AppendLong(dst []byte, parts []Part, b *Buckets, width int64) []byte {
	if len(parts) == 0 || len(parts) > MaxParts {
		panic(fmt.Sprintf("rollup: a long chunk of %d parts", len(parts)))
	}
	if b.Len() > 0 && b.End[0] <= parts[0].Start {
		panic(fmt.Sprintf("rollup: a bucket that ends at %d before the first part, %d", b.End[0], parts[0].Start))
	}
	x := make([]int64, len(parts))
	for i, p := range parts {
		if i > 0 && p.Start <= parts[i-1].Start {
			panic(fmt.Sprintf("rollup: a part of %d after one of %d", p.Start, parts[i-1].Start))
		}
		x[i] = p.Start
	}
	begin := len(dst)
	dst = binary.AppendUvarint(append(dst, longFormat), uint64(len(parts)))
	dst = appendInts(dst, x)
	for i, p := range parts {
		x[i] = int64(p.Version)
	}
	dst = appendInts(dst, x)
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[begin:], castagnoli))
	if b.Len() == 0 {
		return AppendEmpty(dst, 0)
	}
	return AppendChunk(dst, b, width, 0)
}

// IsLong reports whether b is a long chunk, by its first byte.
func IsLong(b []byte) bool { return len(b) > 0 && b[0] == longFormat }

// Parse sets s to the long chunk b; it may reuse the memory of s.Parts. It returns ErrCorrupt if b isn't a long chunk.
// It doesn't verify the chunk of the buckets; Decode and Split do. After an error s has no parts.
func (s *Long) Parse(b []byte) error {
	*s = Long{Parts: s.Parts[:0]}
	if !IsLong(b) {
		return fmt.Errorf("%w: %d bytes are not a long chunk", ErrCorrupt, len(b))
	}
	r := reader{b: b, at: 1}
	n := r.uvarint()
	if r.short || n == 0 || n > MaxParts {
		return fmt.Errorf("%w: a long chunk has an invalid number of parts, %d", ErrCorrupt, n)
	}
	var small [2 * smallChunk]int64
	x := small[:]
	if n > smallChunk {
		p := wideSpace(2 * int(n))
		defer wide.Put(p)
		x = *p
	}
	starts, versions := x[:n:n], x[n:2*n]
	rest, err := chunk.DecodeInts(b[r.at:], starts)
	if err != nil {
		return fmt.Errorf("%w: decoding the starts of parts: %w", ErrCorrupt, err)
	}
	if rest, err = chunk.DecodeInts(rest, versions); err != nil {
		return fmt.Errorf("%w: decoding the versions of parts: %w", ErrCorrupt, err)
	}
	if len(rest) < checksumSize {
		return fmt.Errorf("%w: the header of a long chunk is truncated", ErrCorrupt)
	}
	if crc32.Checksum(b[:len(b)-len(rest)], castagnoli) != binary.LittleEndian.Uint32(rest) {
		return fmt.Errorf("%w: the checksum of a long chunk's header doesn't match", ErrCorrupt)
	}
	for i := 1; i < len(starts); i++ {
		if starts[i] <= starts[i-1] {
			return fmt.Errorf("%w: parts are not in order", ErrCorrupt)
		}
	}
	s.Parts = slices.Grow(s.Parts, len(starts))
	for i, start := range starts {
		s.Parts = append(s.Parts, Part{Start: start, Version: uint64(versions[i])})
	}
	s.Chunk = rest[checksumSize:]
	return nil
}

// splitting pools memory for the buckets of long chunks that are split.
var splitting = sync.Pool{New: func() any { return new(Buckets) }}

// Split calls yield for the chunk of each part that want selects, in order. The chunk has exactly the bytes of
// AppendChunk or AppendEmpty for the part's buckets and version, and is valid until the next call of yield. Split
// returns the first error of yield. It returns ErrCorrupt, without calling yield, if the chunk of the buckets can't be
// decoded or has a bucket that belongs to no part.
func (s *Long) Split(want func(Part) bool, yield func(p Part, chunk []byte) error) error {
	info, err := Header(s.Chunk)
	if err != nil {
		return err
	}
	b := splitting.Get().(*Buckets)
	defer splitting.Put(b)
	b.Reset()
	if err := Decode(s.Chunk, AllColumns, b); err != nil {
		return err
	}
	if b.Len() > 0 && (len(s.Parts) == 0 || b.End[0] <= s.Parts[0].Start) {
		return fmt.Errorf("%w: a bucket that ends at %d belongs to no part", ErrCorrupt, b.End[0])
	}
	var encoded []byte
	from := 0
	for i, p := range s.Parts {
		to := b.Len()
		if i+1 < len(s.Parts) {
			to = from + endsUpTo(b.End[from:], s.Parts[i+1].Start)
		}
		if want(p) {
			encoded = appendPart(encoded[:0], b, from, to, info.Width, p.Version)
			if err := yield(p, encoded); err != nil {
				return err
			}
		}
		from = to
	}
	return nil
}

// endsUpTo returns how many of ends, which ascend, are at or before t.
func endsUpTo(ends []int64, t int64) int {
	n, found := slices.BinarySearch(ends, t)
	if found {
		n++
	}
	return n
}

// appendPart appends the chunk of buckets [from, to).
func appendPart(dst []byte, b *Buckets, from, to int, width int64, version uint64) []byte {
	if from == to {
		return AppendEmpty(dst, version)
	}
	part := b.Slice(from, to)
	return AppendChunk(dst, &part, width, version)
}

// DecodeStored appends the buckets of a chunk or a long chunk.
func DecodeStored(data []byte, columns Columns, into *Buckets) error {
	if !IsLong(data) {
		return Decode(data, columns, into)
	}
	var long Long
	if err := long.Parse(data); err != nil {
		return err
	}
	return Decode(long.Chunk, columns, into)
}
