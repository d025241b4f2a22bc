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
	// MaxLeap is how much time may have passed, by the clock of a store's only process, that nobody measured: while the
	// machine was off, or asleep. It lies well within the grace, so a wrong clock that is believed drops nothing that is kept.
	MaxLeap = 72 * time.Hour
	// followRate is how much of that is taken for real while one unit of time is measured.
	followRate = 4
	// doubtShare is the share of what a doubted clock differs by that it must run for, to be believed; minDoubt is the least.
	doubtShare = 30
	minDoubt   = time.Hour
	// keepInterval is how much time passes between two beats of the store's clock.
	keepInterval = time.Minute
)

// CheckedClock holds this process' clock against a second one: the engine's, or what the store has seen of time. It only ever
// doubts, and corrects nothing. See design/clocks.md.
//
//	elapsed ─► expected ─┐
//	                     ├─ differ by too much ─► doubt: nothing is removed ─► set right, or long enough even ─► believed
//	Now ─────────────────┘
type CheckedClock struct {
	o  *Options
	mu sync.Mutex
	// open ends with the member; nil: the store is only looked at.
	open context.Context
	// alone is true if there is no second clock but the store's seen time; theirs is the engine's, nil: it has none.
	alone  bool
	theirs engine.Clock
	// read is the last reading of the clock, ran that of Options.Elapsed.
	read time.Time
	ran  time.Duration
	// seen is how much time the store has seen pass; kept is how much of that is durable, wrote how much is being made so.
	seen, kept, wrote time.Duration
	// expected is what the time should be; unkept is true while it follows from what isn't durable yet: an operator's date, or, where there
	// is no row, what the store has.
	expected time.Time
	unkept   bool
	// doubt is nil while the clock is believed.
	doubt *doubt
	// set is how the only clock was set last.
	set clockSet
	// noted is what the log has of differences and steps; ahead are samples ahead of the clock; comparing orders readings of theirs.
	noted     clockNotes
	ahead     aheadSamples
	comparing comparing
}

// doubt is since when, and why, a clock isn't believed.
type doubt struct {
	// by is by how much it was ahead of the expected time; negative: behind.
	by time.Duration
	// since is what the store had seen when that began, and clock the clock's time then.
	since time.Duration
	clock time.Time
}

// rest is how long a clock that is doubted must run evenly to be believed. What differs by more has to run longer, but
// not longer than all of the store's seen time.
func (d *doubt) rest() time.Duration { return max(minDoubt, min(d.by.Abs()/doubtShare, d.since)) }

// start makes the clock's present time the expected one.
func (c *CheckedClock) start() {
	c.read = c.o.Now()
	c.expected = c.read.Round(0)
	c.set.opened = true
	if c.o.Elapsed != nil {
		c.ran = c.o.Elapsed()
	}
}

// passed returns how much time was measured since the last reading, which it makes the present one.
func (c *CheckedClock) passed(now time.Time) time.Duration {
	d := now.Sub(c.read)
	if c.o.Elapsed != nil {
		ran := c.o.Elapsed()
		d, c.ran = ran-c.ran, ran
	}
	c.read = now
	return max(d, 0)
}

// look reads the clock, and returns its time. It needs the lock.
func (c *CheckedClock) look() time.Time {
	now := c.o.Now()
	if c.read.IsZero() { // The store isn't open: it is only looked at.
		c.expected = now.Round(0)
		return now
	}
	before := c.read
	passed := c.passed(now)
	c.seen += passed
	c.expected = c.expected.Add(passed)
	off := now.Round(0).Sub(c.expected)
	c.noteStep(now.Round(0).Sub(before.Round(0))-passed, off)
	switch {
	case !c.alone && c.theirs == nil, c.o.Believing:
		c.expected = now.Round(0) // There is no better source.
	case !c.alone && off.Abs() > maxClockOff:
		if c.doubt == nil {
			c.doubt = &doubt{by: off, since: c.seen, clock: now.Round(0)}
			c.o.Logger.Error("this machine's clock differs from the cluster's, so no samples are accepted, and nothing is sealed or deleted; correct the clock", "by", off)
		}
	case !c.alone:
		c.believeAgain()
	case off.Abs() <= MaxLeap:
		c.believeAgain()
		c.expected = c.expected.Add(max(-followRate*passed, min(off, followRate*passed)))
	default:
		c.weigh(now.Round(0), off)
	}
	if !now.Before(c.expected) {
		c.set.back = 0 // It was followed.
	}
	return now
}

