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
	"github.com/cassia-db/cassia/storage/membership"
)

const (
	// groupSamples and groupBytes bound what one commit takes from the queue.
	groupSamples = 64 << 10
	groupBytes   = 8 << 20
)

// committer makes batches durable, one commit after the other. What arrives while one is under way goes
// in the next, so that the cost of a sync is shared by all who wait for it.
//
//	batches ─► queue ─► blobs ─► engine.Write ─► (pending rows) ─► head ─► acknowledged
type committer struct {
	env commitEnv

	mu     sync.Mutex
	wake   sync.Cond
	queue  []*Batch
	queued int64 // bytes in queue
	closed bool
	done   chan struct{}

	// gens are the generations that the commit under way adds to.
	gens  []*generation
	rows  []engine.Batch
	spans []membership.TimeSpan
	// touched and sink serve touch.
	touched []*headChunk
	sink    uint32
}

// commitEnv is what a committer needs of its store.
type commitEnv struct {
	head   *head
	period *format.Periods
	// writer is this process' name in the stage; shared says that others follow its streams.
	writer string
	shared bool
	// headBytes and queueBytes are limits; see Options.
	headBytes, queueBytes int64
	now                   func() time.Time
	metrics               *metrics
	builders              *sync.Pool
	// lock is held by a commit, and by whoever closes generations.
	lock *sync.Mutex
	// write makes rows durable.
	write func(context.Context, []engine.Batch) error
	// mayWrite says why nothing should be written, and mayAcknowledge why what was begun then, and is durable, mustn't be acknowledged.
	mayWrite       func() error
	mayAcknowledge func(begun time.Time) error
	// lowestMarks are those of a partition: the oldest slot, and hour of arrival, that is looked at. isOld says whether blobs of a slot
	// must stand alone, and arrival is the hour in which pending rows are looked for.
	lowestMarks func(ctx context.Context, partition int) (slot, hour int64, err error)
	isOld       func(slot int64, partition int) bool
	arrival     func() int64
	// keepSpans makes sure that the next process looks for what is staged in these times.
	keepSpans func(context.Context, []membership.TimeSpan) error
}

func (s *Store) commitEnv() commitEnv {
	return commitEnv{
		head: s.head, period: s.period, writer: s.writer, shared: s.opts.Shared, headBytes: s.opts.HeadBytes, queueBytes: s.opts.QueueBytes,
		now: s.opts.Now, metrics: s.metrics, builders: &s.builders, lock: &s.commitMu, write: s.eng.Write,
		mayWrite: s.member.MayWrite, mayAcknowledge: s.member.MayAcknowledge, lowestMarks: s.lowestMarks, isOld: s.old, keepSpans: s.clock.KeepSpans,
		arrival: func() int64 { // Not where a clock that isn't believed leads: once it is right, nobody looks there.
			earlier, _ := s.clock.Times()
			return format.FloorDiv(earlier.UnixMilli(), format.HourMS)
		},
	}
}

func newCommitter(env commitEnv) *committer {
	c := &committer{env: env, done: make(chan struct{})}
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
		if err := c.env.head.refusesSamples(b.tenant, c.env.headBytes); err != nil {
			return err
		}
	}
	if c.queued > 0 && c.queued+b.bytes > c.env.queueBytes {
		return ErrOverloaded
	}
	c.queue = append(c.queue, b)
	c.queued += b.bytes
	c.env.metrics.queueBytes.Set(float64(c.queued))
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
		c.env.lock.Lock()
		err := c.commit(group)
		if errors.Is(err, errGrewOld) {
			err = c.commit(group)
		}
		c.env.lock.Unlock()
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
	c.env.metrics.queueBytes.Set(float64(c.queued))
	return group
}

