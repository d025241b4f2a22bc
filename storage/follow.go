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
	"github.com/cassia-db/cassia/storage/seqs"
)

const (
	// followInterval is the time between passes while there are no queries. Regular passes reduce the number of rows
	// that the next query has to read.
	followInterval = time.Second
	// followWorkers is the number of streams that are read concurrently.
	followWorkers = 16
	// gapTTL is the time after which missing numbers of a stream are no longer read. A commit that takes longer than
	// membership.CommitTimeout isn't acknowledged. So rows that have been missing for gapTTL were either sealed or
	// never acknowledged.
	gapTTL = 2 * membership.CommitTimeout
	// gapInterval is the time between reads of gaps while no query waits. A follower that has just started has many
	// gaps, which are the sealed rows of processes that have stopped.
	gapInterval = 10 * time.Second
)

// follower adds the staged samples of other processes to the head, so that queries see them.
//
//	processes ─► writers ─► stream positions: slot, partition, last seq ─► newer stage rows ─► head
//
// The rows of a commit become visible in any order, and its stream positions may become visible before some of the
// rows. The follower therefore reads missing numbers again for as long as their commit may still be acknowledged.
type follower struct {
	s    *Store
	mode followMode

	mu   sync.Mutex
	next *pendingPass // completed by the next pass
	wake chan struct{}

	parts []followedPartition
	// writers are the processes that the last pass found.
	writers []string
	// begun is the time at which the last complete pass started. Before the first complete pass, it is the time at
	// which the rebuild started. It is protected by mu. forgot holds, for each partition, the start time of the last
	// successful releaseSealed, or of the process if there was none.
	begun  time.Time
	forgot []time.Time
}

// followMode selects whose samples a follower reads after the head is rebuilt.
type followMode uint8

const (
	followsNobody  followMode = iota // no other process stages samples, because the process is alone
	followsOthers                    // the follower reads the samples that other processes stage
	followsNothing                   // the process answers no queries; the head isn't rebuilt either
)

type followedPartition struct {
	mu    sync.Mutex
	slots map[int64]*followedSlot // by slot
}

// followedSlot is the follower's state of the streams in a slot partition. mu allows one reader at a time.
type followedSlot struct {
	mu      sync.Mutex
	decoder *head.Decoder
	streams map[string]*followedStream
	orphans int
	touched time.Time // when a stream was last found to have new rows
}

// followedStream is the follower's state of a stream: which numbers were read, and which were recorded as sealed when
// readSealedRuns was last called.
type followedStream struct {
	head.Stream
	progress     seqs.StreamProgress
	workedOff    sealedRuns
	hasWorkedOff bool
	looked       time.Time // when gaps were last read
}

// pendingPass is the pass that callers of catchUp wait for.
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
	return &follower{
		s: s, mode: mode, wake: make(chan struct{}, 1), parts: make([]followedPartition, format.MaxPartitions),
		forgot: slices.Repeat([]time.Time{s.opts.Now()}, format.MaxPartitions),
	}
}

// catchUp returns once the head contains all samples that other processes had acknowledged when it was called. Calls
// that arrive during a pass share the next pass. catchUp returns errNoQueries if this process was opened to answer no
// queries.
func (f *follower) catchUp(ctx context.Context) error {
	switch f.mode {
	case followsNobody:
		return nil
	case followsNothing:
		return errNoQueries
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

// start starts following other processes, until ctx is done. The head must already be rebuilt.
func (f *follower) start(ctx context.Context) {
	if f.mode == followsOthers {
		f.s.running.Go(func() { panics.Repeat(ctx, "following", func() { f.run(ctx) }) })
	}
}

// run makes passes until ctx is done.
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
			err = panics.Call("following", func() error { return f.makePass(ctx, t != nil) })
		}
		if t != nil {
			t.err = err
			close(t.done)
		}
		if ctx.Err() != nil {
			f.rejectCallers()
			return
		}
	}
}

// rejectCallers makes waiting and later catchUp calls return engine.ErrClosed.
func (f *follower) rejectCallers() {
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

// makePass reads new stage rows. awaited is true if a query waits for all acknowledged samples; otherwise gaps are read
// only every gapInterval.
func (f *follower) makePass(ctx context.Context, awaited bool) error {
	begun := f.s.opts.Now()
	for p := range f.s.period.Partitions() {
		if err := f.releaseSealed(ctx, p, f.s.reread); err != nil {
			return err
		}
	}
	if f.timeSincePass() > membership.TailTTL/2 {
		if err := f.readAllSlots(ctx); err != nil {
			return err
		}
	}
	if err := f.listWriters(ctx); err != nil {
		return err
	}
	positions, err := f.readPositions(ctx)
	if err != nil {
		return err
	}
	if err := f.readNewRows(ctx, positions, awaited, begun); err != nil {
		return err
	}
	// The pass is incomplete if it took so long that stream positions may have expired before they were read.
	if took := membership.Elapsed(begun, f.s.opts.Now()); took > membership.TailTTL/2 {
		return fmt.Errorf(
			"%w: reading the writes of other processes took too long, %v; try again", engine.ErrUnavailable,
			took.Round(time.Second),
		)
	}
	f.recordPass(begun)
	return nil
}

// recordPass records the time at which a complete pass or the rebuild started.
func (f *follower) recordPass(at time.Time) {
	f.mu.Lock()
	f.begun = at
	f.mu.Unlock()
}

// timeSincePass returns the time since the start of the last complete pass.
func (f *follower) timeSincePass() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return membership.Elapsed(f.begun, f.s.opts.Now())
}

