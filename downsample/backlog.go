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

// backlog lists the windows with missing rollups, as after an interrupted import or a delete. Every process that seals
// lists all these windows, and rolls up the windows of its own partitions. The number and the tenant of a window
// determine its partition. A bounded number of windows is kept in memory. When these are done, the remaining windows
// are listed.
type backlog struct {
	partitions func() int // current number of partitions
	most       int

	mu     sync.Mutex
	listed time.Time // zero: never
	list   []*unrolled
	// all is the number of waiting windows by partition, including those that aren't in list.
	all map[int]int
}

// unrolled is a window with missing rollups.
type unrolled struct {
	storage.Unrolled
	streak
	next      time.Time // not tried before this time
	partition int
}

const (
	// relist is the time between listings. It is long because an import or a delete computes the rollups itself unless
	// it is interrupted.
	relist = 24 * time.Hour
	// retryFirst is the delay after a window's first failure, and retryMost the max delay after consecutive failures.
	retryFirst = time.Minute
	retryMost  = time.Hour
	// maxTime bounds timestamps in milliseconds.
	maxTime = math.MaxInt64 / 4
)

// retryAfter returns the delay after the given number of consecutive failures.
func retryAfter(failures int) time.Duration { return min(retryMost, retryFirst<<min(failures-1, 10)) }

func (b *backlog) partitionOf(u *storage.Unrolled) int {
	return int(xxhash.Sum64String(strconv.FormatInt(u.Window, 10)+" "+u.Tenant) % uint64(b.partitions()))
}

// set replaces the list. If found yields an error, the old list stays.
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

// firstDue compares windows by their next attempt.
func firstDue(a, b *unrolled) int { return cmp.Or(a.next.Compare(b.next), compareUnrolled(a, b)) }

func compareUnrolled(a, b *unrolled) int {
	return cmp.Or(cmp.Compare(a.EndMS, b.EndMS), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Window, b.Window))
}

func (u *unrolled) key() windowKey { return windowKey{u.Tenant, u.Window} }

// stale reports whether the windows must be listed again. This is the case once a day, and also when all listed windows
// of the owned partitions are done or have failed and more windows are waiting.
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

// countOf returns the number of waiting windows in owned partitions. The lock must be held.
func (b *backlog) countOf(owns func(int) bool) (n int) {
	for partition, windows := range b.all {
		if owns(partition) {
			n += windows
		}
	}
	return n
}

// pick returns the oldest due window in an owned partition.
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

// done removes a window from the list or, after an error, schedules the next attempt. It reports whether the error
// should be logged.
func (b *backlog) done(u *unrolled, err error, now time.Time) (tell bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.list, u)
	switch {
	case i < 0: // the window was listed again in the meantime
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

// rollUp computes missing rollups, window by window, the oldest first. It stops when no listed window is due, or when
// the next round is due.
func (l *Loop) rollUp(ctx context.Context, began time.Time) {
	if l.owned() == 0 {
		return
	}
	if l.backlog.stale(l.opts.Now(), l.owns) {
		const listing = "listing windows without rollups"
		l.worker.work(ctx, listing, l.lag, func(pause func()) {
			l.recordTask(ctx, listing,
				l.backlog.set(l.store.Unrolled(ctx, -maxTime, maxTime, every(pause)), l.owns, l.opts.Now()))
		})
	}
	for ctx.Err() == nil && l.opts.Now().Sub(began) < l.opts.Interval {
		u, ok := l.backlog.pick(l.opts.Now(), l.owns)
		if !ok {
			return
		}
		// The raw rows of a window past its retention are deleted after the grace period, so its rollups are urgent.
		lag := l.lag
		if u.EndMS <= l.store.Retention().PastRetention("", retention.DefaultClass, rollup.Raw) {
			lag = func() time.Duration { return hurryFull }
		}
		l.worker.work(ctx, fmt.Sprintf("creating the rollups of window %d", u.Window), lag, func(pause func()) {
			l.rollUpOne(ctx, u, pause)
		})
	}
}

func (l *Loop) rollUpOne(ctx context.Context, u *unrolled, pause func()) {
	series := 0
	err := panics.Call(
		"creating rollups", func() (err error) { series, err = l.store.RollUp(ctx, u.Unrolled, pause); return err },
	)
	if ctx.Err() != nil {
		return
	}
	tell := l.backlog.done(u, err, l.opts.Now())
	if err != nil {
		l.failed(ctx, "creating missing rollups", err, "window", u.Window, "tenant", u.Tenant)
		if tell {
			l.opts.Logger.Error(
				"can't create the rollups of a window; its raw rows are kept past their retention, or on Cassandra "+
					"expire without rollups",
				"window", u.Window, "tenant", u.Tenant, "failures", u.failures, "err", err, "do", doStuck,
			)
		}
		return
	}
	l.metrics.rolled.Inc()
	l.opts.Logger.Info("created missing rollups", "tenant", u.Tenant, "window", u.Window,
		"until", time.UnixMilli(u.EndMS).UTC(), "seals", u.Seals, "series", series)
}
