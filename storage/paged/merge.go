package paged

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/rollup"
)

// merge yields the rows of a unit, and the entries of its pages, in the order of their keys.
type merge struct {
	*scan

	kind     int64
	from, to engine.Key

	entries []entry // those that weren't looked at, in the order of ids and starts

	// next are the logical rows that the entries before make: all of one series and start, in order. They are valid as
	// long as buf isn't used anew.
	next   []logical
	memory []logical // of next
	buf    []byte
	key    [4]engine.Value
}

// entry is an entry of a page.
type entry struct {
	id   string
	page *heldPage
	i    int
}

func (e entry) compare(o entry) int {
	if order := strings.Compare(e.id, o.id); order != 0 {
		return order
	}
	return cmp.Compare(e.page.start, o.page.start)
}

// logical is a row that entries make.
type logical struct {
	id      string
	start   int64
	version string // of raw chunks, part of the key
	rank    uint64 // of rollups: their version
	value   []byte // nil if it wasn't needed
}

// add adds the entries of a page whose ids lie between two, and that are wanted.
func (m *merge) add(p *heldPage, first, last string) {
	if m.wanted != nil {
		m.addWanted(p, first, last)
		return
	}
	for at := p.search(0, first); at < p.len() && p.id(int(p.order[at])) <= last; at++ {
		m.addEntry(p, at)
	}
}

// addWanted goes through the ids of the page and those that are wanted side by side: each is looked for among the
// others.
func (m *merge) addWanted(p *heldPage, first, last string) {
	ids := m.wanted.IDs
	times := m.wanted.timesOf(p.openPage)
	if m.entries == nil { // Most scans for some series are of those of a piece of a pass.
		m.entries = make([]entry, 0, min(len(ids), 8*page.MaxEntries))
	}
	at, i := 0, sort.SearchStrings(ids, first)
	for i < len(ids) && ids[i] <= last {
		if at = p.search(at, ids[i]); at == p.len() {
			return
		}
		id := p.id(int(p.order[at]))
		if id == ids[i] {
			if times.mayMeet(int(p.order[at])) {
				m.addEntry(p, at)
			}
			at, i = at+1, i+1
		} else {
			i += sort.SearchStrings(ids[i:], id)
		}
	}
}

// addEntry adds the entry of a page that comes as the at-th in the order of ids.
func (m *merge) addEntry(p *heldPage, at int) {
	i := int(p.order[at])
	e := entry{p.id(i), p, i}
	if m.isRaw() || m.within(logical{id: e.id, start: p.start}) {
		m.entries = append(m.entries, e)
	}
}

// within reports whether a row lies between the bounds of the unit.
func (m *merge) within(row logical) bool {
	key := m.keyOf(&row)
	return engine.Compare(m.from, key) <= 0 && engine.Compare(key, m.to) <= 0
}

// keyOf returns the key of a row, valid until the next call.
func (m *merge) keyOf(row *logical) engine.Key {
	m.key[0] = engine.Int(m.kind)
	m.key[m.start] = engine.Int(row.start)
	m.key[m.series] = engine.Text(row.id)
	if !m.isRaw() {
		return m.key[:3]
	}
	m.key[3] = engine.Text(row.version)
	return m.key[:]
}

// run scans the rows, and merges. What reads the pages did so before.
func (m *merge) run() error {
	for row, err := range m.engineRows(m.nextPart(m.from, m.to), m.entries) {
		if err != nil {
			return err
		}
		best := row
		for {
			if ok, err := m.fill(); err != nil {
				return err
			} else if !ok {
				break
			}
			m.needVersion(row.Clustering)
			order := engine.Compare(m.keyOf(&m.next[0]), row.Clustering)
			if order > 0 {
				break
			}
			if order == 0 {
				if m.outdoes(&m.next[0], row) {
					best = m.row()
				}
				m.next = m.next[1:]
				break
			}
			if err := m.emitNext(); err != nil {
				return err
			}
		}
		if err := m.emit(best); err != nil {
			return err
		}
	}
	for {
		if ok, err := m.fill(); err != nil || !ok {
			return err
		}
		if err := m.emitNext(); err != nil {
			return err
		}
	}
}

func (m *merge) emitNext() error {
	row := m.row()
	m.next = m.next[1:]
	return m.emit(row)
}

// row returns the row that comes next.
func (m *merge) row() engine.Row {
	row := engine.Row{Clustering: m.keyOf(&m.next[0])}
	if !m.rows.KeysOnly {
		row.Value = m.next[0].value
	}
	return row
}

// outdoes reports whether an entry has a higher rank than the row with its key. Only rollups have: raw chunks in pages
// name no deletes.
func (m *merge) outdoes(l *logical, row engine.Row) bool {
	return m.ranked() && l.rank > rollup.VersionOf(row.Value)
}

// ranked reports whether of entries with one key the rank must be known.
func (m *merge) ranked() bool { return !m.isRaw() && m.kind == format.KindChunk && !m.rows.KeysOnly }

// needVersion has the entry that comes next have its version where the rest of its key is a row's.
func (m *merge) needVersion(key engine.Key) {
	if l := &m.next[0]; l.version == "" && m.isRaw() && l.id == key[m.series].Text && l.start == key[m.start].Int {
		l.version = versionOf(l.value)
	}
}

// fill makes next of the next entries, unless there is any. ok is false if there are none.
func (m *merge) fill() (ok bool, err error) {
	for len(m.next) == 0 {
		if len(m.entries) == 0 {
			return false, nil
		}
		n := 1
		for n < len(m.entries) && m.entries[n].id == m.entries[0].id && m.entries[n].page.start == m.entries[0].page.start {
			n++
		}
		m.next, m.buf = m.memory[:0], m.buf[:0]
		versions := n > 1 || m.wanted == nil || !m.wanted.NoVersions
		for _, e := range m.entries[:n] {
			if err := m.materialize(e, versions); err != nil {
				return false, err
			}
		}
		m.entries, m.memory = m.entries[n:], m.next
		m.choose()
	}
	return true, nil
}

// materialize adds the row that an entry makes to next; that of a raw chunk has its version if versions are needed.
func (m *merge) materialize(e entry, versions bool) error {
	l := logical{id: e.id, start: e.page.start}
	hashed := m.isRaw() && m.kind == format.KindChunk && (versions || m.rows.KeysOnly)
	if m.isRaw() && m.kind != format.KindChunk {
		l.version = noID
	}
	if !m.rows.KeysOnly || hashed && e.page.page != nil {
		from := len(m.buf)
		buf, err := e.page.appendPart(m.buf, e.i, m.needed)
		if err != nil {
			return m.unreadableEntry(e, err)
		}
		l.value, m.buf = buf[from:len(buf):len(buf)], buf
	}
	if hashed {
		m.buf = e.page.appendVersion(m.buf, e.i, l.value)
		l.version = engine.UnsafeText(m.buf[len(m.buf)-engine.IDLen:])
	}
	if m.ranked() {
		l.rank = rollup.VersionOf(l.value)
	}
	if !m.isRaw() || m.within(l) {
		m.next = append(m.next, l)
	}
	return nil
}

// choose leaves one row of each key in next, that of the highest rank, and puts them in order.
func (m *merge) choose() {
	if len(m.next) < 2 {
		return
	}
	slices.SortStableFunc(m.next, func(a, b logical) int {
		return cmp.Or(cmp.Compare(a.version, b.version), cmp.Compare(b.rank, a.rank))
	})
	m.next = slices.CompactFunc(m.next, func(a, b logical) bool { return a.version == b.version })
}
