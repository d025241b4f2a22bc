package membership

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/panics"
)

const (
	// CommitTimeout bounds how long a commit tries. It is generous: whoever waits has a deadline of its own. What took longer
	// isn't acknowledged.
	CommitTimeout = 30 * time.Second
	// TailLife is how long a row of table tails stands, by which other processes find what this one has acknowledged.
	TailLife = time.Hour
)

// ErrClock means that this machine's clock isn't believed: nothing is removed by it, and over a shared engine no samples
// are taken.
var ErrClock = errors.New("membership: this machine's clock is untrusted")

// Options are what a process is to a store.
type Options struct {
	Engine engine.Engine
	// Writer is this process' name in the stage, which no other process has.
	Writer string
	// Self describes this process to the others; for people only.
	Self Process
	// Shared is true if other processes may use the engine at the same time.
	Shared bool
	// ReadOnly has nothing be written.
	ReadOnly bool
	// Now is the clock. Elapsed is how much time has passed since some moment, however the clock was set; nil: the
	// monotonic part of Now's result.
	Now     func() time.Time
	Elapsed func() time.Duration
	// Today is the date that an operator gave: a clock of the same date is believed. Zero: none was given.
	Today time.Time
	// AheadPatience is how long ConfirmAhead waits for a clock that may be slow, where there is no second one.
	AheadPatience time.Duration
	// Created is when the store was created. LastKnown returns a time at which it surely was in use, milliseconds, as late a one
	// as possible; it is asked for a store that no process has written down for how much it has seen of time.
	Created   time.Time
	LastKnown func(context.Context) (int64, error)
	// State returns what this process states: the others read it with EachStatement. leaving is true if it is about to end. Learn is
	// called where the others may state something else, and Refresh where they may have changed the store's settings.
	State   func(leaving bool) ([]byte, error)
	Learn   func(context.Context) error
	Refresh func(context.Context) error
	// Corrupt is called for rows that can't be read.
	Corrupt func(*engine.Table, error)
	Logger  *slog.Logger
	// Still keeps the process from beating by itself, and has it state what it states at every beat; Believing has any clock be
	// believed. Both are for tests.
	Still, Believing bool
}

// Member is this process as one of those that use a store at the same time, or as the only one.
type Member struct {
	o Options
	// Clock is this process' clock.
	Clock *CheckedClock
	// Filling is the turn of who changes rollups that have no samples: nothing else shows what they were made of, so of two
	// processes at once each would undo what the other one did. It is taken after the lock of sealing.
	Filling *Turn
	beats   *beats // nil: it is the only one

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// New returns a member that has neither read nor written anything yet: it serves to look at others.
func New(o Options) *Member {
	m := &Member{o: o}
	m.Clock, m.Filling = &CheckedClock{o: &m.o}, &Turn{m: m, name: leaseFilling}
	if o.Shared {
		m.beats = &beats{o: &m.o, clock: m.Clock, filling: m.Filling}
	}
	return m
}

// Open reads what the store has seen of time and, where there are others, announces this process to them. Close ends it.
func (m *Member) Open(ctx context.Context) error {
	if now := m.o.Now(); !m.o.Today.IsZero() && !m.Clock.saidToday(now) {
		m.o.Logger.Warn("--storage.today is ignored, because this machine's clock has another date", "date", m.o.Today.Format(time.DateOnly), "clock", now.UTC())
	}
	if err := m.Clock.resume(ctx); err != nil {
		return err
	}
	if m.beats != nil {
		if err := m.beats.beat(ctx); err != nil {
			return err
		}
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.Clock.open, m.cancel = background, cancel
	switch {
	case m.o.Still:
	case m.beats != nil: // To look at it needs the others' settings and the engine's clock, too.
		m.running.Go(func() { panics.Repeat(background, "announcing this process", func() { m.beats.run(background) }) })
	case !m.o.ReadOnly:
		m.running.Go(func() { panics.Repeat(background, "observing the clock", func() { m.Clock.run(background) }) })
	}
	return nil
}

// Close ends what Open began, and announces that to the others.
func (m *Member) Close() {
	m.cancel()
	m.running.Wait()
	if m.beats != nil {
		m.beats.end()
	}
}

// Alone reports whether no other process may use the engine.
func (m *Member) Alone() bool { return m.beats == nil }

// Writer is this process' name in the stage, hexadecimal.
func (m *Member) Writer() string { return hex.EncodeToString([]byte(m.o.Writer)) }

// Beat writes this process' beat at once, as happens by itself every BeatInterval.
func (m *Member) Beat(ctx context.Context) error {
	if m.beats == nil {
		return nil
	}
	return m.beats.beat(ctx)
}

// Leave announces to the others that this process takes no more work, so that they needn't wait until it isn't heard
// of. It may go on writing.
func (m *Member) Leave(ctx context.Context) error {
	if m.beats == nil {
		return nil
	}
	return m.beats.leave(ctx)
}

// Unheard is how long it is since this process' last durable beat; 0 where it is alone. From
// LivenessTimeout on they take its leases.
func (m *Member) Unheard() time.Duration {
	if m.beats == nil {
		return 0
	}
	return m.beats.unheard()
}

// MayRemove returns nil if this process may remove data, or take over another's work: see CheckedClock.MayRemove.
func (m *Member) MayRemove() error { return m.Clock.MayRemove() }

// MayWrite returns why no samples should be written or sealed: a write couldn't be acknowledged, so its sender would send it
// again, and again it would be written. A store's only process takes samples with a clock that isn't believed, too, and seals
// by the earlier time (see CheckedClock.Times), so that nothing is too old for its window, and the head doesn't grow.
func (m *Member) MayWrite() error {
	if m.beats == nil {
		return m.Clock.mayChange()
	}
	return m.Clock.MayRemove()
}

// MayAcknowledge returns why a commit that was begun at started, and is durable, mustn't be acknowledged: other processes may
// no longer look for it.
func (m *Member) MayAcknowledge(started time.Time) error {
	if m.beats == nil {
		return nil
	}
	return m.beats.mayAcknowledge(started)
}

// Elapsed is how long it is since a time was read from the clock, at least: a machine that was suspended
// doesn't count it in the monotonic clock, and one whose clock was set not in the other.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since).Abs(), now.Round(0).Sub(since.Round(0)).Abs())
}

// every calls beat once an interval until ctx ends, and failed with its errors.
func every(ctx context.Context, interval time.Duration, beat func(context.Context) error, failed func(error)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := beat(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
	}
}
