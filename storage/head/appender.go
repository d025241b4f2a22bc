package head

import (
	"math"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// Appender adds the samples of commits to the head, one commit at a time:
//
//	Begin ─► Stage ─► Batches ─┬─► durable ─► Publish: visible to queries
//	         of each batch     └─► failed, or in doubt ─► Fail
//
// The commit lock must be held from Begin to Publish or Fail.
type Appender struct {
	h      *Head
	writer string
	isOld  func(slot int64) bool
	// builders are unused stream builders.
	builders sync.Pool

	// gens are the generations that the current commit adds to. streams are the generations among gens that have blobs.
	gens, streams []*Generation
	// touched and sink are used by prefetchSeries.
	touched []*Chunk
	sink    uint32
}

// NewAppender returns the only appender of a head. Its blobs carry the name writer, and a blob that has reached
// blobBytes gets no further samples. If isOld reports true for a slot, each blob of the slot defines all series of its
// samples.
func NewAppender(h *Head, writer string, blobBytes int, isOld func(slot int64) bool) *Appender {
	a := &Appender{h: h, writer: writer, isOld: isOld}
	a.builders.New = func() any { return &streamBuilder{writer: writer, full: blobBytes} }
	return a
}

// Begin begins a commit.
func (a *Appender) Begin() { a.gens, a.streams = a.gens[:0], a.streams[:0] }

// Stage adds samples to the blobs of their streams. A sample that equals the previous sample of its series is skipped.
// repeats is the number of skipped samples.
func (a *Appender) Stage(samples []Sample, exemplars []EncodedExemplar) (repeats int) {
	life := &a.h.life
	life.RLock()
	defer life.RUnlock()
	a.prefetchSeries(samples)
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
			s = a.reinsertReleased(s)
			e.Series = s
		}
		st := s.cur.Load()
		if st == nil || st.gen.builder == nil || st.gen.slot.slot != slot {
			st = a.headChunkFor(s, slot)
		}
		if e.Hist == nil && st.isRepeat(e.T, e.ST, e.V) {
			repeats++
			continue
		}
		st.gen.builder.add(st, e)
	}
	for i := range exemplars {
		e := &exemplars[i]
		if e.Series.dead {
			e.Series = a.reinsertReleased(e.Series)
		}
		st := a.headChunkFor(e.Series, period.SlotOf(e.T))
		if !st.exemplars().isRepeat(e.T, e.Data) {
			st.gen.builder.addExemplar(st, e)
		}
	}
	return repeats
}

// reinsertReleased returns a released series to the head. life must be held for reading; it is unlocked temporarily.
func (a *Appender) reinsertReleased(s *Series) *Series {
	a.h.life.RUnlock()
	defer a.h.life.RLock()
	return a.h.reinsertSeries(s)
}

// prefetchSeries reads, for every series, the memory that Stage will read. Its loops are short, so that the processor
// loads many cache lines concurrently. life must be held; another goroutine may revive a series concurrently.
func (a *Appender) prefetchSeries(samples []Sample) {
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

// headChunkFor finds or creates the series' head chunk in the slot's open generation. The head chunk becomes
// Series.cur.
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
		a.h.addChunkBytes(st, chunkBytes)
	}
	s.cur.Store(st)
	return st
}

// Batches completes the blobs and appends their writes.
func (a *Appender) Batches(dst []engine.Batch) []engine.Batch {
	for _, g := range a.gens {
		dst = g.builder.batches(dst, g.slot)
		if len(g.builder.blobs) > 0 {
			a.streams = append(a.streams, g)
		}
	}
	return dst
}

// Streams returns the generations whose streams this commit extends. They are valid until the commit ends.
func (a *Appender) Streams() []*Generation { return a.streams }

// Publish makes durable samples visible to queries. It returns the size of the blobs in bytes.
func (a *Appender) Publish(now time.Time) (staged int) {
	h := a.h
	for _, g := range a.gens {
		b := g.builder
		p := h.partition(g.slot.partition)
		for _, it := range b.items {
			if tail := it.chunk.tail(); len(tail) > 0 {
				a.sink += uint32(tail[len(tail)-1]) // see prefetchSeries
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
			h.addChunkBytes(it.chunk, grew)
		}
		for _, it := range b.exemplars {
			h.addChunkBytes(it.chunk, it.chunk.appendExemplar(it.entry.T, it.entry.Data))
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
		a.releaseGeneration(g)
	}
	return staged
}

// releaseGeneration takes the stream builder from a generation at the end of a commit and returns it to the pool.
func (a *Appender) releaseGeneration(g *Generation) {
	g.builder.releaseChunks()
	a.builders.Put(g.builder)
	g.builder = nil
}

// Fail closes the generations of a commit whose rows may or may not be durable, because later blobs must not depend on
// definitions in these rows. A generation without durable rows is released immediately: its sender retries, and many
// commits may fail while the engine is unavailable.
func (a *Appender) Fail() {
	for _, g := range a.gens {
		p := a.h.partition(g.slot.partition)
		p.mu.Lock()
		p.failed[g.SlotPartition()] = false
		if !g.rows.isEmpty() {
			g.slot.closeGeneration()
		} else {
			g.slot.open = nil
		}
		p.mu.Unlock()
		if g.rows.isEmpty() {
			a.h.dropGenerations(g.slot, []*Generation{g})
		}
		a.releaseGeneration(g)
	}
}
