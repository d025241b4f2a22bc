package paged

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// levelMemory remembers of which levels segments have pages, most often none, for whoever reads these again: to look
// for them takes a scan of the engine each. It relies on all pages being written through one Rows. Pages that were
// removed are still looked for.
//
//	reader: written? ─► scans ─► remembers, if nothing was written since
//	writer: pages are durable ─► counted as written, and their segments forgotten ─► Write returns
//
// Pages of a write that has failed may come to be at any time, so their segments aren't remembered any more.
type levelMemory struct {
	written atomic.Uint64 // how often pages were written
	of      *lru[string, *levels]

	mu     sync.Mutex
	unsure map[string]bool // segments of which a write has failed
	off    bool            // there were too many of these: nothing is remembered
}

// maxUnsure bounds levelMemory.unsure.
const maxUnsure = 1 << 12

// levels are the bits of a segment's pages, in order.
type levels struct{ bits []int }

// segmentName stands for a segment of a partition.
func segmentName(pages *engine.Table, partition, segment engine.Key) string {
	n := 0
	for _, v := range partition {
		n += len(v.Text)
	}
	b := make([]byte, 0, n+10*(len(partition)+len(segment))+1)
	b = append(b, byte(pages.ID))
	for _, key := range []engine.Key{partition, segment} {
		for _, v := range key {
			b = binary.AppendVarint(b, v.Int)
			b = binary.AppendUvarint(b, uint64(len(v.Text)))
			b = append(b, v.Text...)
		}
	}
	return engine.UnsafeText(b)
}

// wrote forgets the segments of pages that have been written; failed: that may have been, or may be later.
func (m *levelMemory) wrote(batches []engine.Batch, failed bool) {
	var names []string
	for i := range batches {
		b := &batches[i]
		t := pagesOf(b.Table)
		if t == nil {
			continue
		}
		var last engine.Key
		for j := range b.Mutations {
			if b.Mutations[j].Clustering[0].Int == format.KindFilter {
				continue
			}
			segment := firstFields(b.Mutations[j].Clustering, t.segment)
			if last == nil || engine.Compare(last, segment) != 0 {
				last = segment
				names = append(names, segmentName(t.pages, b.Partition, segment))
			}
		}
	}
	if len(names) == 0 {
		return
	}
	if failed {
		m.distrust(names)
	}
	m.written.Add(1)
	for _, name := range names {
		m.of.remove(name)
	}
}

// distrust notes segments that aren't remembered any more.
func (m *levelMemory) distrust(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unsure == nil {
		m.unsure = map[string]bool{}
	}
	for _, name := range names {
		m.off = m.off || len(m.unsure) >= maxUnsure
		if !m.off {
			m.unsure[name] = true
		}
	}
}

// trusts reports whether a segment may be remembered.
func (m *levelMemory) trusts(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.off && !m.unsure[name]
}

// levelsOf returns the levels of a segment.
func (s *scan) levelsOf(segment engine.Key) ([]int, error) {
	memory := s.r.levels
	name := segmentName(s.pages, s.rows.Partition, segment)
	if s.r.o.Shared {
		return s.sharedLevelsOf(segment, name)
	}
	if known := memory.of.get(name); known != nil {
		return known.bits, nil
	}
	before := memory.written.Load()
	damaged := len(s.reports.seen)
	first, err := s.firstPage(segment, segment)
	if err != nil {
		return nil, err
	}
	found, whole := []int(nil), true
	if first != nil {
		if found, whole, err = s.findLevels(segment, first[s.bits].Int); err != nil {
			return nil, err
		}
	}
	if whole && len(s.reports.seen) == damaged {
		holds := func() bool { return memory.written.Load() == before && memory.trusts(name) }
		memory.of.addIf(holds, name, &levels{found}, int64(len(name)+levelsBytes+8*len(found)))
	}
	return found, nil
}

// sharedLevelsOf is levelsOf where other processes write pages, too. A reader that has read the version of a window
// sees the pages that were written before, and doesn't need later ones: their samples aren't sealed for it. So the
// levels found hold for that version. A scan is a request: one lists all pages of the segment, which are few.
func (s *scan) sharedLevelsOf(segment engine.Key, name string) (found []int, err error) {
	remember := s.wanted != nil && s.wanted.Version != 0
	if remember {
		name = engine.UnsafeText(binary.BigEndian.AppendUint64([]byte(name), s.wanted.Version))
		if known := s.r.levels.of.get(name); known != nil {
			return known.bits, nil
		}
	}
	pages := engine.Range{Table: s.pages, Partition: s.rows.Partition, From: segment, To: segment, KeysOnly: true}
	for row, err := range s.r.eng.Scan(s.ctx, pages) {
		if err != nil {
			return nil, err
		}
		bits := row.Clustering[s.bits].Int
		if bits < 0 || bits > maxBits {
			p := &heldPage{kind: segment[0].Int, bits: int(bits), first: noID, version: noID}
			return found, s.unreadable(p, fmt.Errorf("ids in a bucket share an invalid number of bits, %d", bits))
		}
		if n := len(found); n == 0 || found[n-1] != int(bits) {
			found = append(found, int(bits))
		}
	}
	if remember {
		s.r.levels.of.add(name, &levels{found}, int64(len(name)+levelsBytes+8*len(found)))
	}
	return found, nil
}

// levelsBytes is about what an entry of levelMemory takes besides its name.
const levelsBytes = 160

// findLevels finds the levels of a segment from its first one on. whole is false where a key can't be one of a page.
func (s *scan) findLevels(segment engine.Key, bits int64) (found []int, whole bool, err error) {
	for {
		if bits < 0 || bits > maxBits {
			p := &heldPage{kind: segment[0].Int, bits: int(bits), first: noID, version: noID}
			return found, false, s.unreadable(p, fmt.Errorf("ids in a bucket share an invalid number of bits, %d", bits))
		}
		found = append(found, int(bits))
		next, err := s.firstPage(joinKey(segment, engine.Int(bits+1)), segment)
		if err != nil || next == nil {
			return found, true, err
		}
		bits = next[s.bits].Int
	}
}
