package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/panics"
)

const (
	// followInterval is how often a follower looks for itself, so that a query finds little to read.
	followInterval = time.Second
	// followWorkers is how many streams are read at once.
	followWorkers = 16
	// gapLife is how long a missing number of a stream is looked for. A commit that takes longer than
	// membership.CommitTimeout isn't acknowledged, so rows that are missing longer are sealed, or never were.
	gapLife = 2 * membership.CommitTimeout
	// gapInterval is how often gaps are looked for where nobody waits. All that a process leaves behind which has ended, and that was sealed,
	// is a gap to the next one.
	gapInterval = 10 * time.Second
)

// follower brings what other processes stage into the head, so that queries see it.
//
//	processes ─► writers ─► tails: slot, partition, last seq ─► stage rows after those seen ─► head
//
// The rows of a commit become visible in any order, and its tails may come before all of them. So a number
// that is skipped is looked for again, for as long as its commit may still be acknowledged.
type follower struct {
	s    *Store
	mode followMode

	mu   sync.Mutex
	next *pendingPass // that the next pass will end
	wake chan struct{}

	parts []followedPartition
	// writers are who was in table processes in the last pass.
	writers []string
	// begun is when the last whole pass began, or the rebuild before it, under mu.
	begun time.Time
}

// followMode is what a follower does when the head is rebuilt.
type followMode uint8

const (
	followsNobody  followMode = iota // the process is alone: nobody else stages
	followsOthers                    // it reads what they stage
	followsNothing                   // others answer queries: neither is the head rebuilt
)

type followedPartition struct {
	mu    sync.Mutex
	slots map[int64]*followedSlot // by slot
}

// followedSlot is the follower's state of the streams of a slot and partition. One goroutine at a time reads it.
type followedSlot struct {
	mu      sync.Mutex
	decoder *head.Decoder
	streams map[string]*followedStream
	orphans int
	touched time.Time // when a stream was last found to go on
}

// followedStream is a stream, how far it was read, and which of its rows were sealed when they were asked for.
type followedStream struct {
	head.Stream
	place     place
	workedOff workedOff
	asked     bool
	looked    time.Time // for gaps
}

// place is how far a stream was read: all numbers below next, but for gaps.
type place struct {
	next int64
	gaps []gap
}

// gap is a range of numbers that were not there when later ones were.
type gap struct {
	from, to int64
	since    time.Time
}

// pendingPass is what callers of catchUp wait for.
type pendingPass struct {
	done chan struct{}
	err  error
}

func newFollower(s *Store) *follower {
	mode := followsNobody
	switch {
	case s.opts.Shared && s.opts.Follow:
		mode = followsOthers
	case s.opts.Shared:
		mode = followsNothing
	}
	return &follower{s: s, mode: mode, wake: make(chan struct{}, 1), parts: make([]followedPartition, format.MaxPartitions)}
}

