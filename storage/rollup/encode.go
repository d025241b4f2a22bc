package rollup

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/chunk"
)

// encoder writes the columns of a chunk in order of their numbers.
type encoder struct {
	there uint32
	size  [columnsEnd]int
	body  []byte
	made  []byte // the chunk, built separately so that the destination grows once, by the exact size
	// integers is memory for columns until they are written. Its first taken elements are in use.
	integers []int64
	taken    int
}

// encoders pools encoders with their memory.
var encoders = sync.Pool{New: func() any { return new(encoder) }}

// zeros returns n zeros, valid until the chunk is written.
func (e *encoder) zeros(n int) []int64 {
	if e.taken+n > len(e.integers) { // Slices already taken keep the previous memory.
		e.integers, e.taken = make([]int64, max(2*len(e.integers), n, 1024)), 0
	}
	x := e.integers[e.taken : e.taken+n : e.taken+n]
	e.taken += n
	clear(x)
	return x
}

// release returns the encoder to the pool.
func (e *encoder) release() {
	*e = encoder{body: e.body[:0], made: e.made[:0], integers: e.integers}
	encoders.Put(e)
}

// part is a set of columns that have an entry for a bucket.
type part uint8

const (
	full     part = 1 << iota // columns of buckets with samples
	ofFloats                  // columns of buckets with floats
)

// partsOf returns the parts of every bucket, or nil if all buckets have floats.
func partsOf(b *Buckets) []part {
	if b.Histograms == nil && !slices.Contains(b.Count, 0) {
		return nil
	}
	parts := make([]part, len(b.End))
	for i, count := range b.Count {
		switch {
		case count == 0:
		case b.Flags[i].HasFloats():
			parts[i] = full | ofFloats
		default:
			parts[i] = full
		}
	}
	return parts
}

// gather returns the entries of x for the buckets that have the given part. The result may share x's memory and must
// not be modified.
func gather[E any](x []E, parts []part, which part) []E {
	if parts == nil {
		return x
	}
	picked := make([]E, 0, len(x))
	for i, v := range x {
		if parts[i]&which != 0 {
			picked = append(picked, v)
		}
	}
	return picked
}

// put records the bytes of the body after position from as a column. It does nothing if there are none.
func (e *encoder) put(id, from int) {
	if size := len(e.body) - from; size > 0 {
		if e.there>>id != 0 { // Columns are out of order: the chunk would be unreadable.
			panic(fmt.Sprintf("rollup: column %d is written after column %d: encode writes columns in the order of "+
				"their numbers", id, bits.Len32(e.there)-1))
		}
		e.there |= 1 << id
		e.size[id] = size
	}
}

// ints writes a column of integers unless all are 0.
func (e *encoder) ints(id int, x []int64) {
	from := len(e.body)
	if !allZero(x) {
		e.body = appendInts(e.body, x)
	}
	e.put(id, from)
}

// appendInts appends the run of x, which must not be empty, in the shorter of two encodings.
func appendInts(dst []byte, x []int64) []byte {
	from := len(dst)
	dst = chunk.AppendSmallInts(dst, x)
	middle := len(dst)
	dst = chunk.AppendInts(dst, x)
	if middle-from < len(dst)-middle {
		return dst[:middle]
	}
	return append(dst[:from], dst[middle:]...)
}

func allZero(x []int64) bool {
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}

// encode writes all columns.
func (e *encoder) encode(b *Buckets, width int64) {
	n := len(b.End)
	parts := partsOf(b)
	ends, flags, firstT, lastT := e.zeros(n), e.zeros(n), e.zeros(n), e.zeros(n)
	for i, end := range b.End {
		ends[i] = (end - b.End[0]) / width
		flags[i] = int64(b.Flags[i])
		if b.Count[i] == 0 {
			flags[i] |= storedEmpty
		}
		firstT[i], lastT[i] = b.FirstT[i]-b.Start[i], end-b.LastT[i]
	}
	if ends[n-1] != int64(n-1) {
		e.ints(columnEnds, ends)
	}
	e.ints(columnFlags, flags)
	e.ints(columnCount, e.widen(gather(b.Count, parts, full)))
	e.ints(columnFirstT, gather(firstT, parts, full))
	e.ints(columnLastT, gather(lastT, parts, full))
	if b.FirstST != nil {
		e.encodeStarts(b, parts)
	}
	l := e.lanesOf(b, parts)
	hasFloats := len(l.first) > 0
	if hasFloats {
		e.floats(b, parts, &l)
	}
	e.ints(columnResets, e.widen(gather(b.Resets, parts, full)))
	e.ints(columnChanges, e.widen(gather(b.Changes, parts, full)))
	e.encodeHistograms(b)
	if hasFloats {
		e.encodeMoments(b, parts, &l)
	}
	e.encodeSketches(b)
	e.startResets(b, parts)
	if hasFloats {
		e.writeLines(b, parts, &l)
	}
}

func (e *encoder) widen(x []uint32) []int64 { return widen(e.zeros(len(x)), x) }

// widen converts x into wide, which must have the same length, and returns wide.
func widen(wide []int64, x []uint32) []int64 {
	for i, v := range x {
		wide[i] = int64(v)
	}
	return wide
}

// floats writes the columns of floats except moments and lines. There must be at least one bucket with floats.
func (e *encoder) floats(b *Buckets, parts []part, l *lanes) {
	from := len(e.body)
	e.body = l.appendFirst(e.body, e.zeros(len(l.first)-1))
	e.put(columnFirst, from)
	n := len(l.first)
	e.ints(columnLast, l.lastIntegers(e.zeros(n)))
	e.ints(columnMin, l.minIntegers(e.zeros(n)))
	e.ints(columnMax, l.maxIntegers(e.zeros(n)))
	e.encodeSums(b, parts, l)
	e.encodeCorrections(b, parts, l)
}
