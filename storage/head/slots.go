package head

import (
	"cmp"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/format"
)

// SlotPartition names a slot partition.
type SlotPartition struct {
	Slot      int64
	Partition int
}

// Compare orders by slot, then by partition.
func (at SlotPartition) Compare(o SlotPartition) int {
	return cmp.Or(cmp.Compare(at.Slot, o.Slot), cmp.Compare(at.Partition, o.Partition))
}

// part returns what guards a partition.
func (h *Head) part(partition int) *guardedPartition { return &h.parts[partition%len(h.parts)] }

// openSlot holds the generations of a slot and partition.
type openSlot struct {
	slot      int64
	partition int
	// seq is the last number given to a blob; slot partitions that come later go on after it, for a number names one
	// content for ever. Only the committer uses it while a generation is open.
	seq  int64
	open *Generation // nil: the next commit begins one
	// followed takes the stage rows of other processes, and those found at the start; nil: nothing yet.
	followed *Generation
	// closed generations wait to be sealed.
	closed []*Generation
}

// slotPartition returns the slot partition of a slot and partition. The caller holds the partition's lock for writing.
func (p *guardedPartition) slotPartition(slot int64, partition int) *openSlot {
	at := SlotPartition{slot, partition}
	c := p.slots[at]
	if c == nil {
		c = &openSlot{slot: slot, partition: partition, seq: p.seq}
		p.slots[at] = c
	}
	return c
}

