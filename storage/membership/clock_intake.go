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
	// minLoggedDifference is the smallest difference from the cluster's clock that is logged, and the smallest step of
	// a clock that is recorded and logged.
	minLoggedDifference = time.Minute
	// logInterval is the min interval between two log lines about a difference or a step.
	logInterval = 10 * time.Minute
	// aheadReset is the time without samples ahead of the clock after which the next such sample starts a new wait, see
	// ConfirmAhead.
	aheadReset = time.Hour
	// maxSlow is the max time by which a trusted clock may be slow on a single machine, and maxAnySlow the max time for
	// any clock, both in milliseconds.
	maxSlow    = int64(maxClockDifference / time.Millisecond)
	maxAnySlow = 100 * 365 * format.DayMS
)

// earliestNow is before any correct time, because this program didn't exist then.
var earliestNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Bounds returns the earlier and the later of the clock's time and the expected time, even if the clock is trusted.
// Samples are rejected permanently only if both times reject them: as too old by the earlier time, or as too far ahead
// by the later time. After the clock of a store's only process was set back, the later time is the time that the clock
// would otherwise show, until the expected time has followed the clock.
func (c *CheckedClock) Bounds() (earlier, later time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bounds(c.readClock())
}

// bounds implements Bounds for a time that was just read from the clock. The caller must hold mu.
func (c *CheckedClock) bounds(now time.Time) (earlier, later time.Time) {
	if now.Before(c.expected) {
		if later = now.Add(c.set.back); later.Before(c.expected) {
			later = c.expected
		}
		return now, later
	}
	return c.expected, now
}

// MayBeSlow reports whether this machine's clock may be slow by the given number of milliseconds. In a shared store it
// returns true up to maxAnySlow, because ConfirmAhead then compares the clock with the cluster's. A trusted clock on a
// single machine is slow by at most maxSlow, with three exceptions: it shows a time before this program was written, it
// was set back by at least the given number, or NTP hasn't had time to correct it since the store was opened or the
// clock was last set.
func (c *CheckedClock) MayBeSlow(by int64) bool {
	if !c.alone || by <= maxSlow || by > maxAnySlow {
		return by <= maxAnySlow
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.readClock()
	return c.doubt != nil || now.Before(earliestNow) || by <= c.set.slowBy.Milliseconds() ||
		c.seen-c.set.at < c.o.AheadPatience
}

// ConfirmAhead must be called before samples ahead of Bounds are rejected permanently, because this machine's clock may
// be slow.
//
//   - On a cluster it reads the cluster's clock again, and updates Bounds: a paused virtual machine doesn't measure the
//     pause. It returns an error if that clock can't be read.
//   - On a single machine there is no second clock. NTP corrects a clock within minutes, so the sender should retry for
//     the returned wait before its samples are rejected. The wait starts again after the clock was set, and after an
//     hour without samples ahead of the clock.
func (c *CheckedClock) ConfirmAhead() (wait time.Duration, err error) {
	switch {
	case c.o.Believing, !c.alone && c.theirs == nil:
		return 0, nil
	case !c.alone:
		return 0, c.compareAgain()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readClock()
	a := &c.ahead
	if !a.any || c.seen-a.last >= aheadReset {
		*a = aheadSamples{any: true, since: c.seen}
		if c.o.AheadPatience > 0 {
			c.o.Logger.Warn("samples are more than 10 minutes ahead of this machine's clock; senders get a retryable "+
				"error. Check the clocks of this machine and of the senders",
				"clock", c.read.UTC(), "for", c.o.AheadPatience)
		}
	}
	a.last = c.seen
	if wait = c.o.AheadPatience - (c.seen - a.since); wait > 0 {
		return wait, nil
	}
	if !a.rejected && c.o.AheadPatience > 0 {
		c.o.Logger.Warn(
			"samples are still more than 10 minutes ahead of this machine's clock, which was not corrected; from now "+
				"on they are rejected",
			"clock", c.read.UTC(),
		)
	}
	a.rejected = true
	return 0, nil
}

// aheadSamples records when samples ahead of the clock have arrived, on a single machine. Its times are observed
// uptime.
type aheadSamples struct {
	any, rejected bool
	since, last   time.Duration
}

// comparing serializes readings of the cluster's clock. It is locked during a reading.
type comparing struct {
	sync.Mutex
	// started counts the readings. ended is the number of the last completed reading, and err its error.
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

// compareAgain returns the error of a reading of the cluster's clock that was started after the call. Concurrent
// callers share a reading, even a failed one. Otherwise each of them would wait for a timeout of its own while the
// cluster doesn't respond.
func (c *CheckedClock) compareAgain() error { return c.compareAfter(c.comparing.started.Load()) }

// compareAfter implements compareAgain. before is the value of comparing.started at the call of compareAgain.
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
		return fmt.Errorf(
			"membership: samples are ahead of this machine's clock, and the cluster's clock can't be read to "+
				"determine which one is wrong: %w",
			err,
		)
	}
	return nil
}

// compareLocked implements compare. The caller must hold comparing.
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
	c.seen += c.measureElapsed(c.o.Now())
	c.expected = theirs.Round(0)
	c.logDifference(c.readClock().Round(0).Sub(c.expected))
	return nil
}

