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
	// maxReclaims is the max number of slots and windows with deleted rows in a reclaimer, and the max number of
	// cleared ranges. If there are more slots and windows, whole tables are compacted. If there are more cleared
	// ranges, neighbors are joined.
	maxReclaims = 4096
	// reclaimGap is the max number of bytes of rows between cleared ranges that are compacted together, about the size
	// of a file. Compacting a range rewrites the files at its edges.
	reclaimGap = 8 << 20
	// clearDelay is the max time until the space of cleared ranges is freed. It is short because the rows that replaced
	// the cleared rows take the same space again, and nothing else removes the old files earlier.
	clearDelay = 5 * time.Second
)

// reclaimer frees the space of deleted rows.
//
// Pebble drops a file without a compaction if one range delete covers all of it. It keeps the files at the edges, and
// files that many small deletes cover together, such as the files of a slot's streams. With little traffic these
// deletes would stay in the top level, and the rows below them, for days. So some time after a delete, when Pebble has
// dropped whole files, the reclaimer compacts the slot or window of the delete. If a window is cleared in steps, it
// compacts only the cleared ranges; otherwise the whole window would be rewritten at each step.
type reclaimer struct {
	db    *pebbledb.DB
	delay time.Duration
	log   func(error)

	mu       sync.Mutex
	prefixes map[string]struct{} // of keys with rows deleted since the last round
	ranges   []keyRange          // cleared since the last round

	// wake receives a value when rows are deleted, wakeCleared when ranges are cleared.
	wake, wakeCleared chan struct{}

	cancel context.CancelFunc
	done   chan struct{}
}

type keyRange struct{ start, end []byte }

// startReclaimer starts a reclaimer. It first compacts the ranges that an earlier process may have left: later deletes
// are in other slots or windows, so nothing else would reclaim them.
func startReclaimer(db *pebbledb.DB, delay time.Duration, log func(error)) *reclaimer {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reclaimer{
		db: db, delay: delay, log: log, prefixes: map[string]struct{}{},
		wake: make(chan struct{}, 1), wakeCleared: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	var loops sync.WaitGroup
	loops.Go(func() {
		if sleepContext(ctx, r.delay) {
			r.compactRanges(ctx, r.beforeFirst())
		}
		r.runLoop(ctx, r.wake, r.delay, r.takeDeleted)
	})
	loops.Go(func() { r.runLoop(ctx, r.wakeCleared, min(r.delay, clearDelay), r.takeCleared) })
	go func() {
		defer close(r.done)
		loops.Wait()
	}()
	return r
}

// stop waits for the compaction under way, or until failed is closed, because Pebble then never returns.
func (r *reclaimer) stop(failed <-chan struct{}) {
	r.cancel()
	select {
	case <-r.done:
	case <-failed:
	}
}

// recordDeleted records that rows whose keys start with prefix were deleted.
func (r *reclaimer) recordDeleted(prefix []byte) {
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
	wakeUp(r.wake)
}

func wakeUp(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// recordCleared records ranges of keys, each in one table, whose rows were removed.
func (r *reclaimer) recordCleared(ranges []keyRange) {
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
	wakeUp(r.wakeCleared)
}

// joinPairs joins pairs of neighbors in the same table, which halves the number of ranges.
func joinPairs(ranges []keyRange) []keyRange {
	i := 0
	return joinRanges(ranges, func(a, b keyRange) bool {
		i++
		return i%2 == 1 && a.start[0] == b.start[0]
	})
}

// joinRanges sorts ranges, and joins ranges that overlap, and neighbors for which near returns true.
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

// isNear reports whether there are few bytes between two ranges of one table.
func (r *reclaimer) isNear(a, b keyRange) bool {
	if a.start[0] != b.start[0] {
		return false
	}
	size, err := r.db.EstimateDiskUsage(a.end, b.start)
	return err == nil && size <= reclaimGap
}

// takeDeleted returns and removes the slots and windows with rows deleted since the last round.
func (r *reclaimer) takeDeleted() (ranges []keyRange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.prefixes {
		ranges = append(ranges, keyRange{[]byte(p), afterPrefix(nil, []byte(p))})
	}
	clear(r.prefixes)
	return ranges
}

// takeCleared returns and removes the ranges cleared since the last round, with neighbors joined.
func (r *reclaimer) takeCleared() []keyRange {
	r.mu.Lock()
	cleared := r.ranges
	r.ranges = nil
	r.mu.Unlock()
	return joinRanges(cleared, r.isNear)
}

// runLoop compacts ranges some time after each wake. Half of the delay is before the flush of the deletes, the other
// half after it, so that Pebble can drop whole files.
func (r *reclaimer) runLoop(ctx context.Context, wake <-chan struct{}, delay time.Duration, ranges func() []keyRange) {
	for {
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
		if !sleepContext(ctx, delay) {
			return
		}
		r.compactRanges(ctx, ranges())
	}
}

func (r *reclaimer) compactRanges(ctx context.Context, ranges []keyRange) {
	for _, k := range ranges {
		if ctx.Err() != nil {
			return
		}
		if err := r.db.Compact(withoutCancel(ctx), k.start, k.end, false); err != nil {
			r.log(fmt.Errorf("pebble: release the space of %x: %w", k.start, err))
		}
	}
}

// withoutCancel returns the context for Pebble's DB.Compact. Pebble v2.1.7 panics if a context ends after a compaction
// was picked for it and before the compaction runs: DB.manualCompact removes the compaction from a list, and
// DB.runPickedCompaction then fails to find it there.
func withoutCancel(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// beforeFirst returns the range before the first row of each table: old slots and windows, all deleted.
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

func sleepContext(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
