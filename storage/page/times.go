package page

import (
	"math"

	"github.com/cassia-db/cassia/storage/chunk"
)

// Times are the columns of a page of chunks from which follows when the samples of an entry were taken.
type Times struct {
	whole  *numbers
	fields [1 + chunk.FieldTimes + chunk.RunBase]*numbers // those of chunk.CutTimes; nil: it needs none
}

// Times returns the columns. ok is false for pages of another kind than Chunks.
func (p *Page) Times() (t Times, ok bool) {
	if p.head.Kind != Chunks {
		return Times{}, false
	}
	t.whole = p.column(0)
	for _, k := range [...]int{chunk.FieldFloats, chunk.FieldMinT, chunk.FieldRange, chunk.FieldTimes + chunk.RunHead, chunk.FieldTimes + chunk.RunBase} {
		t.fields[k] = p.column(1 + k)
	}
	return t, true
}

// Span returns the times of the first and the last sample of entry i, 0 ≤ i < Len, milliseconds. They are the earliest and the latest
// time there is where the entry isn't a chunk that was cut, or where its columns contradict each other.
func (t *Times) Span(i int) (first, last int64) {
	if t.whole.at(i) == 0 {
		first, last = chunk.CutTimes(func(k int) uint64 { return t.fields[k].at(i) })
		if first <= last {
			return first, last
		}
	}
	return math.MinInt64, math.MaxInt64
}
