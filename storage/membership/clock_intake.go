package membership

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage/format"
)

const (
	// noteOff is the difference from the cluster's clock, and the step of a clock, from which the log has a line.
	noteOff = time.Minute
	// noteEvery is the shortest interval between two such lines.
	noteEvery = 10 * time.Minute
	// aheadRest is how long no sample was ahead of the clock when the next one is taken for another fault.
	aheadRest = time.Hour
	// maxSlow is how slow the only clock may be while it is trusted, maxAnySlow how slow any clock, milliseconds.
	maxSlow    = int64(maxClockOff / time.Millisecond)
	maxAnySlow = 100 * 365 * format.DayMS
)

// earliestNow is a time before which no right clock shows.
var earliestNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Bounds returns the earlier and the later of the clock's time and the expected one, also while the clock is trusted. Samples are
// rejected for good only if both reject them: as too old by the earlier, as too far ahead by the later. As long as the only clock is followed that was
// set back, the later is the time that it would show otherwise.
func (c *CheckedClock) Bounds() (earlier, later time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bounds(c.look())
}

// bounds is Bounds for a time that was just read from the clock.
func (c *CheckedClock) bounds(now time.Time) (earlier, later time.Time) {
	if now.Before(c.expected) {
		if later = now.Add(c.set.back); later.Before(c.expected) {
			later = c.expected
		}
		return now, later
	}
	return c.expected, now
}