// catchUp returns once all that other processes had acknowledged when it was called is in the head. Callers
// that come while a pass is under way share the next one. It returns ErrNoQueries where nothing is followed.
func (f *follower) catchUp(ctx context.Context) error {
	switch f.mode {
	case followsNobody:
		return nil
	case followsNothing:
		return ErrNoQueries
	case followsOthers:
	}
	f.mu.Lock()
	t := f.next
	if t == nil {
		t = &pendingPass{done: make(chan struct{})}
		f.next = t
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	f.mu.Unlock()
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start begins to follow, until ctx ends, when the head is rebuilt.
func (f *follower) start(ctx context.Context) {
	if f.mode == followsOthers {
		f.s.running.Go(func() { panics.Repeat(ctx, "following", func() { f.run(ctx) }) })
	}
}

// run makes passes until ctx ends.
func (f *follower) run(ctx context.Context) {
	var tick <-chan time.Time
	if !f.s.opts.seams.still {
		ticker := time.NewTicker(followInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-tick:
		}
		f.mu.Lock()
		t := f.next
		f.next = nil
		f.mu.Unlock()
		err := ctx.Err()
		if err == nil {
			err = panics.Do("following", func() error { return f.pass(ctx, t != nil) })
		}
		if t != nil {
			t.err = err
			close(t.done)
		}
		if ctx.Err() != nil {
			f.refuse()
			return
		}
	}
}

// refuse ends whoever still waits.
func (f *follower) refuse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	closed := &pendingPass{done: make(chan struct{}), err: engine.ErrClosed}
	if f.next != nil {
		f.next.err = engine.ErrClosed
		close(f.next.done)
	}
	close(closed.done)
	f.next = closed
}

// pass reads new stage rows. awaited is true if somebody waits for all that was acknowledged: else gaps are looked for only now and then.
func (f *follower) pass(ctx context.Context, awaited bool) error {
	begun := f.s.opts.Now()
	slept := f.slept()
	if slept > deleteRests/2 {
		// The head may have samples that were sealed, deleted and cleaned meanwhile.
		for p := range f.s.period.Partitions() {
			if err := f.s.Forget(ctx, p); err != nil {
				return err
			}
		}
	}
	if slept > membership.TailLife/2 {
		if err := f.wholeStage(ctx); err != nil {
			return err
		}
	}
	if err := f.listWriters(ctx); err != nil {
		return err
	}
	tails, err := f.readTails(ctx)
	if err != nil {
		return err
	}
	if err := f.follow(ctx, tails, awaited, begun); err != nil {
		return err
	}
	if took := membership.Elapsed(begun, f.s.opts.Now()); took > membership.TailLife/2 { // Tails may have expired before they were read.
		return fmt.Errorf("%w: reading the writes of other processes took too long, %v; try again", engine.ErrUnavailable, took.Round(time.Second))
	}
	f.begin(begun)
	return nil
}

// begin notes when a whole pass, or the rebuild, began.
func (f *follower) begin(at time.Time) {
	f.mu.Lock()
	f.begun = at
	f.mu.Unlock()
}

// slept is how long nothing was followed.
func (f *follower) slept() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return membership.Elapsed(f.begun, f.s.opts.Now())
}

