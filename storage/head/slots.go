package head

import (
	"cmp"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/format"
)

// SlotPartition identifies a slot partition.
type SlotPartition struct {
	Slot      int64
	Partition int
}

// Compare compares by slot, then by partition.
func (at SlotPartition) Compare(o SlotPartition) int {
	return cmp.Or(cmp.Compare(at.Slot, o.Slot), cmp.Compare(at.Partition, o.Partition))
}

// partition returns the guard of a partition.
func (h *Head) partition(partition int) *guardedPartition { return &h.parts[partition%len(h.parts)] }

// openSlot holds the generations of a slot partition.
type openSlot struct {
	slot      int64
	partition int
	// seq is the number of the last blob. The number of a blob is never reused, so slot partitions that are created
	// later continue from seq, see guardedPartition. Only the committer uses it while a generation is open.
	seq  int64
	open *Generation // nil: the next commit opens one
	// followed holds the samples of rows that were staged by other processes, or that were in the staging log at the
	// start; nil if there are none yet.
	followed *Generation
	// closed generations are waiting to be sealed.
	closed []*Generation
}

// slotPartition finds or creates an openSlot. The partition's lock must be held for writing.
func (p *guardedPartition) slotPartition(slot int64, partition int) *openSlot {
	at := SlotPartition{slot, partition}
	c := p.slots[at]
	if c == nil {
		c = &openSlot{slot: slot, partition: partition, seq: p.seq}
		p.slots[at] = c
	}
	return c
}

// Slots returns the slots of a partition that have data in the head.
func (h *Head) Slots(partition int) []int64 {
	p := h.partition(partition)
	p.mu.RLock()
	defer p.mu.RUnlock()
	var slots []int64
	for at := range p.slots {
		if at.Partition == partition {
			slots = append(slots, at.Slot)
		}
	}
	return slots
}

// closeGeneration closes the open generations of a slot partition, so that they can be sealed. The commit lock and the
// partition's lock must be held.
func (c *openSlot) closeGeneration() {
	if c.open != nil {
		c.closed = append(c.closed, c.open)
		c.open = nil
	}
	if c.followed != nil {
		c.closed = append(c.closed, c.followed)
		c.followed = nil
	}
}

// followerGeneration returns the generation for samples that other processes have staged. start is the start of the
// slot. The partition's lock must be held.
func (c *openSlot) followerGeneration(start int64) *Generation {
	if c.followed == nil {
		c.followed = &Generation{slot: c, start: start}
	}
	return c.followed
}

// eachGeneration calls f for all generations. The partition's lock must be held.
func (c *openSlot) eachGeneration(f func(*Generation)) {
	for _, g := range c.closed {
		f(g)
	}
	if c.open != nil {
		f(c.open)
	}
	if c.followed != nil {
		f(c.followed)
	}
}

func (c *openSlot) bytes() (n int64) {
	c.eachGeneration(func(g *Generation) { n += g.bytes.Load() })
	return n
}

// lastTouched returns the time of the last write, or zero if there was none. The partition's lock must be held.
func (c *openSlot) lastTouched() (last time.Time) {
	c.eachGeneration(func(g *Generation) {
		if g.touched.After(last) {
			last = g.touched
		}
	})
	return last
}

// viewSlot calls f for a slot partition with data in the head, under its lock. It reports whether there is data.
func (h *Head) viewSlot(at SlotPartition, f func(*openSlot)) bool {
	p := h.partition(at.Partition)
	p.mu.RLock()
	defer p.mu.RUnlock()
	c := p.slots[at]
	if c != nil && f != nil {
		f(c)
	}
	return c != nil
}

// HasSlotPartition reports whether the head has data of a slot partition.
func (h *Head) HasSlotPartition(at SlotPartition) bool { return h.viewSlot(at, nil) }