// isReleaseDue reports whether releaseSealed last ran more than a day ago for a partition, so that it must run again.
// The head may contain deleted samples that other processes have sealed. Once the sealed samples are cleaned and the
// tombstone is removed, queries would return the samples in the head.
func (f *follower) isReleaseDue(partition int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.s.opts.Shared && membership.Elapsed(f.forgot[partition], f.s.opts.Now()) > deleteRests/2
}

// releaseSealed releases the samples of a partition that other processes have sealed, once per day. It must run before
// a query reads the head and before a seal closes its generations, because the periodic call of ReleaseSealed may be
// late, or this process may have been paused. If only some rows of a generation are sealed, releaseSealed reads the
// generation again, because the other rows may be newer. reread is Store.reread, or replaceByStaged if the caller holds
// the partition's seal lock. Without that lock, a concurrent seal wouldn't release the new generation.
func (f *follower) releaseSealed(
	ctx context.Context, partition int, reread func(context.Context, Work) error,
) error {
	if !f.isReleaseDue(partition) {
		return nil
	}
	begun := f.s.opts.Now()
	for _, slot := range f.s.head.Slots(partition) {
		w := Work{Partition: partition, Slot: slot}
		staged, err := f.s.listStaged(ctx, w)
		if err == nil && f.s.head.HasSealedRow(w.slotPartition(), staged) {
			err = reread(ctx, w)
		}
		if err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgot[partition] = begun
	return nil
}

// readAllSlots reads every slot that may have unsealed samples. Known streams continue at their positions.
func (f *follower) readAllSlots(ctx context.Context) error {
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
		c = &followedSlot{
			streams: map[string]*followedStream{},
			decoder: head.NewDecoder(
				f.s.head, head.SlotPartition{Slot: slot, Partition: partition}, f.s.readDefinitions,
			),
		}
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

// readSlot adds the stage rows of other writers in a slot to the head.
func (f *follower) readSlot(ctx context.Context, w Work) error {
	begun := f.s.opts.Now()
	c := f.slot(w.Slot, w.Partition)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.streams {
		st.hasWorkedOff = false // The sealed runs are read again for the next row.
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
			st.MarkDamaged()
			missed = false
		}
		if err := f.addRow(ctx, c, st, r, row.Value, begun, f.mode == followsNobody); err != nil {
			return err
		}
		st.PruneEpochs()
	}
	f.s.countOrphans(c.orphans, w.Slot, w.Partition)
	c.orphans = 0
	c.decoder.Release()
	if f.mode == followsNobody {
		f.releaseSlot(w) // There are no other writers, so the streams won't grow.
	}
	return nil
}

// releaseSlot releases the follower's state of the streams in a slot. This state takes more memory than the slot's
// samples in the head.
func (f *follower) releaseSlot(w Work) {
	p := &f.parts[w.Partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.slots, w.Slot)
}

// addRow adds a row to the head unless the head already contains the row. A row whose blob depends on an undefined
// series remains a gap, because the blob that defines the series may still appear. If alone is true, no other process
// commits. In this case a blob that depends on an undefined series was never acknowledged, and its samples are skipped.
func (f *follower) addRow(
	ctx context.Context, c *followedSlot, st *followedStream, r format.StageRow, value []byte, now time.Time,
	alone bool,
) error {
	if !st.progress.IsUnread(r.Seq) {
		return nil
	}
	if back, err := f.hasReappeared(ctx, c, st, r); err != nil {
		return err
	} else if back {
		st.progress.MarkRead(r.Seq, now)
		return nil
	}
	d := c.decoder
	err := d.Decode(ctx, &st.Stream, r, value, func() bool { return !alone })
	if errors.Is(err, head.ErrUndefined) {
		st.progress.AddGap(r.Seq+1, now)
		return nil
	}
	if err == nil {
		explained := d.Orphans() == 0 || !st.IsDamaged()
		f.s.head.PublishRow(d, r, explained, f.s.opts.Shared, f.s.opts.Now())
		if !explained {
			err = head.ErrDependsOnCorrupt
		}
	}
	if err != nil {
		if !isUnreadable(err) {
			return err
		}
		st.MarkDamaged()
		f.s.damage.RecordStaged(
			damage.StagedAt{Slot: d.SlotPartition().Slot, Partition: d.SlotPartition().Partition, Row: r}, err,
		)
		st.progress.MarkRead(r.Seq, now)
		return nil
	}
	c.orphans += d.Orphans()
	st.progress.MarkRead(r.Seq, now)
	return nil
}

// releaseDefinitions releases the definitions of streams in slots without samples in the head, because these slots are
// sealed. It keeps the streams' progress until their positions have expired. Otherwise the rows would be read again in
// each pass.
func (f *follower) releaseDefinitions(partition int) {
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
			st.ReleaseDefinitions()
		}
		return now.Sub(c.touched) > 2*membership.TailTTL
	})
}
