package page

import (
	"math"

	"github.com/cassia-db/cassia/storage/chunk"
)

// Times are the columns of a page of chunks that determine the times of an entry's samples.
type Times struct {
	whole  *numbers
	fields [1 + chunk.FieldTimes + chunk.RunBase]*numbers // the columns for chunk.CutTimes; nil: unused
}

// Times returns the columns. ok is false for pages of kinds other than Chunks.
func (p *Page) Times() (t Times, ok bool) {
	if p.head.Kind != Chunks {
		return Times{}, false
	}
	t.whole = p.column(0)
	for _, k := range [...]int{chunk.FieldFloats, chunk.FieldMinT, chunk.FieldRange, chunk.FieldTimes + chunk.RunHead,
		chunk.FieldTimes + chunk.RunBase} {
		t.fields[k] = p.column(1 + k)
	}
	return t, true
}

// Span returns the times of the first and the last sample of entry i, 0 ≤ i < Len, in milliseconds. If the entry isn't
// a chunk that was cut, or its columns contradict each other, it returns the min and max int64.
func (t *Times) Span(i int) (first, last int64) {
	if t.whole.at(i) == 0 {
		first, last = chunk.CutTimes(func(k int) uint64 { return t.fields[k].at(i) })
		if first <= last {
			return first, last
		}
	}
	return math.MinInt64, math.MaxInt64
}
