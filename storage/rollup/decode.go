package rollup

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/chunk"
)

// Decode appends the buckets of a chunk to into, with the columns in want. It leaves other columns unchanged. Buckets
// that into already contains must have been read with the same want, and must end before the chunk. Floats are decoded
// without allocations if into has sufficient capacity. Decode returns ErrCorrupt and leaves into unchanged if the chunk
// is corrupt.
func Decode(b []byte, want Columns, into *Buckets) error {
	var e envelope
	if err := e.parse(b); err != nil {
		return err
	}
	payload, sum := b[:len(b)-checksumSize], b[len(b)-checksumSize:]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return fmt.Errorf("%w: checksum doesn't match", ErrCorrupt)
	}
	if e.Count == 0 {
		return nil
	}
	before := *into
	if err := decodeColumns(&e, want, into); err != nil {
		*into = before
		return err
	}
	return nil
}

// smallChunk is the max number of buckets that are decoded with memory on the stack.
const smallChunk = 32

// wide pools memory for the columns of larger chunks.
var wide = sync.Pool{New: func() any { return new([]int64) }}

// wideSpace returns n zeros. The caller must return them to wide.
func wideSpace(n int) *[]int64 {
	p := wide.Get().(*[]int64)
	*p = slices.Grow((*p)[:0], n)[:n]
	clear(*p)
	return p
}

// decoder reads the columns of one chunk.
type decoder struct {
	e    *envelope
	into *Buckets
	at   int // index in into of the chunk's first bucket
	n    int // number of buckets
	// parts are the sets of columns that contain each bucket; nil if all buckets have floats.
	parts        []part
	full, floats int // number of buckets with samples, and with floats
	l            lanes
}

func decodeColumns(e *envelope, want Columns, into *Buckets) error {
	d := decoder{e: e, into: into, at: len(into.End), n: e.Count, full: e.Count, floats: e.Count}
	if err := d.decodeEnds(); err != nil {
		return err
	}
	if err := d.decodeFlags(); err != nil {
		return err
	}
	if want&ColumnCount != 0 {
		if err := d.decodeCounts(extendTail(&into.Count, d.n)); err != nil {
			return err
		}
	}
	if err := d.decodeTimes(want); err != nil {
		return err
	}
	if err := d.decodeValues(want); err != nil {
		return err
	}
	if want&ColumnResets != 0 {
		if err := d.decodeNumbers(columnResets, extendTail(&into.Resets, d.n), "resets"); err != nil {
			return err
		}
	}
	if want&ColumnChanges != 0 {
		if err := d.decodeNumbers(columnChanges, extendTail(&into.Changes, d.n), "changes"); err != nil {
			return err
		}
	}
	if err := d.decodeHistograms(want); err != nil || want&ColumnSketches == 0 {
		return err
	}
	return d.decodeSketches()
}

// extendTail extends column by n entries and returns them.
func extendTail[E any](column *[]E, n int) []E {
	x := slices.Grow(*column, n)
	x = x[:len(x)+n]
	*column = x
	return x[len(x)-n:]
}

// expandColumn moves the first k entries of x to the positions of the buckets that have the given part, and sets the
// other entries to 0.
func expandColumn[E any](x []E, parts []part, k int, which part) {
	var zero E
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i]&which != 0 {
			k--
			x[i] = x[k]
		} else {
			x[i] = zero
		}
	}
}

func (d *decoder) expandIntegers(x []int64, k int, which part) {
	if d.parts != nil {
		expandColumn(x, d.parts, k, which)
	}
}

// decodeEnds appends the starts and ends of the buckets.
func (d *decoder) decodeEnds() error {
	start, end := extendTail(&d.into.Start, d.n), extendTail(&d.into.End, d.n)
	width, first := d.e.Width, d.e.MinEnd
	if d.e.span == d.n {
		for i := range end {
			start[i], end[i] = first-width, first
			first += width
		}
		return nil
	}
	if err := decodeInts(d.e.column(columnEnds), end, "ends"); err != nil {
		return err
	}
	before := int64(-1)
	for i, k := range end {
		if k <= before || k >= int64(d.e.span) {
			return fmt.Errorf("%w: bucket ends are not in order", ErrCorrupt)
		}
		before = k
		end[i] = first + k*width
		start[i] = end[i] - width
	}
	if end[0] != first || end[d.n-1] != d.e.MaxEnd {
		return fmt.Errorf("%w: bucket ends from %d to %d don't match the header", ErrCorrupt, end[0], end[d.n-1])
	}
	return nil
}

// decodeFlags appends the flags and sets parts.
func (d *decoder) decodeFlags() error {
	flags := extendTail(&d.into.Flags, d.n)
	if !d.e.has(columnFlags) {
		clear(flags)
		return nil
	}
	x := make([]int64, d.n)
	if err := decodeInts(d.e.column(columnFlags), x, "flags"); err != nil {
		return err
	}
	d.parts = make([]part, d.n)
	d.full, d.floats = 0, 0
	for i, f := range x {
		if f < 0 || f >= flagsEnd || !isValid(Flags(f)) {
			return fmt.Errorf("%w: invalid flags %#x", ErrCorrupt, f)
		}
		flags[i] = Flags(f &^ storedEmpty)
		if f&storedEmpty != 0 {
			continue
		}
		d.parts[i] = full
		d.full++
		if flags[i].HasFloats() {
			d.parts[i] |= ofFloats
			d.floats++
		}
	}
	return nil
}

