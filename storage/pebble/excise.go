package pebble

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

const (
	// exciseWithin is the multiple of Options.StageDelay after which slots are excised even if more rows are being
	// deleted, as during the sealing of a backfill.
	exciseWithin = 2
	// maxExcised is the max number of slots in an exciser. Further slots are left to the reclaimer.
	maxExcised = 1 << 12
)

// exciser frees the space of slots of the staging log whose rows have all been deleted, by removing their key range
// from the tree. Files inside the range are deleted without being read. Other files are only truncated to the keys
// outside of it; a compaction would rewrite them.
//
//	last rows of a slot deleted ─► StageDelay ─► flush ─► no rows in the range? ─► excised
//	                                                      └──── writes to it wait ────┘
//
// Open iterators still see the rows they saw before. A checkpoint contains an excision completely or not at all.
// Pebble's snapshots would lose rows, so the engine uses none.
type exciser struct {
	db     *pebbledb.DB
	change func(op func() error) error // Engine.runChange
	after  time.Duration
	gate   *gate
	log    func(error)
	// left is called for ranges that still have rows.
	left func(prefix []byte)

	mu    sync.Mutex
	slots map[string]time.Time // prefixes of keys with deleted rows, and the time of the first delete

	wake   chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

func startExciser(
	db *pebbledb.DB, change func(op func() error) error, g *gate, after time.Duration, left func(prefix []byte),
	log func(error),
) *exciser {
	ctx, cancel := context.WithCancel(context.Background())
	x := &exciser{
		db: db, change: change, gate: g, after: after, left: left, log: log, slots: map[string]time.Time{},
		wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(x.done)
		x.runLoop(ctx)
	}()
	return x
}

// stop waits for excisions under way.
func (x *exciser) stop() {
	x.cancel()
	<-x.done
}

// recordDeleted records that rows of the staging log whose keys start with prefix were deleted. It returns false if the
// exciser already has maxExcised slots.
func (x *exciser) recordDeleted(prefix []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.slots[string(prefix)]; !ok {
		if len(x.slots) >= maxExcised {
			return false
		}
		x.slots[string(prefix)] = time.Now()
	}
	select {
	case x.wake <- struct{}{}:
	default:
	}
	return true
}

func (x *exciser) runLoop(ctx context.Context) {
	for {
		select {
		case <-x.wake:
		case <-ctx.Done():
			return
		}
		for quiet := false; !quiet && !x.isDue(); {
			if !sleepContext(ctx, x.after) {
				return
			}
			select {
			case <-x.wake:
			default:
				quiet = true
			}
		}
		slots := x.takeSlots()
		excised, err := x.exciseSlots(ctx, slots)
		if err != nil && ctx.Err() == nil {
			x.log(err)
		}
		for _, k := range slots {
			if !slices.ContainsFunc(excised, func(e keyRange) bool { return e.contains(k.start) }) {
				x.left(k.start)
			}
		}
	}
}

// isDue reports whether a slot has waited too long for deletes to pause, so that it is excised in any case.
func (x *exciser) isDue() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, since := range x.slots {
		if time.Since(since) > exciseWithin*x.after {
			return true
		}
	}
	return false
}

// takeSlots returns the slots in order and removes them.
func (x *exciser) takeSlots() []keyRange {
	x.mu.Lock()
	defer x.mu.Unlock()
	ranges := make([]keyRange, 0, len(x.slots))
	for _, p := range slices.Sorted(maps.Keys(x.slots)) {
		ranges = append(ranges, keyRange{[]byte(p), afterPrefix(nil, []byte(p))})
	}
	clear(x.slots)
	return ranges
}