// clockNotes records which log lines were written last. Its times are observed uptime.
type clockNotes struct {
	// off is the last difference that was logged, 0 if there is none or if its end was logged.
	off time.Duration
	// offAt is the time of the last line about a difference, stepAt of the last line about a step, 0 if there is none.
	offAt, stepAt time.Duration
}

// logDifference logs that the clock differs from the cluster's, that the difference has doubled, or that it has ended.
func (c *CheckedClock) logDifference(off time.Duration) {
	n := &c.noted
	switch {
	case c.doubt != nil, n.offAt != 0 && c.seen-n.offAt < logInterval:
		return
	case off.Abs() >= minLoggedDifference && off.Abs() >= 2*n.off.Abs():
		n.off = off
		c.o.Logger.Warn(
			"this machine's clock is "+directionOf(off)+
				": it differs from the cluster's; correct it (NTP). From 6 hours on, no samples are accepted",
			"by", off.Abs().Round(time.Second),
		)
	case off.Abs() < minLoggedDifference/2 && n.off != 0:
		n.off = 0
		c.o.Logger.Info("this machine's clock matches the cluster's again", "by", off.Abs().Round(time.Millisecond))
	default:
		return
	}
	n.offAt = max(c.seen, 1)
}

// clockSet describes the last step of the clock of a store's only process, or the clock when the store was opened.
type clockSet struct {
	// opened is true until the first reading after the store was opened. at is the observed uptime at the step.
	opened bool
	at     time.Duration
	// slowBy is how slow the clock was after the step, compared with the expected time. back is the same value, but is
	// reset to 0 once the expected time has followed the clock.
	slowBy, back time.Duration
}

// recordStep records and logs a step: the clock has moved by more or less than the measured time. by is that
// difference, and off the clock's difference from the expected time. The caller must hold mu.
func (c *CheckedClock) recordStep(by, off time.Duration) {
	if by.Abs() >= minLoggedDifference || c.set.opened {
		c.set = clockSet{at: c.seen, slowBy: max(0, -off), back: max(0, -off)}
	}
	if by.Abs() < minLoggedDifference {
		return
	}
	c.ahead = aheadSamples{}
	if n := &c.noted; c.alone && !c.o.Believing && (n.stepAt == 0 || c.seen-n.stepAt >= logInterval) {
		n.stepAt = max(c.seen, 1)
		c.o.Logger.Info("this machine's clock was changed, or the machine was suspended",
			"by", by.Round(time.Second), "clock", c.read.UTC())
	}
}

// directionOf returns "slow" if off is negative, otherwise "fast".
func directionOf(off time.Duration) string {
	if off < 0 {
		return "slow"
	}
	return "fast"
}
