package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

const (
	// maxLeap is how much time may have passed, by the clock of a store's only process, that nobody measured: while the
	// machine was off, or asleep. It lies well within the grace, so a wrong clock that is believed drops nothing that is kept.
	maxLeap = 72 * time.Hour
	// followRate is how much of that is taken for real while one unit of time is measured.
	followRate = 4
	// doubtShare is the share of what a doubted clock differs by that it must run for, to be believed; minDoubt is the least.
	doubtShare = 30
	minDoubt   = time.Hour
	// keepInterval is how much time passes between two beats of the store's clock.
	keepInterval = time.Minute
)

// clock holds this process' clock against a second one: the engine's, or what the store has seen of time. It only ever
// doubts, and corrects nothing. See decisions/016.
//
//	elapsed ─► expected ─┐
//	                     ├─ differ by too much ─► doubt: nothing is removed ─► set right, or long enough even ─► believed
//	Now ─────────────────┘
type clock struct {
	mu sync.Mutex
	// alone says that there is no second clock but what the store has seen; theirs is the engine's, nil: it has none.
	alone  bool
	theirs engine.Clock
	// read is the last reading of the clock, ran that of Options.Elapsed.
	read time.Time
	ran  time.Duration
	// seen is how much time the store has seen pass; kept is how much of that is durable, wrote how much is being made so.
	seen, kept, wrote time.Duration
	// expected is what the time should be; told says that it follows from what an operator said, and isn't durable yet.
	expected time.Time
	told     bool
	// doubt is nil while the clock is believed.
	doubt *doubt
	// staged are the times at which something may be staged, where the process is alone; stagedKept are those that are durable.
	staged, stagedKept timeSpans
}

// doubt is since when, and why, a clock isn't believed.
type doubt struct {
	// by is by how much it was ahead of what was expected; negative: behind.
	by time.Duration
	// since is what the store had seen when that began, and clock what the clock said.
	since time.Duration
	clock time.Time
}

// rest is how long a clock that is doubted must run evenly to be believed. What differs by more has to run longer, but
// not longer than the store knows of time at all.
func (d *doubt) rest() time.Duration { return max(minDoubt, min(d.by.Abs()/doubtShare, d.since)) }

// start makes the clock expect what it says.
func (c *clock) start(o *Options) {
	c.read = o.Now()
	c.expected = c.read.Round(0)
	if o.Elapsed != nil {
		c.ran = o.Elapsed()
	}
}

// passed returns how much time was measured since the last reading, which it makes the present one.
func (c *clock) passed(o *Options, now time.Time) time.Duration {
	d := now.Sub(c.read)
	if o.Elapsed != nil {
		ran := o.Elapsed()
		d, c.ran = ran-c.ran, ran
	}
	c.read = now
	return max(d, 0)
}

// look reads the clock, and returns what it says. It needs the lock.
func (s *Store) look() time.Time {
	c, now := &s.clock, s.opts.Now()
	if c.read.IsZero() { // The store isn't open: it is only looked at.
		c.expected = now.Round(0)
		return now
	}
	passed := c.passed(&s.opts, now)
	c.seen += passed
	c.expected = c.expected.Add(passed)
	off := now.Round(0).Sub(c.expected)
	switch {
	case !c.alone && c.theirs == nil, s.opts.seams.believing:
		c.expected = now.Round(0) // Nobody knows better.
	case !c.alone && off.Abs() > maxClockOff:
		if c.doubt == nil {
			c.doubt = &doubt{by: off, since: c.seen, clock: now.Round(0)}
			s.opts.Logger.Error("this machine's clock differs from the cluster's: no samples are taken, and nothing is sealed or removed; set it", "by", off)
		}
	case !c.alone:
		s.believeAgain()
	case off.Abs() <= maxLeap:
		s.believeAgain()
		c.expected = c.expected.Add(max(-followRate*passed, min(off, followRate*passed)))
	default:
		s.weigh(now.Round(0), off)
	}
	return now
}

// weigh doubts a clock that is further off than can be explained, until it has run evenly for long enough.
func (s *Store) weigh(now time.Time, off time.Duration) {
	c := &s.clock
	switch {
	case s.saidToday(now):
		c.expected, c.told = now, true
		s.believeAgain()
	case c.doubt == nil || (off-c.doubt.by).Abs() > maxLeap:
		c.doubt = &doubt{by: off, since: c.seen, clock: now}
		s.opts.Logger.Error("this machine's clock isn't believed: nothing is removed until it is right, or has run on for long enough",
			"by", off.Round(time.Second), "clock", now.UTC(), "expected", c.expected.UTC(), "for", c.doubt.rest().Round(time.Minute), "do", s.doClock())
	case c.seen-c.doubt.since >= c.doubt.rest():
		c.expected = now
		s.believeAgain()
	}
}

