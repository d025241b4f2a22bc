package chunk

import (
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/histogram"
)

// chunkencHeaderSize is the size of the part of a sub-chunk's header before its layout. chunkenc doesn't validate its
// input: it allocates as many buckets as the spans at the start of a chunk define, and panics for some schemas. So the
// header is decoded here first, and rejected if it defines more buckets than the chunk has bits. Prometheus'
// tsdb/docs/format/chunks.md describes it:
//
//	3 bytes | zero threshold | schema | positive spans | negative spans | custom bounds (schema −53) | …
const chunkencHeaderSize = 3

// layout holds the properties that all histograms of a sub-chunk have in common.
type layout struct {
	positive, negative []histogram.Span
}

// checkSubChunk decodes the layout of a sub-chunk. It returns an error unless chunkenc can decode the sub-chunk safely.
func checkSubChunk(b []byte) (layout, error) {
	if len(b) < chunkencHeaderSize {
		return layout{}, fmt.Errorf("%w: a sub-chunk of only %d bytes", ErrCorrupt, len(b))
	}
	r := bitReader{b: b[chunkencHeaderSize:]}
	if r.bits(8) == 255 { // a zero threshold that isn't a power of 2
		r.bits(64)
	}
	schema := r.varbitInt()
	if schema < math.MinInt32 || schema > math.MaxInt32 || !histogram.IsValidSchema(int32(schema)) {
		return layout{}, fmt.Errorf("%w: a sub-chunk has the unknown schema %d", ErrCorrupt, schema)
	}
	var l layout
	room := uint64(8 * len(b)) // every bucket takes at least one bit
	for _, spans := range []*[]histogram.Span{&l.positive, &l.negative} {
		for range r.varbitCount() {
			length, offset := r.varbitUint(), r.varbitInt()
			if length > room || offset < math.MinInt32 || offset > math.MaxInt32 {
				return layout{}, fmt.Errorf("%w: a sub-chunk has an invalid span of %d buckets at %d",
					ErrCorrupt, length, offset)
			}
			room -= length
			*spans = append(*spans, histogram.Span{Offset: int32(offset), Length: uint32(length)})
		}
	}
	if histogram.IsCustomBucketsSchema(int32(schema)) {
		r.varbitCount()
	}
	if r.short {
		return layout{}, fmt.Errorf("%w: the layout of a sub-chunk is truncated", ErrCorrupt)
	}
	return l, nil
}

// bitReader reads bits as chunkenc writes them, the highest bit of each byte first. After the end it returns zeros.
type bitReader struct {
	b     []byte
	at    int // bit
	short bool
}

func (r *bitReader) bits(n int) (x uint64) {
	if n > 8*len(r.b)-r.at {
		r.short, r.at = true, 8*len(r.b)
		return 0
	}
	for range n {
		x = x<<1 | uint64(r.b[r.at/8]>>(7-r.at%8)&1)
		r.at++
	}
	return x
}

// varbitSizes has the number of value bits by the number of leading ones.
var varbitSizes = [...]int{0, 3, 6, 9, 12, 18, 25, 56, 64}

func (r *bitReader) varbit() (x uint64, size int) {
	ones := 0
	for ones < len(varbitSizes)-1 && r.bits(1) == 1 {
		ones++
	}
	size = varbitSizes[ones]
	return r.bits(size), size
}

func (r *bitReader) varbitUint() uint64 {
	x, _ := r.varbit()
	return x
}

func (r *bitReader) varbitInt() int64 {
	x, size := r.varbit()
	if size > 0 && size < 64 && x > 1<<(size-1) {
		x -= 1 << size
	}
	return int64(x)
}

// varbitCount reads a count of items that take at least one bit each.
func (r *bitReader) varbitCount() int {
	n := r.varbitUint()
	if n > uint64(8*len(r.b)-r.at) {
		r.short, r.at = true, 8*len(r.b)
		return 0
	}
	return int(n)
}
