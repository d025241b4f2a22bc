package pebble

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

const (
	// maxReclaims bounds the ranges that a reclaimer remembers, a slot or a window each; beyond that it remembers whole tables. Of
	// cleared ranges it remembers as many; beyond that it joins neighbours.
	maxReclaims = 4096
	// reclaimGap is how many bytes of rows may lie between cleared ranges that are compacted together, about a file: compacting a
	// range writes the files anew that it begins and ends in.
	reclaimGap = 8 << 20
	// clearDelay is how long the space of cleared ranges waits to be given back: rows that took their place take as much, and nothing
	// else drops the files before.
	clearDelay = 5 * time.Second
)

// reclaimer gives back the space of deleted rows.
//
// Pebble drops a file by itself when one range delete covers all of it. It leaves the files at the
// edges, and those that many small deletes cover together, as those of a slot's streams do: with little
// traffic their deletes would stay in the topmost level, and the rows below, for days. So some time after a
// delete, when Pebble has dropped what it can, the reclaimer compacts the slot or window that it was in. Of a window that is
// cleared bit by bit it compacts the cleared ranges only, or the whole window would be written anew for each bit.
type reclaimer struct {
	db    *pebbledb.DB
	delay time.Duration
	log   func(error)

	mu       sync.Mutex
	prefixes map[string]struct{} // of keys, with rows deleted since the last round
	ranges   []keyRange          // that were cleared since

	// wake is sent to when rows are deleted, wakeCleared when ranges are cleared.
	wake, wakeCleared chan struct{}

	cancel context.CancelFunc
	done   chan struct{}
}

type keyRange struct{ start, end []byte }

// startReclaimer begins with what an earlier process may have left: the next slot or window would be
// another one, so nothing else would come back to it.
func startReclaimer(db *pebbledb.DB, delay time.Duration, log func(error)) *reclaimer {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reclaimer{
		db: db, delay: delay, log: log, prefixes: map[string]struct{}{},
		wake: make(chan struct{}, 1), wakeCleared: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	var loops sync.WaitGroup
	loops.Go(func() {
		if sleep(ctx, r.delay) {
			r.compact(ctx, r.beforeFirst())
		}
		r.loop(ctx, r.wake, r.delay, r.take)
	})
	loops.Go(func() { r.loop(ctx, r.wakeCleared, min(r.delay, clearDelay), r.takeCleared) })
	go func() {
		defer close(r.done)
		loops.Wait()
	}()
	return r
}

// stop waits for the range under way, or until failed is closed: Pebble then waits for ever.
func (r *reclaimer) stop(failed <-chan struct{}) {
	r.cancel()
	select {
	case <-r.done:
	case <-failed:
	}
}

// deleted notes that rows whose keys begin with prefix were deleted.
func (r *reclaimer) deleted(prefix []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.prefixes) >= maxReclaims {
		tables := map[string]struct{}{}
		for p := range r.prefixes {
			tables[p[:1]] = struct{}{}
		}
		r.prefixes = tables
	}
	if _, whole := r.prefixes[string(prefix[:1])]; !whole {
		r.prefixes[string(prefix)] = struct{}{}
	}
	awake(r.wake)
}

func awake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// cleared notes ranges of keys, each of one table, whose rows were removed.
func (r *reclaimer) cleared(ranges []keyRange) {
	if len(ranges) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range ranges {
		if len(r.ranges) >= maxReclaims {
			r.ranges = joinPairs(r.ranges)
		}
		r.ranges = append(r.ranges, k)
	}
	awake(r.wakeCleared)
}

// joinPairs makes one of every two neighbours of one table, which leaves about half of the ranges.
func joinPairs(ranges []keyRange) []keyRange {
	i := 0
	return joinRanges(ranges, func(a, b keyRange) bool {
		i++
		return i%2 == 1 && a.start[0] == b.start[0]
	})
}

// joinRanges sorts ranges and makes one of those that overlap, and of neighbours that near accepts.
func joinRanges(ranges []keyRange, near func(a, b keyRange) bool) []keyRange {
	slices.SortFunc(ranges, func(a, b keyRange) int { return bytes.Compare(a.start, b.start) })
	joined := ranges[:0]
	for _, k := range ranges {
		n := len(joined)
		switch {
		case n == 0 || bytes.Compare(joined[n-1].end, k.start) < 0 && !near(joined[n-1], k):
			joined = append(joined, k)
		case bytes.Compare(joined[n-1].end, k.end) < 0:
			joined[n-1].end = k.end
		}
	}
	return joined
}

// isNear reports whether few bytes lie between two ranges of one table.
func (r *reclaimer) isNear(a, b keyRange) bool {
	if a.start[0] != b.start[0] {
		return false
	}
	size, err := r.db.EstimateDiskUsage(a.end, b.start)
	return err == nil && size <= reclaimGap
}

// take returns the slots and windows of which rows were deleted since the last round.
func (r *reclaimer) take() (ranges []keyRange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.prefixes {
		ranges = append(ranges, keyRange{[]byte(p), afterPrefix(nil, []byte(p))})
	}
	clear(r.prefixes)
	return ranges
}

// takeCleared returns the ranges that were cleared since the last round, neighbours as one.
func (r *reclaimer) takeCleared() []keyRange {
	r.mu.Lock()
	cleared := r.ranges
	r.ranges = nil
	r.mu.Unlock()
	return joinRanges(cleared, r.isNear)
}

// loop compacts ranges some time after each wake. Half of the delay flushes the deletes, the other half is for Pebble to drop whole files.
func (r *reclaimer) loop(ctx context.Context, wake <-chan struct{}, delay time.Duration, ranges func() []keyRange) {
	for {
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
		if !sleep(ctx, delay) {
			return
		}
		r.compact(ctx, ranges())
	}
}

func (r *reclaimer) compact(ctx context.Context, ranges []keyRange) {
	for _, k := range ranges {
		if ctx.Err() != nil {
			return
		}
		if err := r.db.Compact(uncancelled(ctx), k.start, k.end, false); err != nil {
			r.log(fmt.Errorf("pebble: release the space of %x: %w", k.start, err))
		}
	}
}

// uncancelled returns the context for Pebble's DB.Compact. Pebble v2.1.7 panics when a context ends after a compaction was
// picked for it and before it runs: DB.manualCompact takes it off the list in which DB.runPickedCompaction looks for it.
func uncancelled(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// beforeFirst returns what lies before the first row of each table: old slots and windows, all deleted.
func (r *reclaimer) beforeFirst() []keyRange {
	var ranges []keyRange
	for _, t := range engine.Tables {
		k := keyRange{[]byte{t.ID}, []byte{t.ID + 1}}
		it, err := r.db.NewIter(&pebbledb.IterOptions{LowerBound: k.start, UpperBound: k.end})
		if err != nil {
			r.log(fmt.Errorf("pebble: look for the first row of %s: %w", t, err))
			continue
		}
		if it.First() {
			k.end = append([]byte{}, it.Key()...)
		}
		if err := it.Close(); err != nil {
			r.log(fmt.Errorf("pebble: look for the first row of %s: %w", t, err))
			continue
		}
		ranges = append(ranges, k)
	}
	return ranges
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
