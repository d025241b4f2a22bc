package membership

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

const (
	// MaxLeap is the max unmeasured time, such as the time when the machine was off or suspended, by which the clock of
	// a store's only process may advance and still be trusted. It is well within the grace period of deletions, so a
	// wrong clock within this bound deletes no data that is within its retention.
	MaxLeap = 72 * time.Hour
	// followRate bounds how fast the expected time approaches a clock that differs by at most MaxLeap, per unit of
	// measured time.
	followRate = 4
	// doubtShare determines when an untrusted clock is trusted again: after it has run evenly for its difference
	// divided by doubtShare, but at least for minDoubt.
	doubtShare = 30
	minDoubt   = time.Hour
	// storeInterval is the interval between writes of the observed uptime.
	storeInterval = time.Minute
)

// CheckedClock compares this process' clock with a second one: the engine's, or the store's observed uptime. It decides
// whether the clock is trusted, and never corrects it. See design/clocks.md.
//
//	elapsed ─► expected ─┐
//	                     ├─ differ too much ─► untrusted: nothing is deleted ─► set, or even long enough ─► trusted
//	Now ─────────────────┘
type CheckedClock struct {
	o  *Options
	mu sync.Mutex
	// open is canceled by Close. It is nil if the store isn't open.
	open context.Context
	// alone is true if this process is the store's only one, so that the observed uptime is its second clock. theirs is
	// the engine's clock, nil if the engine has none.
	alone  bool
	theirs engine.Clock
	// read is the last reading of the clock, and ran the value of Options.Elapsed at that reading.
	read time.Time
	ran  time.Duration
	// seen is the store's observed uptime, kept the last value that was written successfully, and wrote the last value
	// whose write was started.
	seen, kept, wrote time.Duration
	// expected is the time that the clock should show. unkept is true while expected depends on a value that isn't
	// durable: the operator's date or, if the row is missing, the store's contents.
	expected time.Time
	unkept   bool
	// doubt is nil while the clock is trusted.
	doubt *doubt
	// set describes the last step of the clock, if this process is the store's only one.
	set clockSet
	// noted contains the differences and steps that were logged last, and ahead the last samples that were ahead of the
	// clock. comparing serializes readings of theirs.
	noted     clockNotes
	ahead     aheadSamples
	comparing comparing
}

// doubt records when and why a clock became untrusted.
type doubt struct {
	// by is the difference between the clock and the expected time, negative if the clock was slow.
	by time.Duration
	// since is the observed uptime when the clock became untrusted, and clock the time that the clock showed then.
	since time.Duration
	clock time.Time
}

// trustDelay returns how long an untrusted clock must run evenly before it is trusted. A larger difference takes
// longer, up to the store's observed uptime.
func (d *doubt) trustDelay() time.Duration { return max(minDoubt, min(d.by.Abs()/doubtShare, d.since)) }

// start makes the clock's current time the expected time.
func (c *CheckedClock) start() {
	c.read = c.o.Now()
	c.expected = c.read.Round(0)
	c.set.opened = true
	if c.o.Elapsed != nil {
		c.ran = c.o.Elapsed()
	}
}

// measureElapsed returns the time measured since the last reading, and records a new reading.
func (c *CheckedClock) measureElapsed(now time.Time) time.Duration {
	d := now.Sub(c.read)
	if c.o.Elapsed != nil {
		ran := c.o.Elapsed()
		d, c.ran = ran-c.ran, ran
	}
	c.read = now
	return max(d, 0)
}

// readClock reads the clock, updates the observed uptime, the expected time and the trust in the clock, and returns the
// clock's time. The caller must hold mu.
func (c *CheckedClock) readClock() time.Time {
	now := c.o.Now()
	if c.read.IsZero() { // The store isn't open.
		c.expected = now.Round(0)
		return now
	}
	before := c.read
	passed := c.measureElapsed(now)
	c.seen += passed
	c.expected = c.expected.Add(passed)
	off := now.Round(0).Sub(c.expected)
	c.recordStep(now.Round(0).Sub(before.Round(0))-passed, off)
	switch {
	case !c.alone && c.theirs == nil, c.o.Believing:
		c.expected = now.Round(0) // There is no second clock.
	case !c.alone && off.Abs() > maxClockDifference:
		if c.doubt == nil {
			c.doubt = &doubt{by: off, since: c.seen, clock: now.Round(0)}
			c.o.Logger.Error(
				"this machine's clock differs from the cluster's, so no samples are accepted, and nothing is sealed "+
					"or deleted; correct the clock",
				"by", off,
			)
		}
	case !c.alone:
		c.trustAgain()
	case off.Abs() <= MaxLeap:
		c.trustAgain()
		c.expected = c.expected.Add(max(-followRate*passed, min(off, followRate*passed)))
	default:
		c.checkDifference(now.Round(0), off)
	}
	if !now.Before(c.expected) {
		c.set.back = 0 // The expected time has caught up.
	}
	return now
}

