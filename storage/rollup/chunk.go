package rollup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/cassia-db/cassia/storage/chunk"
)

// ErrCorrupt means that bytes aren't a chunk of buckets that this package wrote.
var ErrCorrupt = errors.New("rollup: corrupt")

// MaxBuckets is the max number of buckets in a chunk. It bounds the memory that a reader allocates for a chunk of a few
// bytes.
const MaxBuckets = chunk.MaxColumn

// chunkFormat is the first byte of a chunk of buckets:
//
//	+---------+---------+---------+----------+---------+---------+---------+- - - - -+- - - - -+--------+
//	| format  | width   | buckets | buckets  | first   | version | columns | lengths | columns | crc32c |
//	| 1 byte  | uvarint | uvarint | missing  | end     | uvarint | there   | uvarint | by num- | 4, LE  |
//	|         |         |         | uvarint  | varint  |         | uvarint | each    | ber     |        |
//	+---------+---------+---------+----------+---------+---------+---------+- - - - -+- - - - -+--------+
//
// width is in milliseconds; "first end" is in widths; "buckets missing" counts the buckets without samples between the
// first and the last. "columns there" has one bit per column, at the column's number; the comment at a column's
// constant states its value if the column is absent. The checksum (Castagnoli) covers all bytes before it.
const chunkFormat = 1

// emptyFormat is the first byte of a chunk without buckets. It supersedes a chunk whose samples were all deleted.
//
//	+---------+---------+--------+
//	| format  | version | crc32c |
//	| 1 byte:2| uvarint | 4, LE  |
//	+---------+---------+--------+
const emptyFormat = 2

// The columns of a chunk, by number. The numbers are stored and must never be reused. Integers and floats are encoded
// as runs and values of package chunk. Full buckets are buckets with samples. "Absent" states the values if the column
// isn't stored.
const (
	// columnEnds has, for all buckets, the end minus the first end, in widths. Absent: no bucket is missing.
	columnEnds = iota
	// columnFlags has, for all buckets, the flags and storedEmpty. Absent: 0.
	columnFlags
	// columnCount has, for full buckets, the number of samples.
	columnCount
	// columnFirstT has, for full buckets, the first timestamp minus the bucket's start. Absent: 0.
	columnFirstT
	// columnLastT has, for full buckets, the bucket's end minus the last timestamp. Absent: 0.
	columnLastT
	// columnFirstST has a byte and, for full buckets, the first start timestamps, see starts.go. Absent: 0.
	columnFirstST
	// columnLastST has a byte and, for full buckets, the last start timestamps, see starts.go. Absent: equal to the
	// first start timestamps.
	columnLastST
	// columnFirst has the first values of buckets with floats, see lanes.go. Present if any bucket has floats.
	columnFirst
	// columnLast has, for buckets with floats, last − first. Absent: 0.
	columnLast
	// columnMin has, for buckets with floats, min(first, last) − min. Absent: 0.
	columnMin
	// columnMax has, for buckets with floats, max − max(first, last). Absent: 0.
	columnMax
	// columnSum has the sums of buckets with floats, see sums.go. Absent: as predicted.
	columnSum
	// columnSumLow has the low sums of buckets with floats, see sums.go. Absent: 0.
	columnSumLow
	// columnCorrection has the corrections of buckets with floats and resets, see sums.go. Absent: 0.
	columnCorrection
	// columnResets has the numbers of resets of full buckets. Absent: 0.
	columnResets
	// columnChanges has the numbers of changes of full buckets. Absent: 0.
	columnChanges
	// columnHistograms is a chunk of package chunk with the first histogram of bucket i at time 2i and, if there are
	// multiple, the last one at 2i + 1.
	columnHistograms
	// columnCorrections is a chunk of package chunk with the histogram correction of bucket i at time i.
	columnCorrections
	// columnHistogramSums is a chunk of package chunk with the sum of bucket i's histograms at time i, if there are
	// multiple.
	columnHistogramSums
	// columnSeconds is a chunk of package chunk with Histograms.Second of bucket i at time i.
	columnSeconds
	// columnLayouts has, for buckets with histograms, the sum of 1 if FirstReset, 2 if MixedKinds, 4 if SumDropped, 8
	// if HasGauges, 16 if FirstStartReset, 32 times Histograms.Coarser, 8192 times Reconciled, and 65536 times Layouts.
	// Absent: 0.
	columnLayouts
	// columnHistogramCounts has the numbers of histograms of buckets with floats and histograms.
	columnHistogramCounts
	// columnMoment has the moments of buckets with floats, see moment.go. Absent: 0 where min and max are equal, and
	// otherwise unknown.
	columnMoment
	// columnSketches has the sketches, see sketch.go.
	columnSketches
	// columnStartResets has StartResets of full buckets, see starts.go. Absent: 0.
	columnStartResets
	// columnStartCorrection has StartCorrection, see starts.go. Absent: 0.
	columnStartCorrection
	// columnStartCorrections is a chunk of package chunk with the StartCorrection of bucket i's histograms at time i.
	columnStartCorrections
	// columnComoment has the comoments of buckets with floats, see line_column.go. Absent: 0 where min and max are
	// equal, and otherwise unknown.
	columnComoment
	// columnTimes has the times of buckets with floats, see line_column.go. Absent: evenly spaced.
	columnTimes

	columnsEnd
)

