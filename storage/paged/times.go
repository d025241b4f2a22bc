package paged

import (
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/page"
)

// entryTimes finds out which entries of a page are chunks that have no samples of the time that is wanted.
type entryTimes struct {
	all        bool // any time is wanted, or these aren't chunks of samples
	minT, maxT int64
	columns    page.Times
	values     [][]byte // of a page that was just written; nil: columns count
}

// timesOf returns the times of a page's entries.
func (w *wanted) timesOf(p *openPage) entryTimes {
	t := entryTimes{minT: w.MinT, maxT: w.MaxT}
	switch {
	case !w.Bounded || p.kind != page.Chunks:
		t.all = true
	case p.page == nil:
		t.values = p.values
	default:
		t.columns, _ = p.page.Times()
	}
	return t
}

// mayMeet reports whether an entry may have samples that are wanted. One that can't be read may.
func (t *entryTimes) mayMeet(i int) bool {
	switch {
	case t.all:
		return true
	case t.values == nil:
		return t.columns.MayMeet(i, t.minT, t.maxT)
	}
	info, err := chunk.Header(t.values[i])
	return err != nil || info.MinT <= t.maxT && t.minT <= info.MaxT
}