// commit makes a group durable and then visible. The caller holds the commit lock.
func (c *committer) commit(group []*Batch) error {
	if err := c.env.mayWrite(); err != nil {
		c.env.metrics.commitErrors.Inc()
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
	if c.env.shared {
		c.rows = c.streamPositions(c.rows)
	}
	ctx, cancel := context.WithTimeout(context.Background(), membership.CommitTimeout)
	defer cancel()
	started := c.env.now()
	err := c.keepSlots(ctx)
	if err == nil {
		err = c.env.write(ctx, c.rows)
	}
	if err == nil {
		err = c.writePending(ctx)
	}
	if err == nil {
		err = c.env.mayAcknowledge(started)
	}
	if err != nil {
		c.fail()
		c.env.metrics.commitErrors.Inc()
		return err
	}
	c.publish()
	c.env.metrics.commitSeconds.Observe(time.Since(begin).Seconds())
	return nil
}

// stage adds a batch's samples to the blobs of their streams.
func (c *committer) stage(b *Batch) {
	c.touch(b)
	life := &c.env.head.life
	life.RLock()
	defer life.RUnlock()
	period := c.env.period
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
			s = c.env.head.reinsert(s)
			life.RLock()
			e.series = s
		}
		st := s.cur
		if st == nil || st.gen.builder == nil || st.gen.slot.slot != slot {
			st = c.headChunkFor(s, slot)
		}
		if e.hist == nil && st.repeats(e.t, e.st, e.v) {
			c.env.metrics.repeats.Inc()
			continue
		}
		st.gen.builder.add(st, e)
	}
	for i := range b.exemplars {
		e := &b.exemplars[i]
		if e.series.dead {
			life.RUnlock()
			s := c.env.head.reinsert(e.series)
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
	p := &c.env.head.parts[s.part]
	p.mu.Lock()
	defer p.mu.Unlock()
	partition := c.env.period.PartitionOf(slot, s.sum, int(s.part))
	cell := p.slotPartition(slot, partition)
	if cell.open == nil {
		cell.open = &generation{slot: cell, start: c.env.period.SlotStart(slot), epoch: cell.seq + 1}
	}
	g := cell.open
	if g.builder == nil {
		g.builder = c.env.builders.Get().(*streamBuilder)
		g.builder.reset(g, c.env.isOld(slot, partition))
		c.gens = append(c.gens, g)
	}
	st, isNew := g.headChunkOf(s)
	if isNew {
		c.env.head.grew(st, headChunkBytes)
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
	if c.env.shared {
		return nil
	}
	c.spans = c.spans[:0]
	for _, g := range c.gens {
		if len(g.builder.blobs) == 0 {
			continue
		}
		lowest, _, err := c.env.lowestMarks(ctx, g.slot.partition)
		if err != nil {
			return err
		}
		if g.slot.slot >= lowest {
			c.spans = append(c.spans, membership.TimeSpan{From: c.env.period.SlotStart(g.slot.slot) + 1, To: c.env.period.SlotEnd(g.slot.slot)})
		}
	}
	return c.env.keepSpans(ctx, c.spans)
}

// writePending writes pending rows for the blobs whose slots ended more than a day ago, or lie below the mark,
// where a clock that was set back may lead. The blobs are durable by now: a sealer may delete a pending row
// that has no blob. The clock is read again until the rows lie in an hour that isn't long over, where
// sealers still look.
func (c *committer) writePending(ctx context.Context) error {
	type oldStream struct {
		g       *generation
		minHour int64
	}
	var old []oldStream
	for _, g := range c.gens {
		if len(g.builder.blobs) == 0 {
			continue
		}
		slot, hour, err := c.env.lowestMarks(ctx, g.slot.partition)
		if err != nil {
			return err
		}
		if c.env.now().UnixMilli()-c.env.period.SlotEnd(g.slot.slot) <= format.DayMS && g.slot.slot >= slot {
			continue
		}
		if g.builder.dependsOnEarlier() {
			return errGrewOld
		}
		old = append(old, oldStream{g, hour})
	}
	for len(old) > 0 {
		hour := c.env.arrival()
		rows := make([]engine.Batch, 0, len(old))
		c.spans = c.spans[:0]
		for _, o := range old {
			at := max(hour, o.minHour)
			rows = append(rows, o.g.builder.pending(o.g.slot, at))
			c.spans = append(c.spans, membership.TimeSpan{From: at * format.HourMS, To: (at + 1) * format.HourMS})
		}
		if err := c.env.keepSpans(ctx, c.spans); err != nil {
			return err
		}
		if err := c.env.write(ctx, rows); err != nil {
			return err
		}
		if c.env.arrival() <= hour+1 {
			return nil
		}
	}
	return nil
}

// streamPositions appends the rows that tell other processes how far the streams of this commit go.
func (c *committer) streamPositions(rows []engine.Batch) []engine.Batch {
	const piece = 2000
	expires := c.env.now().Add(membership.TailLife).Unix()
	for gens := range slices.Chunk(c.gens, piece) {
		b := engine.Batch{Table: engine.Tails, Partition: engine.Key{engine.Text(c.env.writer)}}
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
	h, now := c.env.head, c.env.now()
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
			g.rows.add(format.StageRow{Writer: c.env.writer, Seq: b.firstSeq + int64(i)})
		}
		g.touched = now
		p.mu.Unlock()
		c.env.metrics.stagedBytes.Add(float64(b.bytes()))
		g.builder = nil
		b.forget()
		c.env.builders.Put(b)
	}
}

// fail ends the generations of a commit whose rows may or may not be durable: later blobs must not lean on
// what these defined. A generation that nothing durable belongs to goes at once: its sender tries again,
// and while the engine is away many may fail.
func (c *committer) fail() {
	for _, g := range c.gens {
		p := c.env.head.part(g.slot.partition)
		p.mu.Lock()
		if !g.rows.isEmpty() {
			g.slot.closeGeneration()
		} else {
			g.slot.open = nil
		}
		p.mu.Unlock()
		if g.rows.isEmpty() {
			c.env.head.drop(g.slot, []*generation{g})
		}
		g.builder.forget()
		c.env.builders.Put(g.builder)
		g.builder = nil
	}
}
