package pebble

import (
	"context"
	"fmt"
	"sync"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

// maxReclaims bounds the ranges that a reclaimer remembers, a slot or a window each; beyond that it remembers whole tables.
const maxReclaims = 4096

// reclaimer gives back the space of deleted rows.
//
// Pebble drops a file by itself when one range delete covers all of it. It leaves the files at the
// edges, and those that many small deletes cover together, as those of a slot's streams do: with little
// traffic their deletes would stay in the topmost level, and the rows below, for days. So some time after a
// delete, when Pebble has dropped what it can, the reclaimer compacts the slot or window that it was in.
type reclaimer struct {
	db    *pebbledb.DB
	delay time.Duration
	log   func(error)

	mu       sync.Mutex
	prefixes map[string]struct{} // of keys, with rows deleted since the last round

	wake   chan struct{}
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
		wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		r.loop(ctx)
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
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reclaimer) take() []keyRange {
	r.mu.Lock()
	defer r.mu.Unlock()
	ranges := make([]keyRange, 0, len(r.prefixes))
	for p := range r.prefixes {
		ranges = append(ranges, keyRange{[]byte(p), afterPrefix(nil, []byte(p))})
	}
	clear(r.prefixes)
	return ranges
}

func (r *reclaimer) loop(ctx context.Context) {
	for ranges := r.beforeFirst; ; ranges = r.take {
		// Half of the delay flushes the deletes, the other half is for Pebble to drop whole files.
		if !sleep(ctx, r.delay) {
			return
		}
		for _, k := range ranges() {
			if ctx.Err() != nil {
				return
			}
			if err := r.db.Compact(uncancelled(ctx), k.start, k.end, false); err != nil {
				r.log(fmt.Errorf("pebble: give back the space of %x: %w", k.start, err))
			}
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
	}
}

// uncancelled returns the context for Pebble's DB.Compact. Pebble v2.1.7 panics when a context ends after a compaction was
// picked for it and before it runs: DB.manualCompact takes it off the list in which DB.runPickedCompaction looks for it.
func uncancelled(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// beforeFirst returns what lies before the first row of each table: old slots and windows, all deleted.
func (r *reclaimer) beforeFirst() []keyRange {
	var ranges []keyRange
	for _, t := range engine.EmbeddedTables {
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
