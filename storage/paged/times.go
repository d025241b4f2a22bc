package paged

import (
	"math"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/page"
)

// entryTimes returns the times of a page's entries.
type entryTimes struct {
	columns page.Times
	values  [][]byte // of a page that was just written; nil: columns count
}

// times returns the times of a page of raw chunks.
func (p *openPage) times() (t entryTimes) {
	if p.page == nil {
		return entryTimes{values: p.values}
	}
	t.columns, _ = p.page.Times()
	return t
}

// span returns the times of the first and the last sample of an entry, milliseconds: the earliest and the latest there is where the entry can't be read.
func (t *entryTimes) span(i int) (first, last int64) {
	if t.values == nil {
		return t.columns.Span(i)
	}
	info, err := chunk.Header(t.values[i])
	if err != nil {
		return math.MinInt64, math.MaxInt64
	}
	return info.MinT, info.MaxT
}

// wantedTimes decides which entries of a page have samples of the time that is wanted.
type wantedTimes struct {
	all        bool // any time is wanted, or these aren't chunks of samples
	minT, maxT int64
	entryTimes
}

// timesOf returns the times of a page's entries.
func (w *wanted) timesOf(p *openPage) wantedTimes {
	if !w.Bounded || p.kind != page.Chunks {
		return wantedTimes{all: true}
	}
	return wantedTimes{minT: w.MinT, maxT: w.MaxT, entryTimes: p.times()}
}

// mayMeet reports whether an entry may have samples that are wanted.
func (t *wantedTimes) mayMeet(i int) bool {
	if t.all {
		return true
	}
	first, last := t.span(i)
	return first <= t.maxT && t.minT <= last
}