// CountChunks returns the number of head chunks of a slot partition, and whether the head has data of it.
func (h *Head) CountChunks(at SlotPartition) (n int, held bool) {
	held = h.viewSlot(at, func(c *openSlot) { c.eachGeneration(func(g *Generation) { n += len(g.chunks) }) })
	return n, held
}

// CountRows returns the number of staged rows of a slot partition that the head covers, which approximates the number
// in the staging log.
func (h *Head) CountRows(at SlotPartition) (n int) {
	h.viewSlot(at, func(c *openSlot) { c.eachGeneration(func(g *Generation) { n += g.rows.len() }) })
	return n
}

// LastTouched returns the time of the last write to a slot partition in the head; zero if there was none.
func (h *Head) LastTouched(at SlotPartition) (last time.Time) {
	h.viewSlot(at, func(c *openSlot) { last = c.lastTouched() })
	return last
}

// WrittenSince returns the time when this process wrote the first samples of a slot partition that the head holds. It
// returns zero if the head has no samples of the slot partition, or if some of them were read from the staging log.
func (h *Head) WrittenSince(at SlotPartition) (since time.Time) {
	first := true
	h.viewSlot(at, func(c *openSlot) {
		c.eachGeneration(func(g *Generation) {
			if first || g.since.Before(since) {
				since, first = g.since, false
			}
		})
	})
	return since
}

// RestingBytes returns the total size of some slots of a partition: those for which rests returns true. touched is the
// time of the last write to the slot.
func (h *Head) RestingBytes(partition int, rests func(slot int64, touched time.Time) bool) (bytes int64) {
	p := h.partition(partition)
	p.mu.RLock()
	defer p.mu.RUnlock()
	for at, c := range p.slots {
		if at.Partition == partition && rests(at.Slot, c.lastTouched()) {
			bytes += c.bytes()
		}
	}
	return bytes
}

// HasDataBetween reports whether the head has unsealed data in the slots from first to last.
func (h *Head) HasDataBetween(first, last int64) (holds bool) {
	h.eachSlot(func(slot int64) { holds = holds || slot >= first && slot <= last })
	return holds
}

// SlotBounds returns the first and the last slot with data in the head; ok is false if there are none.
func (h *Head) SlotBounds() (first, last int64, ok bool) {
	h.eachSlot(func(slot int64) {
		if !ok {
			first, last, ok = slot, slot, true
		}
		first, last = min(first, slot), max(last, slot)
	})
	return first, last, ok
}

func (h *Head) eachSlot(f func(slot int64)) {
	for i := range h.parts {
		p := &h.parts[i]
		p.mu.RLock()
		for at := range p.slots {
			f(at.Slot)
		}
		p.mu.RUnlock()
	}
}

// HasSealedGeneration reports whether a generation of a slot partition was probably sealed: it has rows, and none of
// them is in staged.
func (h *Head) HasSealedGeneration(at SlotPartition, staged map[format.StageRow]bool) (sealed bool) {
	h.viewSlot(at, func(c *openSlot) {
		c.eachGeneration(func(g *Generation) { sealed = sealed || !g.rows.isEmpty() && g.IsSealed(staged) })
	})
	return sealed
}

// HasSealedRow reports whether a row of a slot partition's generations is missing in staged.
func (h *Head) HasSealedRow(at SlotPartition, staged map[format.StageRow]bool) (sealed bool) {
	h.viewSlot(at, func(c *openSlot) {
		c.eachGeneration(func(g *Generation) {
			for r := range g.rows.all() {
				sealed = sealed || !staged[r]
			}
		})
	})
	return sealed
}

// LastSeq returns the max number of a blob in removed slot partitions of the partition, and whether the head has data
// of this slot partition.
func (h *Head) LastSeq(at SlotPartition) (seq int64, held bool) {
	p := h.partition(at.Partition)
	p.mu.RLock()
	defer p.mu.RUnlock()
	_, failed := p.failed[at]
	return p.seq, failed || p.slots[at] != nil
}

