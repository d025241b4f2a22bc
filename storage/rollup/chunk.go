package rollup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/cassia-db/cassia/storage/chunk"
)

// ErrCorrupt means that bytes are no chunk of buckets that this package wrote.
var ErrCorrupt = errors.New("rollup: corrupt")

// MaxBuckets is the greatest number of buckets in a chunk. It bounds what a chunk of a few bytes can make a
// reader allocate.
const MaxBuckets = chunk.MaxColumn

// A chunk of buckets:
//
//	+---------+---------+---------+----------+---------+---------+---------+- - - - -+- - - - -+--------+
//	| format  | width   | buckets | buckets  | first   | version | columns | lengths | columns | crc32c |
//	| 1 byte  | uvarint | uvarint | missing  | end     | uvarint | there   | uvarint | by num- | 4, LE  |
//	|         |         |         | uvarint  | varint  |         | uvarint | each    | ber     |        |
//	+---------+---------+---------+----------+---------+---------+---------+- - - - -+- - - - -+--------+
//
// width is in milliseconds, first end in widths, buckets missing how many have no samples between the first and
// the last. Columns there has a bit for each column, by its number; what a column that isn't there holds stands at
// its constant. The checksum (Castagnoli) is over all bytes before it.
const chunkFormat = 1

// A chunk without buckets stands where all samples of a span were deleted: it outdoes the chunk that was there.
//
//	+---------+---------+--------+
//	| format  | version | crc32c |
//	| 1 byte:2| uvarint | 4, LE  |
//	+---------+---------+--------+
const emptyFormat = 2

// The columns of a chunk. Never reused. Integers and floats are runs and values of package chunk. A column is
// over all buckets, over those with samples (full), or over those of floats.
const (
	// columnEnds: of all, how many widths the end lies after the first; not there: none is missing.
	columnEnds = iota
	// columnFlags: of all, flags, and storedEmpty; not there: all 0.
	columnFlags
	// columnCount: of full, the number of samples.
	columnCount
	// columnFirstT: of full, the first timestamp after the bucket's start; not there: 0.
	columnFirstT
	// columnLastT: of full, the bucket's end after the last timestamp; not there: 0.
	columnLastT
	// columnFirstST: of full, a byte and the first start timestamps, see starts.go; not there: 0.
	columnFirstST
	// columnLastST: of full, likewise the last; not there: as the first.
	columnLastST
	// columnFirst: of floats, see lanes.go; there if any bucket has floats.
	columnFirst
	// columnLast: of floats, last − first; not there: 0.
	columnLast
	// columnMin: of floats, the lesser of first and last, − min; not there: 0.
	columnMin
	// columnMax: of floats, max − the greater of first and last; not there: 0.
	columnMax
	// columnSum: of floats, see sums.go; not there: as predicted.
	columnSum
	// columnSumLow: of floats, see sums.go; not there: 0.
	columnSumLow
	// columnCorrection: values, of those floats that have resets; not there: 0.
	columnCorrection
	// columnResets: of full, not there: 0.
	columnResets
	// columnChanges: of full, not there: 0.
	columnChanges
	// columnHistograms: a chunk of package chunk with the first histogram of bucket i at time 2i, the last at
	// 2i + 1 where there are several.
	columnHistograms
	// columnCorrections: a chunk of package chunk with the correction of bucket i at time i.
	columnCorrections
	// columnHistogramSums: likewise the sum of several histograms.
	columnHistogramSums
	// columnSeconds: likewise Histograms.Second.
	columnSeconds
	// columnLayouts: of buckets with histograms, 1 if FirstReset, 2 if MixedKinds, 4 if SumDropped, 8 if HasGauges, 16 if FirstStartReset,
	// and 32 times Histograms.Coarser; not there: 0.
	columnLayouts
	// columnHistogramCounts: of buckets with floats, too, the number of histograms.
	columnHistogramCounts
	// columnMoment: of floats, see moment.go; not there: 0 where min and max are equal, else unknown.
	columnMoment
	// columnSketches: see sketch.go.
	columnSketches
	// columnStartResets: of full, StartResets, see starts.go; not there: 0.
	columnStartResets
	// columnStartCorrection: see starts.go; not there: 0.
	columnStartCorrection
	// columnStartCorrections: a chunk of package chunk with the StartCorrection of bucket i's histograms at time i.
	columnStartCorrections
	// columnComoment: of floats, see line_column.go; not there: 0 where min and max are equal, else unknown.
	columnComoment
	// columnTimes: of floats, likewise; not there: evenly spaced.
	columnTimes

	columnsEnd
)

// storedEmpty is the flag of a bucket whose count is 0, and flagsEnd above all flags.
const (
	storedEmpty = 1 << 3
	flagsEnd    = 2 * int64(Aggregated)
)

const checksumSize = 4

// Info is the content of a chunk's envelope.
type Info struct {
	// Version is the one that AppendChunk was given.
	Version uint64
	// Width is the width of a bucket, milliseconds; 0 where there are none.
	Width int64
	// Count is the number of buckets.
	Count int
	// MinEnd and MaxEnd are the ends of the first and the last bucket, milliseconds.
	MinEnd, MaxEnd int64

	span int // buckets from the first to the last, missing ones included
}

// envelope is a chunk's head, and where its columns are.
type envelope struct {
	Info

	there    uint32
	from, to [columnsEnd]uint32 // of each column that is there, in columns
	columns  []byte
}

// column returns the bytes of a column, nil where it isn't there.
func (e *envelope) column(id int) []byte {
	if e.there&(1<<id) == 0 {
		return nil
	}
	return e.columns[e.from[id]:e.to[id]]
}

// has reports whether a column is there.
func (e *envelope) has(id int) bool { return e.there&(1<<id) != 0 }

// AppendChunk appends the chunk of 1 to MaxBuckets regular buckets with all columns: they end at multiples of
// width, milliseconds, and begin at the multiple before. version comes back from Header. It panics where the
// buckets violate that: it is the caller's error. The same buckets always give the same bytes.
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

// AppendEmpty appends the chunk of no buckets.
func AppendEmpty(dst []byte, version uint64) []byte {
	begin := len(dst)
	dst = binary.AppendUvarint(append(dst, emptyFormat), version)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[begin:], castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header reads a chunk's envelope. It checks no checksum; Decode does.
func Header(b []byte) (Info, error) {
	var e envelope
	err := e.parse(b)
	return e.Info, err
}

// VersionOf returns the version of a chunk; 0 if it can't be read: any other outdoes it, and Decode names the damage.
func VersionOf(b []byte) uint64 {
	info, err := Header(b)
	if err != nil {
		return 0
	}
	return info.Version
}

// maxTime bounds timestamps and widths, milliseconds, so that nothing overflows: 146 million years.
const maxTime = 1 << 62

// parse reads the envelope of b.
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

// reader reads numbers one after the other, and remembers whether they ended early.
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