// storedEmpty is the flag of a bucket whose count is 0. flagsEnd is greater than any combination of flags.
const (
	storedEmpty = 1 << 3
	flagsEnd    = 2 * int64(Vague)
)

const checksumSize = 4

// Info is the content of a chunk's envelope.
type Info struct {
	// Version is the version passed to AppendChunk.
	Version uint64
	// Width is the width of a bucket in milliseconds; 0 for a chunk without buckets.
	Width int64
	// Count is the number of buckets.
	Count int
	// MinEnd and MaxEnd are the ends of the first and the last bucket in milliseconds.
	MinEnd, MaxEnd int64
	// HasEmbedded is set if the chunk contains histograms or sketches. Count doesn't bound their size in memory.
	HasEmbedded bool

	span int // buckets from the first to the last, including missing ones
}

// envelope is a chunk's header with the positions of its columns.
type envelope struct {
	Info

	there    uint32
	from, to [columnsEnd]uint32 // of each stored column, in columns
	columns  []byte
}

// column returns the bytes of a column, or nil if it isn't stored.
func (e *envelope) column(id int) []byte {
	if e.there&(1<<id) == 0 {
		return nil
	}
	return e.columns[e.from[id]:e.to[id]]
}

// has reports whether a column is stored.
func (e *envelope) has(id int) bool { return e.there&(1<<id) != 0 }

// AppendChunk appends a chunk of 1 to MaxBuckets regular buckets with all columns. Each must be width milliseconds wide
// and end at a multiple of width; AppendChunk panics otherwise. Header returns version. Equal buckets always produce
// equal bytes.
func AppendChunk(dst []byte, b *Buckets, width int64, version uint64) []byte {
	n := len(b.End)
	if n == 0 || n > MaxBuckets {
		panic(fmt.Sprintf("rollup: a chunk of %d buckets", n))
	}
	for i, end := range b.End {
		if end%width != 0 || b.Start[i] != end-width || i > 0 && end <= b.End[i-1] {
			panic(fmt.Sprintf("rollup: the bucket from %d to %d isn't a bucket of width %d", b.Start[i], end, width))
		}
	}
	first := b.End[0] / width
	span := b.End[n-1]/width - first + 1
	e := encoders.Get().(*encoder)
	defer e.release()
	e.encode(b, width)
	made := append(e.made[:0], chunkFormat)
	made = binary.AppendUvarint(made, uint64(width))
	made = binary.AppendUvarint(made, uint64(n))
	made = binary.AppendUvarint(made, uint64(span-int64(n)))
	made = binary.AppendVarint(made, first)
	made = binary.AppendUvarint(made, version)
	made = binary.AppendUvarint(made, uint64(e.there))
	for id, size := range e.size {
		if e.there&(1<<id) != 0 {
			made = binary.AppendUvarint(made, uint64(size))
		}
	}
	made = append(made, e.body...)
	e.made = binary.LittleEndian.AppendUint32(made, crc32.Checksum(made, castagnoli))
	return append(dst, e.made...)
}