// weigh doubts a clock that is further off than can be explained, until it has run evenly for long enough.
func (c *CheckedClock) weigh(now time.Time, off time.Duration) {
	switch {
	case c.saidToday(now):
		c.expected, c.unkept = now, true
		c.believeAgain()
	case c.doubt == nil || (off-c.doubt.by).Abs() > MaxLeap:
		c.doubt = &doubt{by: off, since: c.seen, clock: now}
		c.o.Logger.Error("this machine's clock is untrusted; nothing is deleted until it is right, or has run evenly for long enough",
			"by", off.Round(time.Second), "clock", now.UTC(), "expected", c.expected.UTC(), "for", c.doubt.rest().Round(time.Minute), "do", c.doClock())
	case c.seen-c.doubt.since >= c.doubt.rest():
		c.expected = now
		c.believeAgain()
	}
}

// saidToday reports whether an operator named the clock's date, in whatever time zone.
func (c *CheckedClock) saidToday(now time.Time) bool {
	const zone = 14 * time.Hour
	day := c.o.Today
	return !day.IsZero() && now.After(day.Add(-zone)) && now.Before(day.Add(24*time.Hour+zone))
}

func (c *CheckedClock) believeAgain() {
	if d := c.doubt; d != nil {
		c.doubt = nil
		c.o.Logger.Warn("this machine's clock is trusted again", "clock", c.read.UTC(), "after", (c.seen - d.since).Round(time.Second), "differed by", d.by.Round(time.Second))
	}
}

func (c *CheckedClock) doClock() string {
	if !c.alone {
		return "correct the clock"
	}
	return "correct the clock; or if it is right, start once with --storage.today=" + c.read.UTC().Format(time.DateOnly) + ", or wait"
}

// MayRemove returns nil if this process' clock is believed, so that it may remove data: hide, drop, delete, clean, move
// marks, or take over another's work. Otherwise it returns an error that wraps ErrClock.
func (c *CheckedClock) MayRemove() error {
	if err := c.mayChange(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look().Round(0)
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
	err := fmt.Errorf("%w: %s is %v %s %s; %s", ErrClock, now.UTC().Format(time.RFC3339), off.Abs(), way, than, c.doClock())
	if c.alone {
		err = fmt.Errorf("%w: it will be trusted after running evenly for %v more", err, max(c.doubt.rest()-(c.seen-c.doubt.since), 0).Round(time.Second))
	}
	return err
}

// mayChange returns an error if nothing may be written at all: the store was opened to look at it.
func (c *CheckedClock) mayChange() error {
	if c.o.ReadOnly {
		return engine.ErrReadOnly
	}
	return nil
}

// Times returns what the time is: twice the same while the clock is believed, and otherwise the earlier and the later of
// the clock's time and the expected one. The earlier decides what stays, the later what may exist.
func (c *CheckedClock) Times() (earlier, later time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look()
	if c.doubt == nil {
		return now, now
	}
	return c.bounds(now)
}

// Earliest returns what the time is by this machine's clock, or by that of the engine where that is behind; on one machine, where
// it isn't believed, the expected time, if that is earlier.
func (c *CheckedClock) Earliest() time.Time {
	if c.alone {
		earlier, _ := c.Times()
		return earlier
	}
	off, _ := c.Off()
	return c.o.Now().Add(-max(off, 0))
}

// EngineTime returns what the time is by the engine's clock, where it has one, and otherwise the earlier of Times.
func (c *CheckedClock) EngineTime() time.Time {
	if c.theirs == nil {
		now, _ := c.Times()
		return now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	return c.expected
}

// Settling reports whether a slot that is over by the clock may still be going on by the expected time.
func (c *CheckedClock) Settling(end, settle int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	expected := c.expected.UnixMilli()
	return c.doubt != nil && end+settle >= expected && end < expected+format.DayMS
}

// SeenMS is how much time the store has seen pass, milliseconds: what its processes have measured while they ran, and no
// more, wherever a clock is set. It is durable, never falls, and over a shared engine no process adds to it time that another
// one has measured, too. What hides first and drops later counts the time between in it.
func (c *CheckedClock) SeenMS() int64 {
	if c.open != nil {
		ctx, cancel := context.WithTimeout(c.open, CommitTimeout)
		defer cancel()
		if err := c.KeepSeen(ctx); err != nil && ctx.Err() == nil {
			c.o.Logger.Warn("can't record the elapsed time; hidden samples are deleted later", "err", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Milliseconds()
}

// SeenKept is SeenMS as it was written last, which is behind by a minute or so.
func (c *CheckedClock) SeenKept() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Milliseconds()
}

// run keeps the seen time durable until ctx ends, where no beats of the process do that.
func (c *CheckedClock) run(ctx context.Context) {
	every(ctx, keepInterval, c.KeepSeen, func(err error) {
		c.o.Logger.Warn("can't record the elapsed time; retrying at the next heartbeat", "err", err)
	})
}

// Off is by how much the clock is ahead of the expected time, and whether it isn't believed.
func (c *CheckedClock) Off() (off time.Duration, doubted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.look().Round(0).Sub(c.expected), c.doubt != nil
}
