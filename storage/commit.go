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
	"github.com/cassia-db/cassia/storage/membership"
)

const (
	// groupSamples and groupBytes limit the number of samples and the bytes in one commit. A larger batch is committed
	// alone.
	groupSamples = 64 << 10
	groupBytes   = 8 << 20
)

// committer makes batches durable, one commit at a time. Batches that arrive during a commit are written by the next
// one, so that all of them share the cost of one sync.
//
//	batches ─► queue ─► blobs ─► engine.Write ─► (listed) ─► head ─► acknowledged
type committer struct {
	env commitEnv

	mu     sync.Mutex
	wake   sync.Cond
	queue  []*Batch
	queued int64 // bytes in queue
	closed bool
	done   chan struct{}
	// gathering is protected by mu.
	gathering gathering

	// head stages the samples of the current commit.
	head *head.Appender
	rows []engine.Batch
}

// commitEnv holds the dependencies of a committer.
type commitEnv struct {
	head   *head.Head
	period *format.Periods
	// writer is this process's name in the staging log. shared is true if other processes follow its streams.
	writer string
	shared bool
	// gathers makes a commit wait for senders that are likely to send soon.
	gathers bool
	// headBytes and queueBytes are Options.HeadBytes and Options.QueueBytes. blobBytes is the size at which a blob is
	// full.
	headBytes, queueBytes int64
	blobBytes             int
	now                   func() time.Time
	// engineTime returns the time of the clock by which the engine expires rows.
	engineTime func() time.Time
	metrics    *metrics
	// lock is held during a commit and while generations are closed.
	lock *sync.Mutex
	// write makes rows durable.
	write func(context.Context, []engine.Batch) error
	// mayWrite returns an error if this process must not write now. mayAcknowledge returns an error if a commit that
	// started at begun must not be acknowledged, even though it is durable.
	mayWrite       func() error
	mayAcknowledge func(begun time.Time) error
	// isOld reports whether a slot is old. Blobs in an old slot must not depend on earlier blobs. listed is the list of
	// staged slots. It is nil if the engine itself can list staged slots.
	isOld  func(slot int64) bool
	listed *stagedList
}

func (s *Store) commitEnv() commitEnv {
	return commitEnv{
		head: s.head, period: s.period, writer: s.writer, shared: s.opts.Shared,
		gathers: s.opts.Shared && !s.opts.seams.still, headBytes: s.opts.HeadBytes, queueBytes: s.opts.QueueBytes,
		blobBytes: cmp.Or(s.opts.seams.blobBytes, format.BlobFull),
		now:       s.opts.Now, metrics: s.metrics, lock: &s.commitMu, write: s.eng.Write,
		engineTime: s.clock.EngineTime, mayWrite: s.member.MayWrite, mayAcknowledge: s.member.MayAcknowledge,
		isOld: s.isOld, listed: s.listed,
	}
}

func newCommitter(env commitEnv) *committer {
	c := &committer{
		env: env, done: make(chan struct{}), head: head.NewAppender(env.head, env.writer, env.blobBytes, env.isOld),
	}
	c.wake.L = &c.mu
	return c
}