// AppendEmpty appends a chunk without buckets.
func AppendEmpty(dst []byte, version uint64) []byte {
	begin := len(dst)
	dst = binary.AppendUvarint(append(dst, emptyFormat), version)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[begin:], castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header reads a chunk's envelope. It doesn't verify the checksum; Decode does.
func Header(b []byte) (Info, error) {
	var e envelope
	err := e.parse(b)
	return e.Info, err
}

// VersionOf returns the version of a chunk, or 0 if the chunk is unreadable. So any readable chunk supersedes an
// unreadable one. Decode returns the error.
func VersionOf(b []byte) uint64 {
	info, err := Header(b)
	if err != nil {
		return 0
	}
	return info.Version
}

// maxTime bounds timestamps and widths in milliseconds, to prevent overflows: 146 million years.
const maxTime = 1 << 62

func (e *envelope) parse(b []byte) error {
	if len(b) > checksumSize && b[0] == emptyFormat {
		r := reader{b: b[:len(b)-checksumSize], at: 1}
		e.Info = Info{Version: r.uvarint()}
		if r.short || r.at != len(r.b) {
			return fmt.Errorf("%w: a chunk without buckets is truncated or has extra bytes", ErrCorrupt)
		}
		return nil
	}
	if len(b) < 8+checksumSize {
		return fmt.Errorf("%w: %d bytes are not a chunk", ErrCorrupt, len(b))
	}
	if b[0] != chunkFormat {
		return fmt.Errorf("%w: unknown format %d", ErrCorrupt, b[0])
	}
	r := reader{b: b[:len(b)-checksumSize], at: 1}
	width, count, missing := r.uvarint(), r.uvarint(), r.uvarint()
	first, version, there := r.varint(), r.uvarint(), r.uvarint()
	if r.short || there >= 1<<columnsEnd {
		return fmt.Errorf("%w: the envelope is truncated or has unknown columns, %#x", ErrCorrupt, there)
	}
	if count == 0 || count > MaxBuckets || width == 0 || width > maxTime || missing > maxTime {
		return fmt.Errorf("%w: invalid header: %d buckets of %d ms, %d missing", ErrCorrupt, count, width, missing)
	}
	last := first + int64(count-1+missing)
	if most := int64(maxTime / width); first < -most || last < first || last > most {
		return fmt.Errorf("%w: buckets %d to %d of %d ms are out of range", ErrCorrupt, first, last, width)
	}
	e.Info = Info{
		Version: version, Width: int64(width), Count: int(count),
		MinEnd: first * int64(width), MaxEnd: last * int64(width),
		span: int(last-first) + 1,
	}
	e.there = uint32(there)
	e.HasEmbedded = e.has(columnHistograms) || e.has(columnHistogramSums) || e.has(columnSketches)
	at := uint64(0)
	for rest := e.there; rest != 0; rest &= rest - 1 {
		size := r.uvarint()
		if size == 0 || size > uint64(len(b)) {
			return fmt.Errorf("%w: a column of %d bytes in a chunk of %d bytes", ErrCorrupt, size, len(b))
		}
		id := bits.TrailingZeros32(rest)
		e.from[id], e.to[id] = uint32(at), uint32(at+size)
		at += size
	}
	if r.short || at != uint64(len(r.b)-r.at) {
		return fmt.Errorf("%w: the sizes of the columns, %d bytes in total, don't match the chunk", ErrCorrupt, at)
	}
	e.columns = r.b[r.at:]
	return nil
}

// reader reads consecutive numbers. short is set once the bytes end within a number.
type reader struct {
	b     []byte
	at    int
	short bool
}

func (r *reader) uvarint() uint64 {
	if r.at < len(r.b) && r.b[r.at] < 0x80 {
		r.at++
		return uint64(r.b[r.at-1])
	}
	return r.longUvarint()
}

func (r *reader) longUvarint() uint64 {
	x, n := binary.Uvarint(r.b[r.at:])
	if n <= 0 {
		r.short = true
		return 0
	}
	r.at += n
	return x
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}
