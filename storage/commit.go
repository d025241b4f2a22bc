package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

const (
	// groupSamples and groupBytes bound what one commit takes from the queue.
	groupSamples = 64 << 10
	groupBytes   = 8 << 20
	// commitTimeout bounds how long a commit tries. It is generous: whoever waits has a deadline of its own.
	commitTimeout = 30 * time.Second
)

// committer makes batches durable, one commit after the other. What arrives while one is under way goes
// in the next, so that the cost of a sync is shared by all who wait for it.
//
//	batches ─► queue ─► blobs ─► engine.Write ─► (pending rows) ─► head ─► acknowledged
type committer struct {
	s *Store

	mu     sync.Mutex
	wake   sync.Cond
	queue  []*Batch
	queued int64 // bytes in queue
	closed bool
	done   chan struct{}

	// gens are the generations that the commit under way adds to.
	gens  []*generation
	rows  []engine.Batch
	spans []timeSpan
	// touched and sink serve touch.
	touched []*headChunk
	sink    uint32
}

func newCommitter(s *Store) *committer {
	c := &committer{s: s, done: make(chan struct{})}
	c.wake.L = &c.mu
	return c
}

// enqueue hands over a batch. It fails where the queue is full, or the head. Sealing, which makes room there, needs no batch.
func (c *committer) enqueue(b *Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return engine.ErrClosed
	}
	if !b.free {
		if err := c.s.head.refusesSamples(b.tenant, c.s.opts.HeadBytes); err != nil {
			return err
		}
	}
	if c.queued > 0 && c.queued+b.bytes > c.s.opts.QueueBytes {
		return ErrOverloaded
	}
	c.queue = append(c.queue, b)
	c.queued += b.bytes
	c.s.metrics.queueBytes.Set(float64(c.queued))
	c.wake.Signal()
	return nil
}

// run commits until close was called and nothing waits any more.
func (c *committer) run() {
	defer close(c.done)
	for {
		group := c.take()
		if group == nil {
			return
		}
		c.s.commitMu.Lock()
		err := c.commit(group)
		if errors.Is(err, errGrewOld) {
			err = c.commit(group)
		}
		c.s.commitMu.Unlock()
		for _, b := range group {
			b.finish(err)
		}
	}
}

func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.wake.Signal()
	c.mu.Unlock()
	<-c.done
}

func (c *committer) take() (group []*Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 {
		if c.closed {
			return nil
		}
		c.wake.Wait()
	}
	samples, bytes, n := 0, int64(0), 0
	for n < len(c.queue) && (n == 0 || samples+len(c.queue[n].entries)+len(c.queue[n].exemplars) <= groupSamples && bytes+c.queue[n].bytes <= groupBytes) {
		samples += len(c.queue[n].entries) + len(c.queue[n].exemplars)
		bytes += c.queue[n].bytes
		n++
	}
	group = slices.Clone(c.queue[:n])
	c.queue = slices.Delete(c.queue, 0, n)
	c.queued -= bytes
	c.s.metrics.queueBytes.Set(float64(c.queued))
	return group
}