// checkDifference decides about a clock whose difference from the expected time is too large. It marks the clock as
// untrusted, until the operator confirms the date or the clock has run evenly for long enough.
func (c *CheckedClock) checkDifference(now time.Time, off time.Duration) {
	switch {
	case c.isConfirmedDate(now):
		c.expected, c.unkept = now, true
		c.trustAgain()
	case c.doubt == nil || (off-c.doubt.by).Abs() > MaxLeap:
		c.doubt = &doubt{by: off, since: c.seen, clock: now}
		c.o.Logger.Error(
			"this machine's clock is untrusted; nothing is deleted until it is right, or has run evenly for long "+
				"enough",
			"by", off.Round(time.Second), "clock", now.UTC(), "expected", c.expected.UTC(),
			"for", c.doubt.trustDelay().Round(time.Minute), "do", c.remedy(),
		)
	case c.seen-c.doubt.since >= c.doubt.trustDelay():
		c.expected = now
		c.trustAgain()
	}
}

// isConfirmedDate reports whether the clock shows the date that the operator specified, in any time zone.
func (c *CheckedClock) isConfirmedDate(now time.Time) bool {
	const zone = 14 * time.Hour
	day := c.o.Today
	return !day.IsZero() && now.After(day.Add(-zone)) && now.Before(day.Add(24*time.Hour+zone))
}

func (c *CheckedClock) trustAgain() {
	if d := c.doubt; d != nil {
		c.doubt = nil
		c.o.Logger.Warn("this machine's clock is trusted again",
			"clock", c.read.UTC(), "after", (c.seen - d.since).Round(time.Second),
			"differed by", d.by.Round(time.Second))
	}
}

func (c *CheckedClock) remedy() string {
	if !c.alone {
		return "correct the clock"
	}
	return "correct the clock; or if it is right, start once with --storage.today=" +
		c.read.UTC().Format(time.DateOnly) + ", or wait"
}

// MayRemove returns nil if this process' clock is trusted. Only then may the process hide, delete or clean data, move
// retention boundaries, or take over work of another process. Otherwise MayRemove returns an error that wraps ErrClock,
// or engine.ErrReadOnly if the store is read-only.
func (c *CheckedClock) MayRemove() error {
	if err := c.mayChange(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.readClock().Round(0)
	if c.doubt == nil {
		return nil
	}
	off, than := now.Sub(c.expected).Round(time.Second), "the cluster's"
	if c.alone {
		than = "the time last recorded in the store"
	}
	way := "ahead of"
	if off < 0 {
		way = "behind"
	}
	err := fmt.Errorf(
		"%w: %s is %v %s %s; %s", ErrClock, now.UTC().Format(time.RFC3339), off.Abs(), way, than, c.remedy(),
	)
	if c.alone {
		err = fmt.Errorf("%w: it will be trusted after running evenly for %v more",
			err, max(c.doubt.trustDelay()-(c.seen-c.doubt.since), 0).Round(time.Second))
	}
	return err
}

// mayChange returns engine.ErrReadOnly if the store is read-only.
func (c *CheckedClock) mayChange() error {
	if c.o.ReadOnly {
		return engine.ErrReadOnly
	}
	return nil
}

// Times returns the earlier and the later of the clock's time and the expected time, or the clock's time twice if the
// clock is trusted. Use the earlier time to decide which data is within retention, and the later one to bound the data
// that may exist.
func (c *CheckedClock) Times() (earlier, later time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.readClock()
	if c.doubt == nil {
		return now, now
	}
	return c.bounds(now)
}

// Earliest returns the earlier of the times by this machine's clock and by the engine's. On a single machine it returns
// the earlier result of Times.
func (c *CheckedClock) Earliest() time.Time {
	if c.alone {
		earlier, _ := c.Times()
		return earlier
	}
	off, _ := c.Difference()
	return c.o.Now().Add(-max(off, 0))
}

// EngineTime returns the time of the engine's clock, or the earlier result of Times if the engine has no clock.
func (c *CheckedClock) EngineTime() time.Time {
	if c.theirs == nil {
		now, _ := c.Times()
		return now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readClock()
	return c.expected
}

// IsSettling reports whether a slot that has ended by the clock may still be in progress by the expected time.
func (c *CheckedClock) IsSettling(end, settle int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readClock()
	expected := c.expected.UnixMilli()
	return c.doubt != nil && end+settle >= expected && end < expected+format.DayMS
}

// ObservedUptimeMS returns the store's observed uptime in milliseconds: the time that its processes have measured while
// they ran, regardless of changes of their clocks. It is durable and never decreases. In a shared store, time that
// multiple processes measure concurrently counts once. The grace period between hiding and deleting data is measured in
// observed uptime.
func (c *CheckedClock) ObservedUptimeMS() int64 {
	if c.open != nil {
		ctx, cancel := context.WithTimeout(c.open, CommitTimeout)
		defer cancel()
		if err := c.StoreUptime(ctx); err != nil && ctx.Err() == nil {
			c.o.Logger.Warn("can't record the elapsed time; hidden samples are deleted later", "err", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Milliseconds()
}

// StoredUptimeMS returns the observed uptime of the last successful write, usually about a minute old.
func (c *CheckedClock) StoredUptimeMS() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Milliseconds()
}

// run writes the observed uptime once per storeInterval until ctx ends, in a store without heartbeats.
func (c *CheckedClock) run(ctx context.Context) {
	runEvery(ctx, storeInterval, c.StoreUptime, func(err error) {
		c.o.Logger.Warn("can't record the elapsed time; retrying at the next heartbeat", "err", err)
	})
}

// Difference returns the difference of the clock from the expected time, positive if the clock is fast, and whether the
// clock is untrusted.
func (c *CheckedClock) Difference() (off time.Duration, doubted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readClock().Round(0).Sub(c.expected), c.doubt != nil
}
