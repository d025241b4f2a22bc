package page

import "github.com/cassia-db/cassia/storage/chunk"

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

// MayMeet reports whether entry i, 0 ≤ i < Len, may have samples from minT to maxT, milliseconds. It is false only where the entry
// is a chunk whose first and last timestamps lie on one side of that range.
func (t *Times) MayMeet(i int, minT, maxT int64) bool {
	if t.whole.at(i) != 0 {
		return true
	}
	first, last := chunk.CutTimes(func(k int) uint64 { return t.fields[k].at(i) })
	return last < first || first <= maxT && minT <= last
}