// Slots lists those of a partition that the head has something of.
func (h *Head) Slots(partition int) []int64 {
	p := h.part(partition)
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

// closeGeneration ends the open generations of a slot partition, so that they can be sealed. The caller holds the
// commit lock and the partition's.
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

// follow returns the generation that takes what others stage of the slot partition, whose slot starts then. The caller holds the
// partition's lock.
func (c *openSlot) follow(start int64) *Generation {
	if c.followed == nil {
		c.followed = &Generation{slot: c, start: start}
	}
	return c.followed
}

// each calls f for all generations. The caller holds the partition's lock, as for what follows.
func (c *openSlot) each(f func(*Generation)) {
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
	c.each(func(g *Generation) { n += g.bytes.Load() })
	return n
}

// lastTouched returns when anything was last written to it; zero: nothing was.
func (c *openSlot) lastTouched() (last time.Time) {
	c.each(func(g *Generation) {
		if g.touched.After(last) {
			last = g.touched
		}
	})
	return last
}

// view calls f for a slot partition of which the head has something, under its lock, and reports whether it has.
func (h *Head) view(at SlotPartition, f func(*openSlot)) bool {
	p := h.part(at.Partition)
	p.mu.RLock()
	defer p.mu.RUnlock()
	c := p.slots[at]
	if c != nil && f != nil {
		f(c)
	}
	return c != nil
}

// Has reports whether the head holds anything of a slot partition.
func (h *Head) Has(at SlotPartition) bool { return h.view(at, nil) }

// CountChunks returns how many head chunks the head has of a slot partition, and whether it has any of it.
func (h *Head) CountChunks(at SlotPartition) (n int, held bool) {
	held = h.view(at, func(c *openSlot) { c.each(func(g *Generation) { n += len(g.chunks) }) })
	return n, held
}

// CountRows returns how many staged rows of a slot partition the head has, which is about how many there are in the stage.
func (h *Head) CountRows(at SlotPartition) (n int) {
	h.view(at, func(c *openSlot) { c.each(func(g *Generation) { n += g.rows.len() }) })
	return n
}

// Touched returns when anything was last written to what the head holds of a slot partition; zero: nothing was.
func (h *Head) Touched(at SlotPartition) (last time.Time) {
	h.view(at, func(c *openSlot) { last = c.lastTouched() })
	return last
}

// Since returns since when the head holds what this process wrote of a slot partition; zero: some of it was read, or it has nothing.
func (h *Head) Since(at SlotPartition) (since time.Time) {
	first := true
	h.view(at, func(c *openSlot) {
		c.each(func(g *Generation) {
			if first || g.since.Before(since) {
				since, first = g.since, false
			}
		})
	})
	return since
}

// RestingBytes returns how many bytes the head holds of those slots of a partition that rest, by when anything was last written to them.
func (h *Head) RestingBytes(partition int, rests func(slot int64, touched time.Time) bool) (bytes int64) {
	p := h.part(partition)
	p.mu.RLock()
	defer p.mu.RUnlock()
	for at, c := range p.slots {
		if at.Partition == partition && rests(at.Slot, c.lastTouched()) {
			bytes += c.bytes()
		}
	}
	return bytes
}

// HoldsBetween reports whether anything is unsealed of slots from one to another.
func (h *Head) HoldsBetween(first, last int64) (holds bool) {
	h.eachSlot(func(slot int64) { holds = holds || slot >= first && slot <= last })
	return holds
}

// LastSlot returns the last slot that the head has anything of; ok is true if there is one.
func (h *Head) LastSlot() (last int64, ok bool) {
	h.eachSlot(func(slot int64) {
		if !ok || slot > last {
			last, ok = slot, true
		}
	})
	return last, ok
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

// AnySealed reports whether a generation of a slot partition seems to be sealed, as its rows aren't among those that are staged.
func (h *Head) AnySealed(at SlotPartition, staged map[format.StageRow]bool) (sealed bool) {
	h.view(at, func(c *openSlot) {
		c.each(func(g *Generation) { sealed = sealed || !g.rows.isEmpty() && g.IsSealed(staged) })
	})
	return sealed
}

// LastSeq returns the last number that was given to a blob in slot partitions of the partition that are no more, and whether the
// head holds anything of this one.
func (h *Head) LastSeq(at SlotPartition) (seq int64, held bool) {
	p := h.part(at.Partition)
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.seq, p.slots[at] != nil
}

// Close closes the open generations of a slot partition, and returns all closed ones, and the last number that was given to a blob
// there. The caller holds the commit lock.
func (h *Head) Close(at SlotPartition) (closed []*Generation, last int64) {
	p := h.part(at.Partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.slots[at]
	if c == nil {
		return nil, p.seq
	}
	c.closeGeneration()
	return slices.Clone(c.closed), c.seq
}

// Release forgets closed generations of a slot partition: they are sealed.
func (h *Head) Release(at SlotPartition, gens []*Generation) {
	var c *openSlot
	if h.view(at, func(found *openSlot) { c = found }) {
		h.drop(c, gens)
	}
}

// drop removes generations of a slot partition with their head chunks.
func (h *Head) drop(c *openSlot, gens []*Generation) {
	gone := make(map[*Generation]bool, len(gens))
	for _, g := range gens {
		gone[g] = true
	}
	p := h.part(c.partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range gens {
		if g.dropped { // A seal and Forget may both find that it is sealed.
			continue
		}
		g.dropped = true
		for _, st := range g.chunks {
			s := st.series
			h.Weigh(s.tenant, -st.bytes())
			s.setChunks(s.chunks().Without(st))
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
		// Since c was found a commit may have failed, whereupon c went, and the next one made another of the same slot and partition.
		if at := (SlotPartition{c.slot, c.partition}); p.slots[at] == c {
			delete(p.slots, at)
		}
	}
	h.fair.stale()
}

// Adopt makes a generation that was loaded one of the head's, closed.
func (h *Head) Adopt(g *Generation) {
	h.life.RLock()
	defer h.life.RUnlock()
	for {
		i := slices.IndexFunc(g.chunks, func(st *Chunk) bool { return st.series.dead })
		if i < 0 {
			break
		}
		h.life.RUnlock()
		g.chunks[i].series = h.reinsert(g.chunks[i].series)
		h.life.RLock()
	}
	p := h.part(g.slot.partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.slotPartition(g.slot.slot, g.slot.partition)
	g.slot = c
	for _, st := range g.chunks {
		s := st.series
		s.setChunks(s.chunks().With(st))
		h.grew(st, int(st.bytes()))
	}
	c.closed = append(c.closed, g)
}

// Publish makes the samples of the row just read part of the head; whole is true if the head has all of them, so that the
// row needn't be read again for sealing, and defines if the row's definitions are to be remembered.
func (h *Head) Publish(d *Decoder, r format.StageRow, whole, defines bool, now time.Time) {
	h.life.RLock()
	defer h.life.RUnlock()
	for dead := d.firstDead(); dead != nil; dead = d.firstDead() {
		h.life.RUnlock()
		*dead = streamRef{series: h.reinsert(dead.series)}
		h.life.RLock()
	}
	p := h.part(d.at.Partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.slotPartition(d.at.Slot, d.at.Partition).follow(h.period.SlotStart(d.at.Slot))
	d.AddTo(g)
	g.touched = now
	if whole {
		g.rows.add(r)
	}
	if defines {
		d.NoteDefinitions(g, r)
	}
}