// saidToday says whether an operator named the clock's date, in whatever time zone.
func (s *Store) saidToday(now time.Time) bool {
	const zone = 14 * time.Hour
	day := s.opts.Today
	return !day.IsZero() && now.After(day.Add(-zone)) && now.Before(day.Add(24*time.Hour+zone))
}

func (s *Store) believeAgain() {
	if d := s.clock.doubt; d != nil {
		s.clock.doubt = nil
		s.opts.Logger.Warn("this machine's clock is believed again", "clock", s.clock.read.UTC(), "after", (s.clock.seen - d.since).Round(time.Second), "it differed by", d.by.Round(time.Second))
	}
}

func (s *Store) doClock() string {
	if !s.clock.alone {
		return "set the clock"
	}
	return "set the clock; or if it is right, start once with --storage.today=" + s.clock.read.UTC().Format(time.DateOnly) + ", or wait"
}

// believed returns nil if this process' clock is believed, so that it may remove data: hide, drop, delete, clean, move
// marks, or take over what is another's. Otherwise it returns an error that wraps ErrClock.
func (s *Store) believed() error {
	if err := s.mayChange(); err != nil {
		return err
	}
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	now := s.look().Round(0)
	if c.doubt == nil {
		return nil
	}
	off, than := now.Sub(c.expected).Round(time.Second), "the cluster's"
	if c.alone {
		than = "what this store has seen of time"
	}
	way := "ahead of"
	if off < 0 {
		way = "behind"
	}
	err := fmt.Errorf("%w: %s is %v %s %s; %s", ErrClock, now.UTC().Format(time.RFC3339), off.Abs(), way, than, s.doClock())
	if c.alone {
		err = fmt.Errorf("%w: it is believed when it has run evenly for %v more", err, max(c.doubt.rest()-(c.seen-c.doubt.since), 0).Round(time.Second))
	}
	return err
}

// mayChange says why nothing may be written at all: the store was opened to look at it.
func (s *Store) mayChange() error {
	if s.opts.ReadOnly {
		return engine.ErrReadOnly
	}
	return nil
}

// MayRemove says why this process may not remove anything, nor take over what is another's: its clock isn't believed.
func (s *Store) MayRemove() error { return s.believed() }

// maySeal says why nothing should be sealed. A store's only process goes on with a clock that isn't believed: it seals
// by the earlier time (see times), so that nothing is too old for its window, and the head doesn't grow.
func (s *Store) maySeal() error {
	if !s.opts.Shared {
		return s.mayChange()
	}
	return s.believed()
}

// times returns what the time is: twice the same while the clock is believed, and otherwise the earlier and the later of
// what it says and what is expected. What is kept goes by the earlier, what may be there by the later.
func (s *Store) times() (earlier, later time.Time) {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	now := s.look()
	switch {
	case c.doubt == nil:
		return now, now
	case now.Before(c.expected):
		return now, c.expected
	default:
		return c.expected, now
	}
}

// engineTime returns what the time is by the engine's clock, where it has one, and otherwise the earlier of times.
func (s *Store) engineTime() time.Time {
	c := &s.clock
	if c.theirs == nil {
		now, _ := s.times()
		return now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.look()
	return c.expected
}

// settling says whether a slot that is over by the clock may still be going on by what is expected.
func (s *Store) settling(end, settle int64) bool {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	s.look()
	expected := c.expected.UnixMilli()
	return c.doubt != nil && end+settle >= expected && end < expected+format.DayMS
}

// compared takes over what the engine's clock has just said.
func (s *Store) compared(theirs time.Time) {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen += c.passed(&s.opts, s.opts.Now())
	c.expected = theirs.Round(0)
	s.look()
}

// seenMS is how much time the store has seen pass, milliseconds: what its processes have measured while they ran, and no
// more, whatever a clock says. It is durable, never falls, and over a shared engine no process adds to it what another
// one has measured, too. What hides first and drops later counts the time between in it.
func (s *Store) seenMS() int64 {
	if s.background != nil { // It is open.
		ctx, cancel := context.WithTimeout(s.background, commitTimeout)
		defer cancel()
		if err := s.keepSeen(ctx); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("how much time passes can't be written down; what is hidden goes later", "err", err)
		}
	}
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Milliseconds()
}

// seenKept is seenMS as it was written last, which is behind by a minute or so.
func (s *Store) seenKept() int64 {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Milliseconds()
}

// runClock keeps what is seen of time until ctx ends, where no beats of the process do that.
func (s *Store) runClock(ctx context.Context) {
	ticker := time.NewTicker(keepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.keepSeen(ctx); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("how much time passes can't be written down; the next beat may", "err", err)
		}
	}
}

// clockOff is by how much the clock is ahead of what is expected, and whether it isn't believed.
func (s *Store) clockOff() (off time.Duration, doubted bool) {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.look().Round(0).Sub(c.expected), c.doubt != nil
}
