package paged

import (
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// factMemory remembers facts about segments of raw chunks, for queries that read some of their series: which pages a
// bucket has, and whether there are rows besides pages. Pages that are open then need no scan of the engine, and
// neither do rows where there are none.
//
// A fact holds as long as the engine's versions of the partition's rows and pages are the same as before it was read:
// no write was applied since, and nothing was dropped, see engine.Versioned. The versions are looked at anew for each
// fact. So a reader that has read pages, and goes by the fact that there are no rows, has that from after its pages:
// rows that take the place of entries are written before these are removed.
type factMemory struct {
	versions engine.Versioned // nil: nothing is remembered
	of       *lru[factKey, *fact]
}

const (
	// factMemoryBytes is the size of a factMemory: some thousand facts.
	factMemoryBytes = 2 << 20
	// factBytes is about what a fact takes besides texts.
	factBytes = 300
	// aboutRows is in the place of a bucket's bits in the key of the fact about rows.
	aboutRows = -1
)

// factKey names a bucket of a segment, or its rows.
type factKey struct {
	segment string
	bits    int
	first   uint16 // the bits, from the highest on
}

// fact is what stood in a partition at a version. It doesn't change.
type fact struct {
	version uint64
	pages   []string // versions of the pages of a bucket
	rows    bool     // there are rows, or may be
}

// version returns the version of a partition's rows and pages; ok is false if facts about it can't be remembered.
func (m *factMemory) version(t *tables, partition engine.Key) (version uint64, ok bool) {
	if m.versions == nil {
		return 0, false
	}
	rows, ok := m.versions.Version(t.rows, partition)
	if !ok {
		return 0, false
	}
	pages, ok := m.versions.Version(t.pages, partition)
	return rows + pages, ok // Both only grow.
}

// put remembers a fact in the place of that of another version.
func (m *factMemory) put(key factKey, f *fact) {
	size := int64(len(key.segment) + factBytes)
	for _, version := range f.pages {
		size += int64(len(version) + 16)
	}
	m.of.remove(key)
	m.of.add(key, f, size)
}

// remembers reports whether facts about a segment may be remembered for the scan.
func (s *scan) remembers(g *segment) bool {
	return s.wanted != nil && s.wanted.Remember && s.isRaw() && s.r.facts.versions != nil && g.prefix[0].Int == format.KindChunk
}

// gatherOrRecall is gatherPages that goes by the facts about a bucket, where only one is read.
func (s *scan) gatherOrRecall(g *segment, l *level, from string) error {
	first := bucketFirst(from, l.bits)
	if !s.remembers(g) || s.located() != nil || first != bucketFirst(g.last, l.bits) {
		// Located leaves out pages that have none of the series.
		return s.gatherPages(g, l, from)
	}
	if id, ok := s.wanted.nextID(first); !ok || id > bucketLast(first, l.bits) {
		// Pages of other buckets are passed over.
		return s.gatherPages(g, l, from)
	}
	version, ok := s.r.facts.version(s.tables, s.rows.Partition)
	if !ok {
		return s.gatherPages(g, l, from)
	}
	key := factKey{segment: s.nameOf(g), bits: l.bits, first: idPrefix(first)}
	if f := s.r.facts.of.get(key); f != nil && f.version == version && s.recall(f, g, l, first) {
		return nil
	}
	damaged := len(s.reports.seen)
	if err := s.gatherPages(g, l, from); err != nil {
		return err
	}
	if len(s.reports.seen) > damaged {
		return nil
	}
	f := &fact{version: version, pages: make([]string, len(l.held))}
	for i, p := range l.held {
		f.pages[i] = p.version
	}
	s.r.facts.put(key, f)
	return nil
}

// recall has a level hold the pages of the bucket with this first id; ok is false if they aren't all open.
func (s *scan) recall(f *fact, g *segment, l *level, first string) (ok bool) {
	metric := metricOf(s.rows.Partition)
	held := make([]*heldPage, 0, len(f.pages))
	for _, version := range f.pages {
		open := s.r.cachedPage(labelsKey{metric, version})
		if open == nil {
			return false
		}
		held = append(held, &heldPage{
			kind: format.KindChunk, start: g.prefix[s.pageStart].Int, bits: l.bits, first: first, version: version, openPage: open,
		})
	}
	l.upTo, l.held = g.last, held
	return true
}

// nameOf returns what stands for a segment.
func (s *scan) nameOf(g *segment) string {
	if g.name == "" {
		g.name = segmentName(s.pages, s.rows.Partition, g.prefix)
	}
	return g.name
}

// noRows reports whether a segment has no rows besides its pages, which were read before. It looks for some where that
// isn't known.
func (s *scan) noRows(g *segment) (bool, error) {
	memory := s.r.facts
	if !s.remembers(g) {
		return false, nil
	}
	version, ok := memory.version(s.tables, s.rows.Partition)
	if !ok {
		return false, nil
	}
	key := factKey{segment: s.nameOf(g), bits: aboutRows}
	if f := memory.of.get(key); f != nil && f.version == version {
		return !f.rows, nil
	}
	f := &fact{version: version}
	damaged := false
	any := engine.Range{
		Table: s.tables.rows, Partition: s.rows.Partition, From: g.prefix, To: g.prefix, KeysOnly: true, Limit: 1,
		Damaged: func(engine.Damage) { damaged = true }, // The scan that follows reports it.
	}
	for _, err := range s.r.eng.Scan(s.ctx, any) {
		if err != nil {
			return false, err
		}
		f.rows = true
	}
	if damaged {
		return false, nil
	}
	memory.put(key, f)
	return !f.rows, nil
}

// entriesOnly is run where there are no rows.
func (m *merge) entriesOnly() error {
	for {
		if ok, err := m.fill(); err != nil || !ok {
			return err
		}
		if err := m.emitNext(); err != nil {
			return err
		}
	}
}
