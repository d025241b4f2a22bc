package paged

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/page"
)

// Located contains the positions of wanted series in the labels pages of a partition. With it, data pages are read
// without computing the ids of all series of their labels page, and data pages without wanted series aren't opened. It
// is immutable.
//
// A Located doesn't cover labels pages that were added later or were unreadable. The ids of these pages are computed.
type Located struct {
	// seen has the first 8 bytes of the versions of the covered labels pages, sorted. The probability that the version
	// of a later page starts with the same bytes is one in 2^64 per covered page.
	seen  []uint64
	pages map[string]located // by version: the pages with wanted series
	// name is unique in the process. It is part of the cache keys of pages that were opened with this Located.
	name string
}

// namedLocated is how many names have been assigned to Located values.
var namedLocated atomic.Uint64

// located contains the positions of series in a labels page.
type located struct {
	ids       string // concatenated, sorted
	positions []byte // of each id
}

// Bytes returns the approximate memory in bytes.
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

// locatedBytes is the approximate overhead of a page in Located: the version, and a map entry.
const locatedBytes = 100

// cacheKey returns the cache key of a page that was opened with l. some is set if it was opened with only some of its
// entries.
func (l *Located) cacheKey(metric, version string, some bool) labelsKey {
	if some {
		version += l.name
	}
	return labelsKey{metric, version}
}

// find returns the wanted positions in the labels page that a data page refers to. value is the value of the data page.
// ok is false if l doesn't cover the labels page.
func (l *Located) find(value []byte) (found located, ok bool) {
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

// locating builds a Located.
type locating struct {
	seen    []uint64
	pages   map[string]located
	entries []locatedEntry // of the current page
}

type locatedEntry struct {
	id       string
	position byte
}

// endPage records that the entries added since the last call are all wanted series of a labels page.
func (l *locating) endPage(version string) {
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

// open opens a data page with its located entries. It returns nil if there are none.
func (l located) open(p *page.Page) *openPage {
	var entry [page.MaxEntries]int // by position; 1-based, 0 if none
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
