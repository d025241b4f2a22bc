package paged

import (
	"math"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/page"
)

// entryTimes contains the times of a page's entries.
type entryTimes struct {
	columns page.Times
	values  [][]byte // of a page that was just written; nil: columns is used
}

// times returns the times of a page of raw chunks.
func (p *openPage) times() (t entryTimes) {
	if p.page == nil {
		return entryTimes{values: p.values}
	}
	t.columns, _ = p.page.Times()
	return t
}

// span returns the times of the first and the last sample of an entry in milliseconds, or the min and max int64 if the
// entry is unreadable.
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

// wantedTimes decides which entries of a page have samples in the wanted time range.
type wantedTimes struct {
	all        bool // any time is wanted, or the entries aren't chunks of samples
	minT, maxT int64
	entryTimes
}

// timesOf returns the wantedTimes of a page.
func (w *wanted) timesOf(p *openPage) wantedTimes {
	if !w.Bounded || p.kind != page.Chunks {
		return wantedTimes{all: true}
	}
	return wantedTimes{minT: w.MinT, maxT: w.MaxT, entryTimes: p.times()}
}

// mayMeet reports whether an entry may have wanted samples.
func (t *wantedTimes) mayMeet(i int) bool {
	if t.all {
		return true
	}
	first, last := t.span(i)
	return first <= t.maxT && t.minT <= last
}
