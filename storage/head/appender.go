package head

import (
	"math"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// Appender adds the samples of one commit after the other to the head:
//
//	Begin ─► Stage ─► Batches ─┬─► durable ─► Publish: visible to queries
//	         of each batch     └─► not, or in doubt ─► Fail
//
// The caller holds the commit lock from Begin on.
type Appender struct {
	h      *Head
	writer string
	isOld  func(slot int64) bool
	// builders keeps those that no commit uses.
	builders sync.Pool

	// gens are the generations that the commit under way adds to, streams those with blobs.
	gens, streams []*Generation
	// touched and sink serve touch.
	touched []*Chunk
	sink    uint32
}

// NewAppender makes the appender of a head, of which there is one. It names its blobs by writer, and begins another one from so many bytes on.
// isOld reports whether each blob of a slot is to define all of its series.
func NewAppender(h *Head, writer string, blobBytes int, isOld func(slot int64) bool) *Appender {
	a := &Appender{h: h, writer: writer, isOld: isOld}
	a.builders.New = func() any { return &streamBuilder{writer: writer, full: blobBytes} }
	return a
}

// Begin begins a commit.
func (a *Appender) Begin() { a.gens, a.streams = a.gens[:0], a.streams[:0] }

// Stage adds samples to the blobs of their streams, but for those that repeat the one before; it returns how many these are.
func (a *Appender) Stage(samples []Sample, exemplars []EncodedExemplar) (repeats int) {
	life := &a.h.life
	life.RLock()
	defer life.RUnlock()
	a.touch(samples)
	period := a.h.period
	from, to, slot := int64(math.MaxInt64), int64(math.MinInt64), int64(0)
	for i := range samples {
		e := &samples[i]
		if e.T <= from || e.T > to {
			slot = period.SlotOf(e.T)
			from, to = period.SlotStart(slot), period.SlotEnd(slot)
		}
		s := e.Series
		if s.dead {
			s = a.revive(s)
			e.Series = s
		}
		st := s.cur.Load()
		if st == nil || st.gen.builder == nil || st.gen.slot.slot != slot {
			st = a.headChunkFor(s, slot)
		}
		if e.Hist == nil && st.repeats(e.T, e.ST, e.V) {
			repeats++
			continue
		}
		st.gen.builder.add(st, e)
	}
	for i := range exemplars {
		e := &exemplars[i]
		if e.Series.dead {
			e.Series = a.revive(e.Series)
		}
		st := a.headChunkFor(e.Series, period.SlotOf(e.T))
		if !st.exemplars().repeats(e.T, e.Data) {
			st.gen.builder.addExemplar(st, e)
		}
	}
	return repeats
}

// revive brings back a series that the head has let go of. The caller holds life for reading, which is given up meanwhile.
func (a *Appender) revive(s *Series) *Series {
	a.h.life.RUnlock()
	defer a.h.life.RLock()
	return a.h.reinsert(s)
}

// touch reads what Stage is about to read of every series, in loops so short that the processor waits for
// many cache lines at a time instead of one after the other. The caller holds life: another goroutine may revive a series meanwhile.
func (a *Appender) touch(samples []Sample) {
	for i := range samples {
		if st := samples[i].Series.cur.Load(); st != nil {
			a.touched = append(a.touched, st)
		}
	}
	for _, st := range a.touched {
		a.sink += st.ref
	}
	clear(a.touched)
	a.touched = a.touched[:0]
}

// headChunkFor finds or makes the series' head chunk in the open generation of the slot, and makes it current.
func (a *Appender) headChunkFor(s *Series, slot int64) *Chunk {
	p := &a.h.parts[s.part]
	p.mu.Lock()
	defer p.mu.Unlock()
	partition := a.h.PartitionOf(s, slot)
	c := p.slotPartition(slot, partition)
	if c.open == nil {
		c.open = &Generation{slot: c, start: a.h.period.SlotStart(slot), epoch: c.seq + 1}
	}
	g := c.open
	if g.builder == nil {
		g.builder = a.builders.Get().(*streamBuilder)
		g.builder.reset(g, a.isOld(slot))
		a.gens = append(a.gens, g)
	}
	st, isNew := g.headChunkOf(s)
	if isNew {
		a.h.grew(st, chunkBytes)
	}
	s.cur.Store(st)
	return st
}

// Batches ends the blobs and appends their writes.
func (a *Appender) Batches(dst []engine.Batch) []engine.Batch {
	for _, g := range a.gens {
		dst = g.builder.batches(dst, g.slot)
		if len(g.builder.blobs) > 0 {
			a.streams = append(a.streams, g)
		}
	}
	return dst
}

// Streams returns the generations whose streams the commit goes on with. They are good until it ends.
func (a *Appender) Streams() []*Generation { return a.streams }

// Publish makes durable samples visible to queries, and returns how many bytes were staged.
func (a *Appender) Publish(now time.Time) (staged int) {
	h := a.h
	for _, g := range a.gens {
		b := g.builder
		p := h.part(g.slot.partition)
		for _, it := range b.items {
			if tail := it.chunk.tail(); len(tail) > 0 {
				a.sink += uint32(tail[len(tail)-1]) // see touch
			}
		}
		p.mu.Lock()
		for _, it := range b.items {
			var grew int
			if it.entry.Hist != nil {
				grew = it.chunk.appendHistogram(it.entry.T, it.entry.Hist)
			} else {
				grew = it.chunk.appendFloat(it.entry.T, it.entry.ST, it.entry.V)
			}
			h.grew(it.chunk, grew)
		}
		for _, it := range b.exemplars {
			h.grew(it.chunk, it.chunk.appendExemplar(it.entry.T, it.entry.Data))
		}
		if g.rows.isEmpty() {
			g.since = now
		}
		for i := range b.blobs {
			g.rows.add(format.StageRow{Writer: a.writer, Seq: b.firstSeq + int64(i)})
		}
		g.touched = now
		p.mu.Unlock()
		staged += b.bytes()
		a.giveBack(g)
	}
	return staged
}

// giveBack ends a generation's part in the commit.
func (a *Appender) giveBack(g *Generation) {
	g.builder.forget()
	a.builders.Put(g.builder)
	g.builder = nil
}

// Fail ends the generations of a commit whose rows may or may not be durable: later blobs must not lean on
// what these defined. A generation that nothing durable belongs to goes at once: its sender tries again,
// and while the engine is away many may fail.
func (a *Appender) Fail() {
	for _, g := range a.gens {
		p := a.h.part(g.slot.partition)
		p.mu.Lock()
		if !g.rows.isEmpty() {
			g.slot.closeGeneration()
		} else {
			g.slot.open = nil
		}
		p.mu.Unlock()
		if g.rows.isEmpty() {
			a.h.drop(g.slot, []*Generation{g})
		}
		a.giveBack(g)
	}
}