// commit makes a group durable and then visible. The caller holds the commit lock.
func (c *committer) commit(group []*Batch) error {
	if err := c.s.mayWrite(); err != nil {
		c.s.metrics.commitErrors.Inc()
		return err
	}
	begin := time.Now()
	c.gens = c.gens[:0]
	for _, b := range group {
		c.stage(b)
	}
	c.rows = c.rows[:0]
	for _, g := range c.gens {
		c.rows = g.builder.batches(c.rows, g.slot)
	}
	if c.s.opts.Shared {
		c.rows = c.streamPositions(c.rows)
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	started := c.s.opts.Now()
	err := c.keepSlots(ctx)
	if err == nil {
		err = c.s.eng.Write(ctx, c.rows)
	}
	if err == nil {
		err = c.writePending(ctx)
	}
	if err == nil && c.s.opts.Shared {
		err = c.s.mayAcknowledge(started)
	}
	if err != nil {
		c.fail()
		c.s.metrics.commitErrors.Inc()
		return err
	}
	c.publish()
	c.s.metrics.commitSeconds.Observe(time.Since(begin).Seconds())
	return nil
}

// stage adds a batch's samples to the blobs of their streams.
func (c *committer) stage(b *Batch) {
	c.touch(b)
	life := &c.s.head.life
	life.RLock()
	defer life.RUnlock()
	period := c.s.period
	from, to, slot := int64(math.MaxInt64), int64(math.MinInt64), int64(0)
	for i := range b.entries {
		e := &b.entries[i]
		if e.t <= from || e.t > to {
			slot = period.SlotOf(e.t)
			from, to = period.SlotStart(slot), period.SlotEnd(slot)
		}
		s := e.series
		if s.dead {
			life.RUnlock()
			s = c.s.head.reinsert(s)
			life.RLock()
			e.series = s
		}
		st := s.cur
		if st == nil || st.gen.builder == nil || st.gen.slot.slot != slot {
			st = c.headChunkFor(s, slot)
		}
		if e.hist == nil && st.repeats(e.t, e.st, e.v) {
			c.s.metrics.repeats.Inc()
			continue
		}
		st.gen.builder.add(st, e)
	}
	for i := range b.exemplars {
		e := &b.exemplars[i]
		if e.series.dead {
			life.RUnlock()
			s := c.s.head.reinsert(e.series)
			life.RLock()
			e.series = s
		}
		st := c.headChunkFor(e.series, period.SlotOf(e.t))
		if !st.exemplars().repeats(e.t, e.data) {
			st.gen.builder.addExemplar(st, e)
		}
	}
}

// touch reads what stage is about to read of every series, in loops so short that the processor waits for
// many cache lines at a time instead of one after the other.
func (c *committer) touch(b *Batch) {
	for i := range b.entries {
		if st := b.entries[i].series.cur; st != nil {
			c.touched = append(c.touched, st)
		}
	}
	for _, st := range c.touched {
		c.sink += st.ref
	}
	clear(c.touched)
	c.touched = c.touched[:0]
}

// headChunkFor finds or makes the series' head chunk in the open generation of the slot, and makes it current.
func (c *committer) headChunkFor(s *Series, slot int64) *headChunk {
	p := &c.s.head.parts[s.part]
	p.mu.Lock()
	defer p.mu.Unlock()
	partition := c.s.partitionOf(s, slot)
	cell := p.slotPartition(slot, partition)
	if cell.open == nil {
		cell.open = &generation{slot: cell, start: c.s.period.SlotStart(slot), epoch: cell.seq + 1}
	}
	g := cell.open
	if g.builder == nil {
		g.builder = c.s.builders.Get().(*streamBuilder)
		g.builder.reset(g, c.s.old(slot, partition))
		c.gens = append(c.gens, g)
	}
	st, isNew := g.headChunkOf(s)
	if isNew {
		c.s.head.grew(st, headChunkBytes)
	}
	s.cur = st
	return st
}

// errGrewOld says that a slot became old while samples of it were being written, in blobs that an old slot
// must not have. They are written once more.
var errGrewOld = fmt.Errorf("%w: a slot came of age during the write", engine.ErrUnavailable)

// keepSlots makes sure that the next process looks for what is staged, from the low mark on, whether its commit succeeds
// or not: what is found at one start must be found at the next.
func (c *committer) keepSlots(ctx context.Context) error {
	if c.s.opts.Shared {
		return nil
	}
	c.spans = c.spans[:0]
	for _, g := range c.gens {
		if len(g.builder.blobs) == 0 {
			continue
		}
		lowest, _, err := c.s.lowestMarks(ctx, g.slot.partition)
		if err != nil {
			return err
		}
		if g.slot.slot >= lowest {
			c.spans = append(c.spans, timeSpan{c.s.period.SlotStart(g.slot.slot) + 1, c.s.period.SlotEnd(g.slot.slot)})
		}
	}
	return c.s.keepSpans(ctx, c.spans)
}

// writePending writes pending rows for the blobs whose slots ended more than a day ago, or lie below the mark,
// where a clock that was set back may lead. The blobs are durable by now: a sealer may delete a pending row
// that has no blob. The clock is read again until the rows lie in an hour that isn't long over, where
// sealers still look.
func (c *committer) writePending(ctx context.Context) error {
	now := func() int64 { return c.s.opts.Now().UnixMilli() }
	arrival := func() int64 { // Not where a clock that isn't believed leads: once it is right, nobody looks there.
		earlier, _ := c.s.times()
		return format.FloorDiv(earlier.UnixMilli(), format.HourMS)
	}
	type oldStream struct {
		g       *generation
		minHour int64
	}
	var old []oldStream
	for _, g := range c.gens {
		if len(g.builder.blobs) == 0 {
			continue
		}
		slot, hour, err := c.s.lowestMarks(ctx, g.slot.partition)
		if err != nil {
			return err
		}
		if now()-c.s.period.SlotEnd(g.slot.slot) <= format.DayMS && g.slot.slot >= slot {
			continue
		}
		if g.builder.dependsOnEarlier() {
			return errGrewOld
		}
		old = append(old, oldStream{g, hour})
	}
	for len(old) > 0 {
		hour := arrival()
		rows := make([]engine.Batch, 0, len(old))
		c.spans = c.spans[:0]
		for _, o := range old {
			at := max(hour, o.minHour)
			rows = append(rows, o.g.builder.pending(o.g.slot, at))
			c.spans = append(c.spans, timeSpan{at * format.HourMS, (at + 1) * format.HourMS})
		}
		if err := c.s.keepSpans(ctx, c.spans); err != nil {
			return err
		}
		if err := c.s.eng.Write(ctx, rows); err != nil {
			return err
		}
		if arrival() <= hour+1 {
			return nil
		}
	}
	return nil
}

// streamPositions appends the rows that tell other processes how far the streams of this commit go.
func (c *committer) streamPositions(rows []engine.Batch) []engine.Batch {
	const piece = 2000
	expires := c.s.opts.Now().Add(tailLife).Unix()
	for gens := range slices.Chunk(c.gens, piece) {
		b := engine.Batch{Table: engine.Tails, Partition: engine.Key{engine.Text(c.s.writer)}}
		for _, g := range gens {
			if len(g.builder.blobs) == 0 {
				continue
			}
			seq := g.slot.seq
			b.Mutations = append(b.Mutations, engine.Mutation{
				Clustering: engine.Key{engine.Int(g.slot.slot), engine.Int(int64(g.slot.partition))},
				Timestamp:  seq, Expires: expires, Value: binary.AppendVarint(nil, seq),
			})
		}
		if len(b.Mutations) > 0 {
			rows = append(rows, b)
		}
	}
	return rows
}

// publish makes what is durable visible to queries.
func (c *committer) publish() {
	h, now := c.s.head, c.s.opts.Now()
	for _, g := range c.gens {
		b := g.builder
		p := h.part(g.slot.partition)
		for _, it := range b.items {
			if n := len(it.strand.tail); n > 0 {
				c.sink += uint32(it.strand.tail[n-1]) // see touch
			}
		}
		p.mu.Lock()
		for _, it := range b.items {
			var grew int
			if it.entry.hist != nil {
				grew = it.strand.appendHistogram(it.entry.t, it.entry.hist)
			} else {
				grew = it.strand.appendFloat(it.entry.t, it.entry.st, it.entry.v)
			}
			h.grew(it.strand, grew)
		}
		for _, it := range b.exemplars {
			h.grew(it.strand, it.strand.appendExemplar(it.entry.t, it.entry.data))
		}
		for i := range b.blobs {
			g.rows.add(format.StageRow{Writer: c.s.writer, Seq: b.firstSeq + int64(i)})
		}
		g.touched = now
		p.mu.Unlock()
		c.s.metrics.stagedBytes.Add(float64(b.bytes()))
		g.builder = nil
		b.forget()
		c.s.builders.Put(b)
	}
}

// fail ends the generations of a commit whose rows may or may not be durable: later blobs must not lean on
// what these defined. A generation that nothing durable belongs to goes at once: its sender tries again,
// and while the engine is away many may fail.
func (c *committer) fail() {
	for _, g := range c.gens {
		p := c.s.head.part(g.slot.partition)
		p.mu.Lock()
		if !g.rows.isEmpty() {
			g.slot.closeGeneration()
		} else {
			g.slot.open = nil
		}
		p.mu.Unlock()
		if g.rows.isEmpty() {
			c.s.head.drop(g.slot, []*generation{g})
		}
		g.builder.forget()
		c.s.builders.Put(g.builder)
		g.builder = nil
	}
}
