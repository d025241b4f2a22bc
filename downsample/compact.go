package downsample

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage"
)

const (
	// compactRest is for how long nothing must have been written to a window of rollups that is over before it is compacted, and
	// compactAgainRest where it was compacted before: samples that come late trickle.
	compactRest      = 30 * time.Second
	compactAgainRest = 6 * time.Hour
)

// compactions are the windows of rollups that wait to be compacted.
type compactions struct {
	mu   sync.Mutex
	list []compaction // the oldest first
}

// compaction is a window, and since when nothing was written to it.
type compaction struct {
	storage.OverWindow
	streak
	since time.Time
	next  time.Time // not before
}

// set replaces the list by a newer one.
func (c *compactions) set(list []storage.OverWindow, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := map[string]*compaction{}
	for i := range c.list {
		before[c.list[i].key()] = &c.list[i]
	}
	fresh := make([]compaction, len(list))
	for i := range list {
		fresh[i] = compaction{OverWindow: list[i], since: now}
		if b, ok := before[fresh[i].key()]; ok {
			fresh[i].streak, fresh[i].next = b.streak, b.next
			if b.Same(&list[i]) && !b.since.After(now) { // Else the clock went back.
				fresh[i].since = b.since
			}
		}
	}
	c.list = fresh
}

func (c *compaction) key() string { return fmt.Sprint(c.Window, " ", c.Tenant) }

// rests reports whether a window has rested for long enough.
func (c *compaction) rests(now time.Time) bool {
	rest := compactRest
	if c.Again {
		rest = compactAgainRest
	}
	return now.Sub(c.since) >= rest && !c.next.After(now)
}

// pick returns the oldest window that may be compacted.
func (c *compactions) pick(now time.Time) (compaction, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.list {
		if x.rests(now) {
			return x, true
		}
	}
	return compaction{}, false
}

// done takes a window off the list, or notes that it failed.
func (c *compactions) done(of *compaction, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.list {
		x := &c.list[i]
		if x.key() != of.key() {
			continue
		}
		if err == nil {
			c.list = append(c.list[:i:i], c.list[i+1:]...)
			return
		}
		x.fail(err, now)
		x.next = now.Add(min(retryMost, retryFirst<<min(x.failures-1, 10)))
		return
	}
}

// status returns how many windows wait, and of those the first.
func (c *compactions) status() CompactionStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := CompactionStatus{Windows: len(c.list), First: []CompactionWindow{}}
	for _, x := range c.list[:min(len(c.list), shownWindows)] {
		w := CompactionWindow{
			Tenant: x.Tenant, Resolution: x.Resolution.String(), Start: instant(x.StartMS), End: instant(x.EndMS), Again: x.Again,
			RestsSince: utc(x.since), Failures: x.failures,
		}
		if x.err != nil {
			w.LastError, w.LastErrorAt = x.err.Error(), utc(x.at)
		}
		s.First = append(s.First, w)
	}
	return s
}

func (c *compactions) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.list)
}

// compact compacts windows of rollups that are over, the oldest first, until the next round is due.
func (l *Loop) compact(ctx context.Context, began time.Time) {
	if !l.store.Compacts() || l.owned() == 0 {
		return
	}
	l.worker.work(ctx, "listing windows to compact", l.lag, func(func()) {
		list, err := l.store.Compactable(ctx)
		l.task(ctx, "listing windows to compact", err)
		if err == nil {
			l.compactions.set(list, l.opts.Now())
		}
	})
	if _, due := l.backlog.pick(l.opts.Now(), l.owns); due { // It makes rollups of the same windows.
		return
	}
	for ctx.Err() == nil && l.opts.Now().Sub(began) < l.opts.Interval {
		c, ok := l.compactions.pick(l.opts.Now())
		if !ok {
			return
		}
		what := fmt.Sprintf("compacting the %s rollups until %s", c.Resolution, shortTime(c.EndMS))
		l.worker.work(ctx, what, l.lag, func(pause func()) { l.compactOne(ctx, &c, pause) })
	}
}

func (l *Loop) compactOne(ctx context.Context, c *compaction, pause func()) {
	stats, err := l.store.Compact(ctx, c.OverWindow, pause)
	if ctx.Err() != nil {
		return
	}
	l.compactions.done(c, err, l.opts.Now())
	l.task(ctx, "compacting rollups", err)
	if err != nil {
		return
	}
	l.metrics.compacted.Inc()
	if stats.Chunks > 0 || stats.Left > 0 {
		l.opts.Logger.Info("compacted rollups", "tenant", c.Tenant, "resolution", c.Resolution, "until", instant(c.EndMS), "series", stats.Series,
			"chunks", stats.Chunks, "left", stats.Left)
	}
}