// exciseSlots excises the slots without rows, and returns the excised ranges. slots are sorted. Adjacent slots are
// excised together.
func (x *exciser) exciseSlots(ctx context.Context, slots []keyRange) (excised []keyRange, err error) {
	if len(slots) == 0 {
		return nil, nil
	}
	// Without this flush, Pebble would flush memtables while writes wait.
	flushed, err := x.db.AsyncFlush()
	if err != nil {
		return nil, fmt.Errorf("pebble: flush deletes of the staging log: %w", err)
	}
	select {
	case <-flushed:
	case <-ctx.Done(): // A full disk may delay the flush forever.
		return nil, ctx.Err()
	}
	var empty []keyRange
	for _, k := range slots {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if n := len(empty); n > 0 && x.isEmpty(keyRange{empty[n-1].end, k.end}) {
			empty[n-1].end = k.end
		} else if x.isEmpty(k) {
			empty = append(empty, k)
		}
	}
	for _, k := range empty {
		if ctx.Err() != nil {
			return excised, ctx.Err()
		}
		done, err := x.exciseRange(ctx, k)
		if err != nil {
			return excised, fmt.Errorf("pebble: excise %x: %w", k.start, err)
		}
		if done {
			excised = append(excised, k)
		}
	}
	return excised, nil
}

// exciseRange removes a range if it has no rows.
//
// Invariant: no row is written to the range after it was found empty and before it is excised.
func (x *exciser) exciseRange(ctx context.Context, k keyRange) (done bool, err error) {
	if !x.gate.close(k) {
		return false, nil // A row may be about to be written.
	}
	defer x.gate.open()
	if !x.isEmpty(k) {
		return false, nil
	}
	return true, x.change(func() error { return x.db.Excise(ctx, pebbledb.KeyRange{Start: k.start, End: k.end}) })
}

// isEmpty reports whether a range has no rows. It returns false if the range can't be read.
func (x *exciser) isEmpty(k keyRange) bool {
	it, err := x.db.NewIter(&pebbledb.IterOptions{LowerBound: k.start, UpperBound: k.end})
	if err != nil {
		return false
	}
	found := it.First()
	err = it.Error()
	return it.Close() == nil && err == nil && !found
}

func (k keyRange) contains(key []byte) bool {
	return bytes.Compare(k.start, key) <= 0 && bytes.Compare(key, k.end) < 0
}

// gate blocks writes to a key range of the staging log while it is excised.
type gate struct {
	mu     sync.Mutex
	under  map[string]int // the number of writers per prefix
	closed keyRange
	opened chan struct{} // closed when the range is open again; nil: no range is closed
}

// close closes a range until open is called. It returns false if there are writers in the range.
func (g *gate) close(k keyRange) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.under {
		if k.contains([]byte(p)) {
			return false
		}
	}
	g.closed, g.opened = k, make(chan struct{})
	return true
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
	g.closed, g.opened = keyRange{}, nil
}

// tryEnter registers writers of the prefixes and returns nil. If a prefix is closed, it returns a channel that is
// closed when the range is open again.
func (g *gate) tryEnter(prefixes []string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil && slices.ContainsFunc(prefixes, func(p string) bool { return g.closed.contains([]byte(p)) }) {
		return g.opened
	}
	if g.under == nil {
		g.under = map[string]int{}
	}
	for _, p := range prefixes {
		g.under[p]++
	}
	return nil
}

func (g *gate) leaveGate(prefixes []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range prefixes {
		if g.under[p]--; g.under[p] <= 0 {
			delete(g.under, p)
		}
	}
}

// enterSlots waits until rows may be written to the slots of the staging log that have these key prefixes. If it
// returns nil, the slots aren't excised until gate.leaveGate is called.
func (e *Engine) enterSlots(ctx context.Context, prefixes []string) error {
	for {
		opened := e.gate.tryEnter(prefixes)
		if opened == nil {
			return nil
		}
		select {
		case <-opened:
		case <-e.failed:
			return e.failedErr()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// slotPrefix returns the prefix of all keys of a slot of the staging log.
func slotPrefix(b *engine.Batch) []byte { return appendPartition(nil, b.Table, b.Partition[:1]) }

// stagedSlots returns the slots of the staging log to which batches write rows, without duplicates.
func stagedSlots(batches []engine.Batch) (prefixes []string) {
	last := int64(0)
	for i := range batches {
		b := &batches[i]
		if b.Table != engine.Stage || !anyPut(batches[i:i+1]) || len(prefixes) > 0 && last == b.Partition[0].Int {
			continue
		}
		last = b.Partition[0].Int
		if p := string(slotPrefix(b)); !slices.Contains(prefixes, p) {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}
