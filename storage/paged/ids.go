package paged

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// ids contains the ids of a labels page.
type ids struct {
	all  string // concatenated in order of position
	byID []byte // positions in the order of ids
}

func newIDs(all string) ids {
	x := ids{all: all, byID: make([]byte, len(all)/engine.IDLen)}
	for i := range x.byID {
		x.byID[i] = byte(i)
	}
	slices.SortFunc(x.byID, func(a, b byte) int { return strings.Compare(x.get(int(a)), x.get(int(b))) })
	return x
}

func (x ids) isEmpty() bool    { return x.all == "" }
func (x ids) len() int         { return len(x.byID) }
func (x ids) get(i int) string { return x.all[i*engine.IDLen : (i+1)*engine.IDLen] }

// orderEntries returns n entries in the order of their ids. at has their positions, ascending; nil means the first n.
func (x ids) orderEntries(at []byte, n int) []byte {
	if at == nil && n == x.len() {
		return x.byID
	}
	var entry [page.MaxEntries]int // by position; 1-based, 0 if none
	for i := range n {
		position := byte(i)
		if at != nil {
			position = at[i]
		}
		entry[position] = i + 1
	}
	order := make([]byte, 0, n)
	for _, position := range x.byID {
		if i := entry[position]; i > 0 {
			order = append(order, byte(i-1))
		}
	}
	return order
}

// identifier computes ids of series from the values of labels rows.
type identifier struct {
	set []byte
}

func (x *identifier) id(value []byte, metric string) (format.SeriesID, error) {
	var err error
	if x.set, err = format.AppendSeriesSetOfRow(x.set[:0], value, metric); err != nil {
		return format.SeriesID{}, err
	}
	return format.SeriesIDOfSet(x.set), nil
}

// idsOf computes the ids of a labels page. It returns engine.ErrCorrupt if the page is unreadable.
func idsOf(p *page.Page, metric string) (ids, error) {
	var x identifier
	var value []byte
	var all strings.Builder
	all.Grow(p.Len() * engine.IDLen)
	for i := range p.Len() {
		var err error
		if value, err = p.AppendValue(value[:0], i); err != nil {
			return ids{}, fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
		}
		id, err := x.id(value, metric)
		if err != nil {
			return ids{}, fmt.Errorf("%w: entry %d: %w", engine.ErrCorrupt, i, err)
		}
		all.Write(id[:])
	}
	return newIDs(all.String()), nil
}

// labelsKey identifies a page. The version is the hash of a page's value, which doesn't contain the metric's name.
type labelsKey struct{ metric, version string }

func (k labelsKey) clone() labelsKey {
	return labelsKey{strings.Clone(k.metric), strings.Clone(k.version)}
}

// size returns the size of a cache entry with a value of this many bytes.
func (k labelsKey) size(value int) int64 {
	return int64(len(k.metric)+len(k.version)+value) + cachedBytes
}

// cachedBytes is the approximate overhead of a cache entry.
const cachedBytes = 200

// cacheIDs caches the ids of a labels page.
func (r *Rows) cacheIDs(of labelsKey, found ids) {
	r.ids.add(of.clone(), found, of.size(len(found.all)+found.len()))
}
