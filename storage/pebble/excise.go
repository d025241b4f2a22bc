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
	// exciseWithin is after how many times Options.StageDelay slots are excised although more is deleted, as while a backfill is
	// sealed.
	exciseWithin = 2
	// maxExcised bounds the slots that an exciser remembers; those beyond that are left to the reclaimer.
	maxExcised = 1 << 12
)

// exciser gives back the space of slots of the stage of which every row was deleted: it takes their range of keys out of the
// tree, which removes whole files and reads no rows, and cuts off what other files have of it, where compacting would write these
// anew.
//
//	last rows of a slot deleted ─► StageDelay ─► flush ─► no rows in the range? ─► excised
//	                                                      └──── writes to it wait ────┘
//
// Iterators that are open go on to see what they saw; a checkpoint has all of the change, or nothing. Pebble's snapshots don't heed
// it: the engine has none.
type exciser struct {
	db     *pebbledb.DB
	change func(op func() error) error // Engine.change
	after  time.Duration
	gate   *gate
	log    func(error)
	// left is called for ranges that hold rows still.
	left func(prefix []byte)

	mu    sync.Mutex
	slots map[string]time.Time // prefixes of keys with rows deleted, and since when

	wake   chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

func startExciser(db *pebbledb.DB, change func(op func() error) error, g *gate, after time.Duration, left func(prefix []byte), log func(error)) *exciser {
	ctx, cancel := context.WithCancel(context.Background())
	x := &exciser{
		db: db, change: change, gate: g, after: after, left: left, log: log, slots: map[string]time.Time{},
		wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(x.done)
		x.loop(ctx)
	}()
	return x
}

// stop waits for excisions under way.
func (x *exciser) stop() {
	x.cancel()
	<-x.done
}

// deleted notes that rows of the stage whose keys begin with prefix were deleted, and reports whether it could.
func (x *exciser) deleted(prefix []byte) bool {
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

func (x *exciser) loop(ctx context.Context) {
	for {
		select {
		case <-x.wake:
		case <-ctx.Done():
			return
		}
		for quiet := false; !quiet && !x.isDue(); {
			if !sleep(ctx, x.after) {
				return
			}
			select {
			case <-x.wake:
			default:
				quiet = true
			}
		}
		slots := x.take()
		excised, err := x.round(ctx, slots)
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

// isDue reports whether a slot waits that has waited for long.
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

// take returns the slots in order, and forgets them.
func (x *exciser) take() []keyRange {
	x.mu.Lock()
	defer x.mu.Unlock()
	ranges := make([]keyRange, 0, len(x.slots))
	for _, p := range slices.Sorted(maps.Keys(x.slots)) {
		ranges = append(ranges, keyRange{[]byte(p), afterPrefix(nil, []byte(p))})
	}
	clear(x.slots)
	return ranges
}

// round excises those of slots, which are in order, that hold no rows, and returns the ranges that are gone. Neighbours go as one.
func (x *exciser) round(ctx context.Context, slots []keyRange) (excised []keyRange, err error) {
	if len(slots) == 0 {
		return nil, nil
	}
	// Memtables would have to be flushed while writes wait.
	flushed, err := x.db.AsyncFlush()
	if err != nil {
		return nil, fmt.Errorf("pebble: flush deletes of the staging log: %w", err)
	}
	select {
	case <-flushed:
	case <-ctx.Done(): // A full disk may keep it waiting for ever.
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
		done, err := x.excise(ctx, k)
		if err != nil {
			return excised, fmt.Errorf("pebble: excise %x: %w", k.start, err)
		}
		if done {
			excised = append(excised, k)
		}
	}
	return excised, nil
}

// excise removes a range if it holds no rows.
//
// Invariant: no row is put into the range after it was found empty, and before it is excised.
func (x *exciser) excise(ctx context.Context, k keyRange) (done bool, err error) {
	if !x.gate.close(k) {
		return false, nil // A row may be on its way.
	}
	defer x.gate.open()
	if !x.isEmpty(k) {
		return false, nil
	}
	return true, x.change(func() error { return x.db.Excise(ctx, pebbledb.KeyRange{Start: k.start, End: k.end}) })
}

// isEmpty reports whether a range holds no rows. One that can't be read isn't.
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

// gate keeps rows from being put into a range of keys of the stage while it is excised.
type gate struct {
	mu     sync.Mutex
	under  map[string]int // prefixes that are being written to, and by how many
	closed keyRange
	opened chan struct{} // closed when the range is open again; nil: none is closed
}

// close closes a range, until open is called. It returns false if somebody is writing to it.
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

// tryEnter returns what to wait for; nil: it entered.
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

func (g *gate) leave(prefixes []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range prefixes {
		if g.under[p]--; g.under[p] <= 0 {
			delete(g.under, p)
		}
	}
}

// enterSlots waits until rows may be put into slots of the stage, whose keys begin with prefixes, and keeps them from being
// excised until gate.leave is called, if it returns nil.
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

// slotPrefix begins every key of a slot of the stage.
func slotPrefix(b *engine.Batch) []byte { return appendPartition(nil, b.Table, b.Partition[:1]) }

// stagedSlots lists the slots of the stage that batches put rows into, each once.
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
