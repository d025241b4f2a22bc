package storage

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
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

	// head is what the commit under way is added to.
	head  *head.Appender
	rows  []engine.Batch
	spans []timeSpan
}

func newCommitter(s *Store) *committer {
	c := &committer{
		s: s, done: make(chan struct{}),
		head: head.NewAppender(s.head, s.writer, cmp.Or(s.opts.seams.blobBytes, format.BlobFull), s.old),
	}
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
		switch c.s.head.Admits(b.tenant, c.s.opts.HeadBytes) {
		case head.Full:
			return ErrHeadFull
		case head.OverShare:
			return ErrHeadShare
		case head.Admitted:
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
	c.head.Begin()
	for _, b := range group {
		c.s.metrics.repeats.Add(float64(c.head.Stage(b.entries, b.exemplars)))
	}
	c.rows = c.head.Batches(c.rows[:0])
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
		c.head.Fail()
		c.s.metrics.commitErrors.Inc()
		return err
	}
	c.s.metrics.stagedBytes.Add(float64(c.head.Publish(c.s.opts.Now())))
	c.s.metrics.commitSeconds.Observe(time.Since(begin).Seconds())
	return nil
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
	for _, g := range c.head.Streams() {
		at := g.At()
		lowest, _, err := c.s.lowestMarks(ctx, at.Partition)
		if err != nil {
			return err
		}
		if at.Slot >= lowest {
			c.spans = append(c.spans, timeSpan{c.s.period.SlotStart(at.Slot) + 1, c.s.period.SlotEnd(at.Slot)})
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
		g       *head.Generation
		minHour int64
	}
	var old []oldStream
	for _, g := range c.head.Streams() {
		at := g.At()
		slot, hour, err := c.s.lowestMarks(ctx, at.Partition)
		if err != nil {
			return err
		}
		if now()-c.s.period.SlotEnd(at.Slot) <= format.DayMS && at.Slot >= slot {
			continue
		}
		if g.DependsOnEarlier() {
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
			rows = append(rows, o.g.Pending(at))
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
	for gens := range slices.Chunk(c.head.Streams(), piece) {
		b := engine.Batch{Table: engine.Tails, Partition: engine.Key{engine.Text(c.s.writer)}}
		for _, g := range gens {
			at, seq := g.At(), g.LastSeq()
			b.Mutations = append(b.Mutations, engine.Mutation{
				Clustering: engine.Key{engine.Int(at.Slot), engine.Int(int64(at.Partition))},
				Timestamp:  seq, Expires: expires, Value: binary.AppendVarint(nil, seq),
			})
		}
		rows = append(rows, b)
	}
	return rows
}