// MayBeSlow reports whether this machine's clock may be slow by a number of milliseconds. A trusted clock isn't by more than maxSlow, unless
// the time that it shows is before this program was written, a cluster's clock can show the difference, it was set back by that, or NTP hasn't had
// time to set it since the store was opened, or since it was set last.
func (c *CheckedClock) MayBeSlow(by int64) bool {
	if !c.alone || by <= maxSlow || by > maxAnySlow {
		return by <= maxAnySlow
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look()
	return c.doubt != nil || now.Before(earliestNow) || by <= c.set.slowBy.Milliseconds() || c.seen-c.set.at < c.o.AheadPatience
}

// ConfirmAhead is called before samples ahead of Bounds are rejected for good: this machine's clock may be slow.
//
//   - On a cluster it reads the cluster's clock again, by which Bounds goes from then on: a virtual machine that was paused doesn't
//     measure that. An error means that it can't be read.
//   - On one machine there is no second clock. wait is how much longer the sender should send such samples again: NTP sets a clock
//     within minutes. It starts over when the clock was set, and after an hour without such samples.
func (c *CheckedClock) ConfirmAhead() (wait time.Duration, err error) {
	switch {
	case c.o.Believing, !c.alone && c.theirs == nil:
		return 0, nil
	case !c.alone:
		return 0, c.compareAgain()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	a := &c.ahead
	if !a.any || c.seen-a.last >= aheadRest {
		*a = aheadSamples{any: true, since: c.seen}
		if c.o.AheadPatience > 0 {
			c.o.Logger.Warn("samples are more than 10 minutes ahead of this machine's clock; senders get a retryable error. Check the clocks of this "+
				"machine and of the senders",
				"clock", c.read.UTC(), "for", c.o.AheadPatience)
		}
	}
	a.last = c.seen
	if wait = c.o.AheadPatience - (c.seen - a.since); wait > 0 {
		return wait, nil
	}
	if !a.rejected && c.o.AheadPatience > 0 {
		c.o.Logger.Warn("samples are still more than 10 minutes ahead of this machine's clock, which was not corrected; from now on they are rejected", "clock", c.read.UTC())
	}
	a.rejected = true
	return 0, nil
}

// aheadSamples are samples ahead of the only clock, by the time that the store has seen.
type aheadSamples struct {
	any, rejected bool
	since, last   time.Duration
}

// comparing is held while the cluster's clock is read.
type comparing struct {
	sync.Mutex
	// started numbers the readings; ended is the last one that has ended, with err.
	started atomic.Int64
	ended   int64
	err     error
}

// compare reads the cluster's clock.
func (c *CheckedClock) compare(ctx context.Context) error {
	c.comparing.Lock()
	defer c.comparing.Unlock()
	return c.compareLocked(ctx)
}

// compareAgain returns what a reading resulted in that started after the call. Concurrent callers share one, also one that failed: while the
// cluster doesn't answer they would otherwise wait for each other's timeouts.
func (c *CheckedClock) compareAgain() error { return c.compareAfter(c.comparing.started.Load()) }

// compareAfter is compareAgain for a call when that many readings had started.
func (c *CheckedClock) compareAfter(before int64) error {
	c.comparing.Lock()
	defer c.comparing.Unlock()
	err := c.comparing.err
	if c.comparing.ended <= before {
		ctx, cancel := context.WithTimeout(c.open, CommitTimeout)
		defer cancel()
		err = c.compareLocked(ctx)
	}
	if err != nil {
		return fmt.Errorf("membership: samples are ahead of this machine's clock, and the cluster's clock can't be read to determine which one is wrong: %w", err)
	}
	return nil
}

// compareLocked is compare for a caller that holds comparing.
func (c *CheckedClock) compareLocked(ctx context.Context) error {
	n := c.comparing.started.Add(1)
	theirs, err := c.theirs.Clock(ctx)
	if err != nil {
		err = fmt.Errorf("membership: reading the engine's clock: %w", err)
	}
	if c.comparing.ended, c.comparing.err = n, err; err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen += c.passed(c.o.Now())
	c.expected = theirs.Round(0)
	c.noteDifference(c.look().Round(0).Sub(c.expected))
	return nil
}

// clockNotes are the lines that the log has, by the time that the store has seen.
type clockNotes struct {
	// off is the difference that the log has last; 0: none, or it has ended.
	off time.Duration
	// offAt and stepAt are when the log had a line; 0: never.
	offAt, stepAt time.Duration
}

// noteDifference logs that the clock differs from the cluster's, differs by twice as much, or no longer does.
func (c *CheckedClock) noteDifference(off time.Duration) {
	n := &c.noted
	switch {
	case c.doubt != nil, n.offAt != 0 && c.seen-n.offAt < noteEvery:
		return
	case off.Abs() >= noteOff && off.Abs() >= 2*n.off.Abs():
		n.off = off
		c.o.Logger.Warn("this machine's clock is "+wayOf(off)+": it differs from the cluster's; correct it (NTP). From 6 hours on, no samples are accepted", "by", off.Abs().Round(time.Second))
	case off.Abs() < noteOff/2 && n.off != 0:
		n.off = 0
		c.o.Logger.Info("this machine's clock matches the cluster's again", "by", off.Abs().Round(time.Millisecond))
	default:
		return
	}
	n.offAt = max(c.seen, 1)
}

// clockSet is how the only clock was set last, or what it showed when the store was opened.
type clockSet struct {
	// opened is true until it was looked at since then; at is what the store had seen when it was set.
	opened bool
	at     time.Duration
	// slowBy is by how much it was behind the expected time then; back is the same until the expected time has followed.
	slowBy, back time.Duration
}

// noteStep logs that the only clock has moved by more or less than the time that was measured, and remembers how far it is ahead of the expected time now.
func (c *CheckedClock) noteStep(by, off time.Duration) {
	if by.Abs() >= noteOff || c.set.opened {
		c.set = clockSet{at: c.seen, slowBy: max(0, -off), back: max(0, -off)}
	}
	if by.Abs() < noteOff {
		return
	}
	c.ahead = aheadSamples{}
	if n := &c.noted; c.alone && !c.o.Believing && (n.stepAt == 0 || c.seen-n.stepAt >= noteEvery) {
		n.stepAt = max(c.seen, 1)
		c.o.Logger.Info("this machine's clock was changed, or the machine was suspended", "by", by.Round(time.Second), "clock", c.read.UTC())
	}
}

// wayOf returns how a clock is that is ahead by off.
func wayOf(off time.Duration) string {
	if off < 0 {
		return "slow"
	}
	return "fast"
}