// isValid reports whether a bucket can have these stored flags.
func isValid(f Flags) bool {
	switch {
	case f&storedEmpty != 0, f&HasHistograms == 0:
		return f&(ofHistograms|hasFloatsToo) == 0
	case f&hasFloatsToo == 0:
		return f&ofHistograms == ofHistograms
	default:
		return true
	}
}

// decodeCounts fills count with the numbers of samples.
func (d *decoder) decodeCounts(count []uint32) error {
	if err := d.decodeNumbers(columnCount, count, "counts"); err != nil {
		return err
	}
	for i, c := range count {
		if c == 0 && d.takesPart(i, full) {
			return fmt.Errorf("%w: a bucket without samples", ErrCorrupt)
		}
	}
	return nil
}

// takesPart reports whether bucket i has the given part.
func (d *decoder) takesPart(i int, which part) bool { return d.parts == nil || d.parts[i]&which != 0 }

// decodeNumbers fills x with an integer column of the buckets with samples.
func (d *decoder) decodeNumbers(id int, x []uint32, what string) error {
	if !d.e.has(id) {
		clear(x)
		return nil
	}
	if v, ok := chunk.ConstantInts(d.e.column(id)); ok && d.parts == nil && v >= 0 && v <= math.MaxUint32 {
		for i := range x {
			x[i] = uint32(v)
		}
		return nil
	}
	var small [smallChunk]int64
	numbers := small[:]
	if d.full > smallChunk {
		p := wideSpace(d.full)
		defer wide.Put(p)
		numbers = *p
	}
	numbers = numbers[:d.full]
	if err := decodeInts(d.e.column(id), numbers, what); err != nil {
		return err
	}
	for i, v := range numbers {
		if v < 0 || v > math.MaxUint32 {
			return fmt.Errorf("%w: %d %s", ErrCorrupt, v, what)
		}
		x[i] = uint32(v)
	}
	if d.parts != nil {
		expandColumn(x, d.parts, d.full, full)
	}
	return nil
}

// decodeTimes appends timestamps and start timestamps.
func (d *decoder) decodeTimes(want Columns) error {
	if want&ColumnFirst != 0 {
		t := extendTail(&d.into.FirstT, d.n)
		if err := d.decodeFirstTimes(t[:d.full]); err != nil {
			return err
		}
		d.expandIntegers(t, d.full, full)
	}
	if want&ColumnLast != 0 {
		t := extendTail(&d.into.LastT, d.n)
		if err := d.decodeLastTimes(t[:d.full]); err != nil {
			return err
		}
		d.expandIntegers(t, d.full, full)
	}
	if want&ColumnStarts != 0 {
		return d.decodeStarts()
	}
	return nil
}

// decodeFirstTimes fills t with the first timestamps of the buckets with samples.
func (d *decoder) decodeFirstTimes(t []int64) error {
	start := d.into.Start[d.at:]
	if v, ok := chunk.ConstantInts(d.e.column(columnFirstT)); ok && d.parts == nil && v >= 1 && v <= d.e.Width {
		for i, s := range start {
			t[i] = s + v
		}
		return nil
	}
	if err := d.decodeOffsets(columnFirstT, t, 1, "first timestamps"); err != nil {
		return err
	}
	k := 0
	for i, s := range start {
		if d.takesPart(i, full) {
			t[k] += s
			k++
		}
	}
	return nil
}

// decodeLastTimes fills t with the last timestamps of the buckets with samples.
func (d *decoder) decodeLastTimes(t []int64) error {
	ends := d.into.End[d.at:]
	if !d.e.has(columnLastT) && d.parts == nil {
		copy(t, ends)
		return nil
	}
	if v, ok := chunk.ConstantInts(d.e.column(columnLastT)); ok && d.parts == nil && v >= 0 && v < d.e.Width {
		for i, end := range ends {
			t[i] = end - v
		}
		return nil
	}
	if err := d.decodeOffsets(columnLastT, t, 0, "last timestamps"); err != nil {
		return err
	}
	k := 0
	for i, end := range ends {
		if d.takesPart(i, full) {
			t[k] = end - t[k]
			k++
		}
	}
	return nil
}

// decodeOffsets fills x with a column of offsets, which must be in a range of one bucket width starting with least.
func (d *decoder) decodeOffsets(id int, x []int64, least int64, what string) error {
	if err := decodeInts(d.e.column(id), x, what); err != nil {
		return err
	}
	for _, v := range x {
		if v < least || v-least >= d.e.Width {
			return fmt.Errorf("%w: %s are outside their bucket", ErrCorrupt, what)
		}
	}
	return nil
}