// CloseGenerations closes the open generations of a slot partition. It returns all closed generations, and the number
// of the last blob. The commit lock must be held.
func (h *Head) CloseGenerations(at SlotPartition) (closed []*Generation, last int64) {
	p := h.partition(at.Partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, failed := p.failed[at]; failed {
		p.failed[at] = true
	}
	c := p.slots[at]
	if c == nil {
		return nil, p.seq
	}
	c.closeGeneration()
	return slices.Clone(c.closed), c.seq
}

// ReleaseGenerations releases closed generations of a slot partition, after they were sealed or replaced. all is true if
// all staged rows of the slot partition were sealed.
func (h *Head) ReleaseGenerations(at SlotPartition, gens []*Generation, all bool) {
	p := h.partition(at.Partition)
	p.mu.Lock()
	c := p.slots[at]
	if all && p.failed[at] {
		delete(p.failed, at)
	}
	p.mu.Unlock()
	if c != nil {
		h.dropGenerations(c, gens)
	}
}

// dropGenerations removes generations of a slot partition and their head chunks.
func (h *Head) dropGenerations(c *openSlot, gens []*Generation) {
	gone := make(map[*Generation]bool, len(gens))
	for _, g := range gens {
		gone[g] = true
	}
	p := h.partition(c.partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range gens {
		if g.dropped { // a seal and ReleaseDefinitions may both find that it is sealed
			continue
		}
		g.dropped = true
		for _, st := range g.chunks {
			s := st.series
			h.AddBytes(s.tenant, -st.bytes())
			s.setChunks(s.chunks().WithoutChunk(st))
		}
	}
	keep := c.closed[:0:0]
	for _, g := range c.closed {
		if !gone[g] {
			keep = append(keep, g)
		}
	}
	c.closed = keep
	if c.open == nil && c.followed == nil && len(keep) == 0 {
		p.seq = max(p.seq, c.seq)
		// A commit may have failed since c was found. Then c was removed, and the next commit created another openSlot
		// for the same slot partition.
		if at := (SlotPartition{c.slot, c.partition}); p.slots[at] == c {
			delete(p.slots, at)
		}
	}
	h.fair.invalidate()
}

// AdoptGeneration adds a loaded generation to the head as a closed one.
func (h *Head) AdoptGeneration(g *Generation) {
	h.life.RLock()
	defer h.life.RUnlock()
	for {
		i := slices.IndexFunc(g.chunks, func(st *Chunk) bool { return st.series.dead })
		if i < 0 {
			break
		}
		h.life.RUnlock()
		g.chunks[i].series = h.reinsertSeries(g.chunks[i].series)
		h.life.RLock()
	}
	p := h.partition(g.slot.partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.slotPartition(g.slot.slot, g.slot.partition)
	g.slot = c
	for _, st := range g.chunks {
		s := st.series
		s.setChunks(s.chunks().WithChunk(st))
		h.addChunkBytes(st, int(st.bytes()))
	}
	c.closed = append(c.closed, g)
}

// PublishRow adds the samples of a decoded row to the head. whole is set if the head then has all samples of the row,
// so that sealing need not read the row again. defines is set if the row's definitions must be kept.
func (h *Head) PublishRow(d *Decoder, r format.StageRow, whole, defines bool, now time.Time) {
	h.life.RLock()
	defer h.life.RUnlock()
	for dead := d.firstReleased(); dead != nil; dead = d.firstReleased() {
		h.life.RUnlock()
		*dead = streamRef{series: h.reinsertSeries(dead.series)}
		h.life.RLock()
	}
	p := h.partition(d.at.Partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.slotPartition(d.at.Slot, d.at.Partition).followerGeneration(h.period.SlotStart(d.at.Slot))
	d.AddTo(g)
	g.touched = now
	if whole {
		g.rows.add(r)
	}
	if defines {
		d.CopyDefinitionsTo(g, r)
	}
}
