package paged

import (
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// segment is a range of rows with pages of multiple buckets: in raw the rows of one kind and start, in r5m and r1h the
// rows of one kind. It is read from the smallest id to the largest, in units:
//
//	ids        a ─────────────────────────────────────────────► b
//	level 2    │ bucket     │ bucket     │ bucket     │ bucket │
//	level 5    │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │
//	units      ├─── read ───┼──── next ──…
//
// For each level a reader holds the pages of adjacent buckets, up to about limits.gatherBytes. A unit ends at the last
// bucket of the first exhausted level. Its rows are scanned after all of its pages have been read: see section "Rows
// supersede entries" of the package documentation.
type segment struct {
	prefix      engine.Key // common prefix of the keys of its rows and of its pages
	from, to    engine.Key // bounds of the requested rows
	first, last string     // bounds of their ids
	levels      []level
	name        string // see cacheKey
}

// level contains the pages of a segment's buckets whose ids share this number of bits.
type level struct {
	bits int
	// upTo is the last id of the bucket range whose pages are held; "" before the first read.
	upTo string
	held []*heldPage
}

// scanSegment yields the rows of a segment with pages of these levels.
func (s *scan) scanSegment(prefix engine.Key, levels []int) error {
	g := segment{
		prefix: prefix, from: narrowerBound(s.rows.From, prefix), to: narrowerBound(s.rows.To, prefix),
		first: noID, last: lastID,
	}
	if len(g.from) > s.series {
		g.first = g.from[s.series].Text
	}
	if len(g.to) > s.series {
		g.last = g.to[s.series].Text
	}
	s.narrowToWanted(&g)
	for _, bits := range levels {
		g.levels = append(g.levels, level{bits: bits})
	}
	for from := g.first; from <= g.last; {
		to := g.last
		for i := range g.levels {
			l := &g.levels[i]
			if l.upTo < from {
				if err := s.gatherOrRecall(&g, l, from); err != nil {
					return err
				}
			}
			to = min(to, l.upTo)
		}
		if err := s.yieldUnit(&g, from, to); err != nil {
			return err
		}
		if to == g.last {
			return nil
		}
		if from = nextBucketFirst(to); s.wanted != nil {
			var ok bool
			if from, ok = s.wanted.nextID(from); !ok {
				return nil
			}
		}
	}
	return nil
}

// narrowToWanted narrows a segment to the ids of the wanted series.
func (s *scan) narrowToWanted(g *segment) {
	if s.wanted == nil {
		return
	}
	if first := s.wanted.IDs[0]; g.first < first {
		g.first, g.from = first, joinKey(g.prefix, engine.Text(first))
	}
	if last := s.wanted.IDs[len(s.wanted.IDs)-1]; g.last > last {
		g.last, g.to = last, joinKey(g.prefix, engine.Text(last))
	}
}

// narrowerBound returns the narrower of a bound of a scan and the prefix of a segment. The bound must not exclude the
// whole segment.
func narrowerBound(bound, prefix engine.Key) engine.Key {
	if engine.Compare(bound, prefix) == 0 && len(bound) > len(prefix) {
		return bound
	}
	return prefix
}

// joinKey returns a key of prefix followed by more.
func joinKey(prefix engine.Key, more ...engine.Value) engine.Key {
	return append(append(make(engine.Key, 0, len(prefix)+len(more)), prefix...), more...)
}

// openBytes is the approximate overhead of an open page.
const openBytes = 1 << 10

// gatherPages reads the pages of a level, bucket by bucket, starting with the bucket of the id from, until the pages
// exceed limits.gatherBytes.
func (s *scan) gatherPages(g *segment, l *level, from string) error {
	pages := engine.Range{
		Table: s.pages, Partition: s.rows.Partition, Damaged: s.pagesDamaged(),
		From: joinKey(g.prefix, engine.Int(int64(l.bits)), engine.Text(bucketFirst(from, l.bits))),
		To:   joinKey(g.prefix, engine.Int(int64(l.bits)), engine.Text(bucketLast(g.last, l.bits))),
	}
	s.narrowToStarts(g, &pages)
	most := s.r.limits.gatherBytes
	if s.rows.Limit > 0 {
		most = min(most, (s.rows.Limit-s.n)*s.r.limits.entryBytes)
	}
	// Cache pages that are read for a few series: they are likely to be read soon for other series.
	few := bucketFirst(from, l.bits) == bucketFirst(g.last, l.bits) && g.prefix[0].Int == format.KindChunk
	metric := metricOf(s.rows.Partition)
	var found []*heldPage
	bytes, upTo := 0, g.last
	for row, err := range s.enginePages(pages) {
		if err != nil {
			return err
		}
		first := row.Clustering[s.first].Text
		if n := len(found); n > 0 && bytes > most && found[n-1].first != first {
			upTo = bucketLast(found[n-1].first, l.bits)
			break
		}
		var open *openPage
		if g.prefix[0].Int == format.KindChunk {
			open = s.cachedPage(metric, row.Clustering[pageVersion].Text)
		}
		at, skip := s.locateWanted(row, open)
		if skip {
			continue
		}
		held := s.newHeldPage(row, open)
		held.located = at
		found = append(found, held)
		bytes += len(row.Value)
	}
	l.upTo, l.held = upTo, slices.DeleteFunc(l.held, func(p *heldPage) bool { return p.lastID() < from })
	for _, p := range found {
		ok, err := s.open(p)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		l.held = append(l.held, p)
		if few && p.value != nil {
			of := s.located().cacheKey(metric, p.version, p.some)
			s.r.opened.add(of.clone(), p.openPage, of.size(p.page.MemoryBytes()+openBytes))
		}
	}
	return nil
}

// located returns the positions of the wanted series, or nil if they are unknown.
func (s *scan) located() *Located {
	if s.wanted == nil {
		return nil
	}
	return s.wanted.Located
}

// cachedPage returns a page of chunks from the caches of opened and written pages, or nil.
func (s *scan) cachedPage(metric, version string) *openPage {
	if l := s.located(); l != nil {
		if open := s.r.opened.get(l.cacheKey(metric, version, true)); open != nil {
			return open
		}
	}
	return s.r.cachedPage(labelsKey{metric, version})
}

// locateWanted returns the positions of the wanted series in the labels page of a data page that isn't open, or nil if
// they are unknown. skip is set if none of the wanted series is in the labels page.
func (s *scan) locateWanted(row engine.Row, open *openPage) (at *located, skip bool) {
	if open != nil {
		return nil, false
	}
	found, ok := s.located().find(row.Value)
	if !ok {
		return nil, false
	}
	return &found, len(found.positions) == 0
}

// cachedPage returns a page of chunks from the caches of opened and written pages, or nil.
func (r *Rows) cachedPage(page labelsKey) *openPage {
	if open := r.opened.get(page); open != nil {
		return open
	}
	return r.written.get(page)
}

// narrowToStarts narrows a range of pages of one bucket to the requested starts of one series.
func (s *scan) narrowToStarts(g *segment, pages *engine.Range) {
	if s.isRaw() || g.first != g.last {
		return
	}
	if len(g.from) > s.start {
		pages.From = append(pages.From, g.from[s.start])
	}
	if len(g.to) > s.start {
		pages.To = append(engine.Key{pages.From[0], pages.From[1], pages.From[2]}, g.to[s.start])
	}
}

// yieldUnit yields the rows of a segment with ids from first to last, inclusive. Their pages must be held.
func (s *scan) yieldUnit(g *segment, first, last string) error {
	from, to := g.from, g.to
	if first != g.first {
		from = joinKey(g.prefix, engine.Text(first))
	}
	if last != g.last {
		to = joinKey(g.prefix, engine.Text(last))
	}
	if s.spans != nil {
		return s.spansOf(g, from, to, first, last)
	}
	m := merge{scan: s, kind: g.prefix[0].Int, from: from, to: to, entries: s.entries[:0]}
	for i := range g.levels {
		for _, p := range g.levels[i].held {
			m.add(p, first, last)
		}
	}
	none, err := s.noRows(g)
	switch {
	case err != nil:
		return err
	case len(m.entries) == 0 && none:
		return nil
	case len(m.entries) == 0:
		return s.yieldPlain(from, to)
	}
	s.entries = m.entries
	if !slices.IsSortedFunc(m.entries, entry.compare) {
		slices.SortFunc(m.entries, entry.compare)
	}
	if none {
		return m.entriesOnly()
	}
	return m.run()
}
