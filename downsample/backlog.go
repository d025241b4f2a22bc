package downsample

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/rollup"
)

// backlog is what an earlier release has sealed without rollups, as it was listed last. Every process that
// seals lists all of it and works off its own share: a window belongs to a partition, by its number and tenant.
type backlog struct {
	partitions func() int // how many there are by now

	mu     sync.Mutex
	listed time.Time // zero: not yet
	list   []unrolled
}

// unrolled is a window that lacks rollups.
type unrolled struct {
	storage.Unrolled
	streak
	next time.Time // not before
}

const (
	// relist is the time between two listings: windows are only added while an earlier release still runs.
	relist = 24 * time.Hour
	// retryFirst and retryMost are how long a window rests after its first failure in a row, and after many.
	retryFirst = time.Minute
	retryMost  = time.Hour
	// maxTime bounds times, milliseconds.
	maxTime = math.MaxInt64 / 4
)

func (b *backlog) partitionOf(u *storage.Unrolled) int {
	return int(xxhash.Sum64String(strconv.FormatInt(u.Window, 10)+" "+u.Tenant) % uint64(b.partitions()))
}

// set replaces the list by a newer one.
func (b *backlog) set(list []storage.Unrolled, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := map[storage.Unrolled]unrolled{}
	for _, u := range b.list {
		before[u.key()] = u
	}
	b.list = make([]unrolled, len(list))
	for i := range list {
		b.list[i] = unrolled{Unrolled: list[i]}
		if u, ok := before[b.list[i].key()]; ok {
			b.list[i].streak, b.list[i].next = u.streak, u.next
		}
	}
	b.listed = now
}

// key names the window.
func (u *unrolled) key() storage.Unrolled {
	return storage.Unrolled{Tenant: u.Tenant, Window: u.Window}
}

// stale reports whether it is time to list anew.
func (b *backlog) stale(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listed.IsZero() || now.Sub(b.listed) >= relist
}

// pick returns the oldest window that is due, among those whose partition is owned.
func (b *backlog) pick(now time.Time, owns func(int) bool) (unrolled, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.list {
		if !u.next.After(now) && owns(b.partitionOf(&u.Unrolled)) {
			return u, true
		}
	}
	return unrolled{}, false
}

// done takes a window off the list, or notes that it failed and reports whether somebody should hear of it now.
func (b *backlog) done(u *unrolled, err error, now time.Time) (tell bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.list {
		x := &b.list[i]
		if x.key() != u.key() {
			continue
		}
		if err == nil {
			b.list = append(b.list[:i:i], b.list[i+1:]...)
			return false
		}
		x.fail(err, now)
		x.next = now.Add(min(retryMost, retryFirst<<min(x.failures-1, 10)))
		return isLoggedAt(x.failures)
	}
	return false
}

// mine returns the windows whose partition is owned.
func (b *backlog) mine(owns func(int) bool) (list []unrolled, listed time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.list {
		if owns(b.partitionOf(&u.Unrolled)) {
			list = append(list, u)
		}
	}
	return list, b.listed
}

func (b *backlog) count(owns func(int) bool) int {
	list, _ := b.mine(owns)
	return len(list)
}

// rollUp makes missing rollups, a window after the other, the oldest first, until the next round is due.
func (l *Loop) rollUp(ctx context.Context, began time.Time) {
	if l.owned() == 0 {
		return
	}
	if l.backlog.stale(l.opts.Now()) {
		l.worker.work(ctx, "listing windows without rollups", l.lag, func(func()) {
			list, err := l.store.Unrolled(ctx, -maxTime, maxTime)
			l.task(ctx, "listing windows without rollups", err)
			if err == nil {
				l.backlog.set(list, l.opts.Now())
			}
		})
	}
	for ctx.Err() == nil && l.opts.Now().Sub(began) < l.opts.Interval {
		u, ok := l.backlog.pick(l.opts.Now(), l.owns)
		if !ok {
			return
		}
		// Where it is past its retention, raw rows go when the grace is over.
		lag := l.lag
		if u.EndMS <= l.store.Horizon(rollup.Raw) {
			lag = func() time.Duration { return hurryFull }
		}
		l.worker.work(ctx, fmt.Sprintf("making the rollups of window %d", u.Window), lag, func(pause func()) { l.rollUpOne(ctx, &u, pause) })
	}
}

func (l *Loop) rollUpOne(ctx context.Context, u *unrolled, pause func()) {
	series := 0
	err := panics.Do("making rollups", func() (err error) { series, err = l.store.RollUp(ctx, u.Unrolled, pause); return err })
	if ctx.Err() != nil {
		return
	}
	tell := l.backlog.done(u, err, l.opts.Now())
	if err != nil {
		l.failed(ctx, "making missing rollups", err, "window", u.Window, "tenant", u.Tenant)
		if tell {
			l.opts.Logger.Error("a window's rollups can't be made: its raw rows stay past their retention, or over Cassandra go without rollups",
				"window", u.Window, "tenant", u.Tenant, "failures", u.failures+1, "err", err, "do", doStuck)
		}
		return
	}
	l.metrics.rolled.Inc()
	l.opts.Logger.Info("made rollups that an earlier release had not", "tenant", u.Tenant, "window", u.Window,
		"until", time.UnixMilli(u.EndMS).UTC(), "seals", u.Seals, "series", series)
}
