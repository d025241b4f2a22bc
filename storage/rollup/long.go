package rollup

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/chunk"
)

// A long chunk holds the chunks of one series and width that follow each other, as one chunk of all their buckets and, in front of it,
// where each of them starts and its version:
//
//	+---------+---------+--------+----------+--------+- - - - -+
//	| format  | parts   | starts | versions | crc32c | chunk   |
//	| 1 byte:3| uvarint | run    | run      | 4, LE  |         |
//	+---------+---------+--------+----------+--------+- - - - -+
//
// The runs are integers of package chunk: starts are milliseconds, ascending; versions are modulo 2^64. The checksum (Castagnoli)
// is over all bytes before it. The chunk has version 0, and its own checksum; it is one without buckets where no part has any.
const longFormat = 3

// MaxParts is the greatest number of parts in a long chunk. It bounds what a long chunk of a few bytes can make a reader allocate.
const MaxParts = chunk.MaxColumn

// Part names a chunk that a long chunk holds: the start of what it is of, milliseconds, and its version.
type Part struct {
	Start   int64
	Version uint64
}

// Long is a parsed long chunk. It keeps the bytes that it was parsed from.
type Long struct {
	// Parts are 1 to MaxParts, ascending by Start.
	Parts []Part
	// Chunk is the chunk, of version 0, of the buckets of all parts, or one without buckets where they have none.
	Chunk []byte
}

// AppendLong appends the long chunk of 1 to MaxParts chunks of one series and width, milliseconds, that follow each other. b are the
// buckets of all of them in order, up to MaxBuckets, with all columns: those of part i end after its start and not after that of
// part i + 1. It panics where that is violated, and where AppendChunk does: it is the caller's error. The same parts and buckets
// always give the same bytes.
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

// IsLong reports whether bytes are a long chunk by their first byte.
func IsLong(b []byte) bool { return len(b) > 0 && b[0] == longFormat }

// Parse sets s to the long chunk that b is; it may take the memory of s.Parts. It returns ErrCorrupt if b is none. It doesn't check the
// chunk: Decode and Split do. After an error s has no parts.
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

// splitting is memory for the buckets of long chunks that are split.
var splitting = sync.Pool{New: func() any { return new(Buckets) }}

// Split calls yield with the chunk of each part that want reports, in order: exactly the bytes that AppendChunk, or AppendEmpty,
// gives for its buckets and version. They are valid until the next call of yield. It returns the first error of yield, or
// ErrCorrupt, before any call, if its chunk can't be decoded or has a bucket that belongs to no part.
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

// endsUpTo returns how many of the ascending ends aren't after t.
func endsUpTo(ends []int64, t int64) int {
	n, found := slices.BinarySearch(ends, t)
	if found {
		n++
	}
	return n
}

// appendPart appends the chunk of the buckets [from, to).
func appendPart(dst []byte, b *Buckets, from, to int, width int64, version uint64) []byte {
	if from == to {
		return AppendEmpty(dst, version)
	}
	part := b.Slice(from, to)
	return AppendChunk(dst, &part, width, version)
}

// DecodeStored appends the buckets of a chunk, or of a long one.
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