// enqueue queues a batch. It returns an error if the queue or the head is full. The sender can retry later: sealing,
// which doesn't use the queue, frees memory of the head.
func (c *committer) enqueue(b *Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return engine.ErrClosed
	}
	if !b.free {
		switch c.env.head.CheckAdmission(b.tenant, c.env.headBytes) {
		case head.Full:
			return ErrHeadFull
		case head.OverShare:
			return ErrHeadShare
		case head.Admitted:
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

// run commits queued batches. It returns once close was called and the queue is empty.
func (c *committer) run() {
	defer close(c.done)
	for {
		group := c.nextGroup()
		if group == nil {
			return
		}
		begin := time.Now()
		c.env.lock.Lock()
		err := c.commit(group)
		if errors.Is(err, errSlotClosed) {
			err = c.commit(group)
		}
		c.env.lock.Unlock()
		if c.env.gathers {
			c.mu.Lock()
			c.gathering.record(len(group), len(c.queue), time.Since(begin))
			c.mu.Unlock()
		}
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

func (c *committer) nextGroup() (group []*Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 {
		if c.closed {
			return nil
		}
		c.wake.Wait()
	}
	c.waitForRequests()
	samples, bytes, n := 0, int64(0), 0
	for n < len(c.queue) && (n == 0 || samples+len(c.queue[n].entries)+len(c.queue[n].exemplars) <= groupSamples &&
		bytes+c.queue[n].bytes <= groupBytes) {
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

// commit makes a group durable and then visible. The caller must hold the commit lock.
func (c *committer) commit(group []*Batch) error {
	if err := c.env.mayWrite(); err != nil {
		c.env.metrics.commitErrors.Inc()
		return err
	}
	begin := time.Now()
	c.head.Begin()
	for _, b := range group {
		c.env.metrics.repeats.Add(float64(c.head.Stage(b.entries, b.exemplars)))
	}
	c.rows = c.head.Batches(c.rows[:0])
	if c.env.shared {
		c.rows = c.appendStreamPositions(c.rows)
	}
	var listing []listedItem
	if c.env.listed != nil {
		c.rows, listing = c.env.listed.addRows(c.rows, c.head.Streams())
	}
	ctx, cancel := context.WithTimeout(context.Background(), membership.CommitTimeout)
	defer cancel()
	started := c.env.now()
	err := c.env.write(ctx, c.rows)
	if err == nil && c.env.listed != nil {
		c.env.listed.recordListed(listing)
		err = c.listOldSlots(ctx)
	}
	if err == nil {
		err = c.env.mayAcknowledge(started)
	}
	if err != nil {
		c.head.Fail()
		c.env.metrics.commitErrors.Inc()
		return err
	}
	c.env.metrics.stagedBytes.Add(float64(c.head.Publish(c.env.now())))
	c.env.metrics.commitSeconds.Observe(time.Since(begin).Seconds())
	return nil
}

// errSlotClosed means that a slot became old while its samples were being written. The blobs of these samples depend on
// earlier blobs, which isn't allowed in old slots. The commit is retried once. If that also fails, the sender must send
// the samples again.
var errSlotClosed = fmt.Errorf("%w: the slot was closed for sealing during the write; retry", engine.ErrUnavailable)

// listOldSlots ensures that the old slots of the commit are listed. It must be called after the blobs are durable, so
// that it also detects a slot that became old during the write.
func (c *committer) listOldSlots(ctx context.Context) error {
	var old []head.SlotPartition
	for _, g := range c.head.Streams() {
		if !c.env.isOld(g.SlotPartition().Slot) {
			continue
		}
		if g.DependsOnEarlier() {
			return errSlotClosed
		}
		old = append(old, g.SlotPartition())
	}
	return c.env.listed.ensureListed(ctx, old)
}

// appendStreamPositions appends the stream positions of this commit to rows. Other processes read them to find the
// commit's blobs.
func (c *committer) appendStreamPositions(rows []engine.Batch) []engine.Batch {
	const piece = 2000
	expires := c.env.engineTime().Add(membership.TailTTL).Unix()
	for gens := range slices.Chunk(c.head.Streams(), piece) {
		b := engine.Batch{Table: engine.Tails, Partition: engine.Key{engine.Text(c.env.writer)}, Expires: expires}
		for _, g := range gens {
			at, seq := g.SlotPartition(), g.LastSeq()
			b.Mutations = append(b.Mutations, engine.Mutation{
				Clustering: engine.Key{engine.Int(at.Slot), engine.Int(int64(at.Partition))},
				Timestamp:  seq, Value: binary.AppendVarint(nil, seq),
			})
		}
		rows = append(rows, b)
	}
	return rows
}
