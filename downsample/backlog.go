package downsample

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// backlog are the windows that lack rollups, as after an import that was cut short or a delete, as they were listed last. Every process that
// seals looks at all of it and works off its own share: a window belongs to a partition, by its number and tenant. Up to most of the windows of its
// partitions are listed at once: the others are listed when these are done.
type backlog struct {
	partitions func() int // how many there are by now
	most       int

	mu     sync.Mutex
	listed time.Time // zero: not yet
	list   []*unrolled
	// all is how many windows wait, by partition, with those that aren't listed.
	all map[int]int
}

// unrolled is a window that lacks rollups.
type unrolled struct {
	storage.Unrolled
	streak
	next      time.Time // not before
	partition int
}

const (
	// relist is the time between two listings: imports and deletes make the rollups themselves unless they are cut short.
	relist = 24 * time.Hour
	// retryFirst and retryMost are how long a window rests after its first failure in a row, and after many.
	retryFirst = time.Minute
	retryMost  = time.Hour
	// maxTime bounds times, milliseconds.
	maxTime = math.MaxInt64 / 4
)

// retryAfter returns how long a window rests after so many failures in a row.
func retryAfter(failures int) time.Duration { return min(retryMost, retryFirst<<min(failures-1, 10)) }

func (b *backlog) partitionOf(u *storage.Unrolled) int {
	return int(xxhash.Sum64String(strconv.FormatInt(u.Window, 10)+" "+u.Tenant) % uint64(b.partitions()))
}

// set replaces the list by a newer one. Where that ends with an error the list stays.
func (b *backlog) set(found iter.Seq2[storage.Unrolled, error], owns func(int) bool, now time.Time) error {
	before := map[windowKey]*unrolled{}
	b.mu.Lock()
	for _, u := range b.list {
		before[u.key()] = u
	}
	b.mu.Unlock()
	fresh, all := []*unrolled(nil), map[int]int{}
	for u, err := range found {
		if err != nil {
			return err
		}
		x := &unrolled{Unrolled: u, partition: b.partitionOf(&u)}
		all[x.partition]++
		if !owns(x.partition) {
			continue
		}
		if known, ok := before[x.key()]; ok {
			x.streak, x.next = known.streak, known.next
		}
		if fresh = append(fresh, x); len(fresh) >= 4*b.most {
			fresh = keepFirst(fresh, b.most, firstDue)
		}
	}
	fresh = keepFirst(fresh, b.most, firstDue)
	slices.SortFunc(fresh, compareUnrolled)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list, b.all, b.listed = fresh, all, now
	return nil
}

// firstDue compares windows by when they are due.
func firstDue(a, b *unrolled) int { return cmp.Or(a.next.Compare(b.next), compareUnrolled(a, b)) }

func compareUnrolled(a, b *unrolled) int {
	return cmp.Or(cmp.Compare(a.EndMS, b.EndMS), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Window, b.Window))
}

func (u *unrolled) key() windowKey { return windowKey{u.Tenant, u.Window} }

// stale reports whether it is time to list anew: once a day, and when all that is listed of these partitions is done or has failed and more windows wait.
func (b *backlog) stale(now time.Time, owns func(int) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listed.IsZero() || now.Sub(b.listed) >= relist {
		return true
	}
	mine := 0
	for _, u := range b.list {
		if owns(u.partition) {
			if u.failures == 0 {
				return false
			}
			mine++
		}
	}
	return b.countOf(owns) > mine
}

// countOf returns how many windows of these partitions wait. It needs the lock.
func (b *backlog) countOf(owns func(int) bool) (n int) {
	for partition, windows := range b.all {
		if owns(partition) {
			n += windows
		}
	}
	return n
}

// pick returns the oldest window that is due, among those whose partition is owned.
func (b *backlog) pick(now time.Time, owns func(int) bool) (*unrolled, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.list {
		if !u.next.After(now) && owns(u.partition) {
			return u, true
		}
	}
	return nil, false
}

// done takes a window off the list, or notes that it failed and reports whether somebody should hear of it now.
func (b *backlog) done(u *unrolled, err error, now time.Time) (tell bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.list, u)
	switch {
	case i < 0: // It was listed again meanwhile.
		return false
	case err == nil:
		b.list = slices.Delete(b.list, i, i+1)
		b.all[u.partition]--
		return false
	}
	u.fail(err, now)
	u.next = now.Add(retryAfter(u.failures))
	return isLoggedAt(u.failures)
}

func (b *backlog) count(owns func(int) bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.countOf(owns)
}

// rollUp makes missing rollups, a window after the other, the oldest first, until the next round is due.
func (l *Loop) rollUp(ctx context.Context, began time.Time) {
	if l.owned() == 0 {
		return
	}
	if l.backlog.stale(l.opts.Now(), l.owns) {
		const listing = "listing windows without rollups"
		l.worker.work(ctx, listing, l.lag, func(pause func()) {
			l.task(ctx, listing, l.backlog.set(l.store.Unrolled(ctx, -maxTime, maxTime, every(pause)), l.owns, l.opts.Now()))
		})
	}
	for ctx.Err() == nil && l.opts.Now().Sub(began) < l.opts.Interval {
		u, ok := l.backlog.pick(l.opts.Now(), l.owns)
		if !ok {
			return
		}
		// Where it is past its retention, raw rows go when the grace is over.
		lag := l.lag
		if u.EndMS <= l.store.Retention().Past("", retention.DefaultClass, rollup.Raw) {
			lag = func() time.Duration { return hurryFull }
		}
		l.worker.work(ctx, fmt.Sprintf("creating the rollups of window %d", u.Window), lag, func(pause func()) { l.rollUpOne(ctx, u, pause) })
	}
}

func (l *Loop) rollUpOne(ctx context.Context, u *unrolled, pause func()) {
	series := 0
	err := panics.Do("creating rollups", func() (err error) { series, err = l.store.RollUp(ctx, u.Unrolled, pause); return err })
	if ctx.Err() != nil {
		return
	}
	tell := l.backlog.done(u, err, l.opts.Now())
	if err != nil {
		l.failed(ctx, "creating missing rollups", err, "window", u.Window, "tenant", u.Tenant)
		if tell {
			l.opts.Logger.Error("can't create the rollups of a window; its raw rows are kept past their retention, or on Cassandra expire without rollups",
				"window", u.Window, "tenant", u.Tenant, "failures", u.failures, "err", err, "do", doStuck)
		}
		return
	}
	l.metrics.rolled.Inc()
	l.opts.Logger.Info("created missing rollups", "tenant", u.Tenant, "window", u.Window,
		"until", time.UnixMilli(u.EndMS).UTC(), "seals", u.Seals, "series", series)
}