// wholeStage reads every slot that may wait anew; streams that are known are read on from where they were.
func (f *follower) wholeStage(ctx context.Context) error {
	for p := range f.s.period.Partitions() {
		if err := f.s.rebuildPartition(ctx, p, readOnce); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) listWriters(ctx context.Context) (err error) {
	f.writers, err = f.s.member.AppendWriters(ctx, f.writers[:0])
	return err
}

func (f *follower) slot(slot int64, partition int) *followedSlot {
	p := &f.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.slots[slot]
	if c == nil {
		c = &followedSlot{streams: map[string]*followedStream{}, decoder: head.NewDecoder(f.s.head, head.SlotPartition{Slot: slot, Partition: partition}, f.s.learn)}
		if p.slots == nil {
			p.slots = map[int64]*followedSlot{}
		}
		p.slots[slot] = c
	}
	return c
}

func (c *followedSlot) stream(writer string) *followedStream {
	st := c.streams[writer]
	if st == nil {
		st = &followedStream{}
		c.streams[writer] = st
	}
	return st
}

// whole reads all of a slot's stage.
func (f *follower) whole(ctx context.Context, w Work) error {
	begun := f.s.opts.Now()
	c := f.slot(w.Slot, w.Partition)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.streams {
		st.asked = false // It is asked anew, where there is anything.
	}
	missed := false
	for row, err := range f.s.eng.Scan(ctx, f.s.stageRange(w, func() { missed = true })) {
		if err != nil {
			return fmt.Errorf("storage: reading the staging log of slot %d, partition %d: %w", w.Slot, w.Partition, err)
		}
		r := format.StageRowOf(row)
		if r.Writer == f.s.writer {
			continue
		}
		st := c.stream(r.Writer)
		if missed {
			st.Damage()
			missed = false
		}
		if err := f.take(ctx, c, st, r, row.Value, begun, f.mode == followsNobody); err != nil {
			return err
		}
		st.Prune()
	}
	f.s.noteOrphans(c.orphans, w.Slot, w.Partition)
	c.orphans = 0
	c.decoder.Release()
	if f.mode == followsNobody {
		f.end(w) // Nobody else writes: nothing comes after.
	}
	return nil
}

// end forgets the streams of a slot, which take more memory than their samples in the head.
func (f *follower) end(w Work) {
	p := &f.parts[w.Partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.slots, w.Slot)
}

// take adds a row to the head unless it is there. A blob that leans on what can't be found stays a gap, for
// its commit may be under way; alone is true if nobody else commits, so that it never was acknowledged.
func (f *follower) take(ctx context.Context, c *followedSlot, st *followedStream, r format.StageRow, value []byte, now time.Time, alone bool) error {
	if !st.place.wants(r.Seq) {
		return nil
	}
	if back, err := f.cameBack(ctx, c, st, r); err != nil {
		return err
	} else if back {
		st.place.took(r.Seq, now)
		return nil
	}
	d := c.decoder
	err := d.Decode(ctx, &st.Stream, r, value, func() bool { return !alone })
	if errors.Is(err, head.ErrUndefined) {
		st.place.skip(r.Seq+1, now)
		return nil
	}
	if err == nil {
		explained := d.Orphans() == 0 || !st.Damaged()
		f.s.head.Publish(d, r, explained, f.s.opts.Shared, f.s.opts.Now())
		if !explained {
			err = head.ErrLeansOnCorrupt
		}
	}
	if err != nil {
		if !isUnreadable(err) {
			return err
		}
		st.Damage()
		f.s.damage.NoteStaged(damage.StagedAt{Slot: d.At().Slot, Partition: d.At().Partition, Row: r}, err)
		st.place.took(r.Seq, now)
		return nil
	}
	c.orphans += d.Orphans()
	st.place.took(r.Seq, now)
	return nil
}

// forget lets go of what the streams of slots define that the head has nothing of: they are sealed. How far
// they were read stays known until their tails are gone, or they would be read again and again.
func (f *follower) forget(partition int) {
	if f.mode == followsNobody {
		return
	}
	has := map[int64]bool{}
	for _, slot := range f.s.head.Slots(partition) {
		has[slot] = true
	}
	now := f.s.opts.Now()
	p := &f.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.slots, func(slot int64, c *followedSlot) bool {
		if has[slot] || !c.mu.TryLock() {
			return false
		}
		defer c.mu.Unlock()
		for _, st := range c.streams {
			st.Forget()
		}
		return now.Sub(c.touched) > 2*membership.TailLife
	})
}

// wants reports whether a number wasn't seen yet.
func (p *place) wants(seq int64) bool {
	return seq >= p.next || slices.ContainsFunc(p.gaps, func(g gap) bool { return seq >= g.from && seq <= g.to })
}

// took notes that a number was seen.
func (p *place) took(seq int64, now time.Time) {
	if seq >= p.next {
		p.skip(seq, now)
		p.next = seq + 1
		return
	}
	for i, g := range p.gaps {
		if seq < g.from || seq > g.to {
			continue
		}
		var rest []gap
		if g.from < seq {
			rest = append(rest, gap{g.from, seq - 1, g.since})
		}
		if seq < g.to {
			rest = append(rest, gap{seq + 1, g.to, g.since})
		}
		p.gaps = slices.Replace(p.gaps, i, i+1, rest...)
		return
	}
}

// skip makes a gap of the numbers from next to before to.
func (p *place) skip(to int64, now time.Time) {
	if to > p.next {
		p.gaps = append(p.gaps, gap{p.next, to - 1, now})
		p.next = to
	}
}
