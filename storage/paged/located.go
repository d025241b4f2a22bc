package paged

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/page"
)

// Located is where series that were sought stand in the labels pages of a partition. With it, data pages are read without the ids of all
// series of their labels page, which have to be computed, and those that have none of the series aren't opened. It doesn't change.
//
// Of labels pages that came later, or that couldn't be read, it has nothing: their ids are computed.
type Located struct {
	// seen are the labels pages of which it is known which of the series they have, by the first 8 bytes of their versions, in order: a page
	// that came later has the same ones by a chance of one in 2^64.
	seen  []uint64
	pages map[string]located // by version: those that have some
	// name is another for each in the process: pages that were opened with it are cached under it.
	name string
}

// namedLocated counts those that have a name.
var namedLocated atomic.Uint64

// located is where series stand in a labels page.
type located struct {
	ids       string // one after the other, in order
	positions []byte // of each
}

// Bytes is about how much memory it takes.
func (l *Located) Bytes() int64 {
	if l == nil {
		return 0
	}
	n := int64(8 * len(l.seen))
	for _, p := range l.pages {
		n += int64(len(p.ids)+len(p.positions)) + locatedBytes
	}
	return n
}

// locatedBytes is about what a page takes in Located besides its series: the version, and a place in a map.
const locatedBytes = 100

// nameOf names a page of a version that was opened with l in caches, all of its entries or some.
func (l *Located) nameOf(metric, version string, some bool) labelsKey {
	if some {
		version += l.name
	}
	return labelsKey{metric, version}
}

// of returns where series stand in the labels page of a data page with this value. ok is false where that isn't known.
func (l *Located) of(value []byte) (found located, ok bool) {
	if l == nil {
		return located{}, false
	}
	version, ok := page.LabelsOf(value)
	if !ok {
		return located{}, false
	}
	if found, ok = l.pages[string(version)]; ok {
		return found, true
	}
	_, ok = slices.BinarySearch(l.seen, binary.BigEndian.Uint64(version))
	return located{}, ok
}

// locating makes a Located.
type locating struct {
	seen    []uint64
	pages   map[string]located
	entries []locatedEntry // of the page that is looked at
}

type locatedEntry struct {
	id       string
	position byte
}

// saw notes that of a labels page the entries that were added since the last call are all that are sought.
func (l *locating) saw(version string) {
	l.seen = append(l.seen, binary.BigEndian.Uint64([]byte(version)))
	if len(l.entries) == 0 {
		return
	}
	slices.SortFunc(l.entries, func(a, b locatedEntry) int { return cmp.Compare(a.id, b.id) })
	found := located{positions: make([]byte, len(l.entries))}
	ids := make([]byte, 0, len(l.entries)*engine.IDLen)
	for i, e := range l.entries {
		ids = append(ids, e.id...)
		found.positions[i] = e.position
	}
	found.ids = string(ids)
	if l.pages == nil {
		l.pages = map[string]located{}
	}
	l.pages[version] = found
	l.entries = l.entries[:0]
}

func (l *locating) located() *Located {
	slices.Sort(l.seen)
	return &Located{l.seen, l.pages, string(binary.BigEndian.AppendUint64(nil, namedLocated.Add(1)))}
}

// open opens a data page with those of its entries that are located; nil: it has none.
func (l located) open(p *page.Page) *openPage {
	var entry [page.MaxEntries]int // by position, from 1
	at := p.Head().At
	for i := range p.Len() {
		position := byte(i)
		if at != nil {
			position = at[i]
		}
		entry[position] = i + 1
	}
	o := &openPage{kind: p.Head().Kind, at: make([]byte, p.Len()), ids: ids{all: l.ids}, page: p, some: true}
	for k, position := range l.positions {
		if i := entry[position]; i > 0 {
			o.at[i-1] = byte(k)
			o.order = append(o.order, byte(i-1))
		}
	}
	if len(o.order) == 0 {
		return nil
	}
	return o
}
