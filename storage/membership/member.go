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
	// CommitTimeout bounds a commit. It is generous, because the sender has its own deadline. A commit that took longer
	// isn't acknowledged.
	CommitTimeout = 30 * time.Second
	// TailLife is the TTL of a stream position, by which other processes find the samples that this process has
	// acknowledged.
	TailLife = time.Hour
)

// ErrClock means that this machine's clock is untrusted: nothing is deleted, and a shared store accepts no samples.
var ErrClock = errors.New("membership: this machine's clock is untrusted")

// Options configure a Member.
type Options struct {
	Engine engine.Engine
	// Writer is this process' unique name in the staging log.
	Writer string
	// Self describes this process to the others. It is for people only.
	Self Process
	// Shared is true if other processes may use the engine at the same time.
	Shared bool
	// ReadOnly prevents all writes.
	ReadOnly bool
	// Now is the clock. Elapsed returns the time since some fixed moment, regardless of how the clock is set. If it is
	// nil, the monotonic part of Now's result is used.
	Now     func() time.Time
	Elapsed func() time.Duration
	// Today is the date that an operator gave, zero if none. A clock with this date is trusted.
	Today time.Time
	// AheadPatience is how long senders retry samples ahead of a clock that may be slow, on a single machine.
	AheadPatience time.Duration
	// Created is when the store was created. LastKnown returns the latest time at which the store is known to have been
	// in use, in milliseconds. It is called if no process has written the store's observed uptime.
	Created   time.Time
	LastKnown func(context.Context) (int64, error)
	// State returns the state to advertise, which other processes read with EachStatement. leaving is true if this
	// process is about to stop. Learn is called when the other processes may have advertised new state, Refresh when
	// they may have changed the store's settings.
	State   func(leaving bool) ([]byte, error)
	Learn   func(context.Context) error
	Refresh func(context.Context) error
	// Corrupt is called for unreadable rows.
	Corrupt func(*engine.Table, error)
	Logger  *slog.Logger
	// Still disables background heartbeats, and makes each heartbeat advertise the state. Believing makes every clock
	// trusted. Both are for tests.
	Still, Believing bool
}

// Member is this process as one of several that use a store, or as the only one.
type Member struct {
	o     Options
	Clock *CheckedClock
	// Filling serializes changes of rollups without samples. Their inputs are recorded nowhere else, so two processes
	// would undo each other's changes. It is acquired after the lock for sealing.
	Filling *Turn
	beats   *beats // nil if this is the only process

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// New returns a member that has read and written nothing. Without Open it can only read about other processes.
func New(o Options) *Member {
	m := &Member{o: o}
	m.Clock, m.Filling = &CheckedClock{o: &m.o}, newTurn(m, leaseFilling)
	if o.Shared {
		m.beats = &beats{o: &m.o, clock: m.Clock, filling: m.Filling}
	}
	return m
}

// Open reads the store's observed uptime and, in a shared store, announces this process. The caller must call Close.
func (m *Member) Open(ctx context.Context) error {
	if now := m.o.Now(); !m.o.Today.IsZero() && !m.Clock.saidToday(now) {
		m.o.Logger.Warn("--storage.today is ignored, because this machine's clock has another date",
			"date", m.o.Today.Format(time.DateOnly), "clock", now.UTC())
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
	case m.beats != nil: // A read-only process also needs the others' settings and the engine's clock.
		m.running.Go(func() {
			panics.Repeat(background, "announcing this process", func() { m.beats.run(background) })
		})
	case !m.o.ReadOnly:
		m.running.Go(func() { panics.Repeat(background, "observing the clock", func() { m.Clock.run(background) }) })
	}
	return nil
}

// Close stops the background work of Open, and announces that to the other processes.
func (m *Member) Close() {
	m.cancel()
	m.running.Wait()
	if m.beats != nil {
		m.beats.end()
	}
}

// Alone reports whether no other process may use the engine.
func (m *Member) Alone() bool { return m.beats == nil }

// Writer returns this process' name in the staging log, in hexadecimal.
func (m *Member) Writer() string { return hex.EncodeToString([]byte(m.o.Writer)) }

// Beat sends a heartbeat immediately. Otherwise one is sent every BeatInterval.
func (m *Member) Beat(ctx context.Context) error {
	if m.beats == nil {
		return nil
	}
	return m.beats.beat(ctx)
}

// Leave announces that this process accepts no more work, so that other processes take over its leases without waiting
// for LivenessTimeout. It may continue to write.
func (m *Member) Leave(ctx context.Context) error {
	if m.beats == nil {
		return nil
	}
	return m.beats.leave(ctx)
}

// Unheard returns the time since the last durable heartbeat of this process, 0 if it is the only one. At
// LivenessTimeout other processes take over its leases.
func (m *Member) Unheard() time.Duration {
	if m.beats == nil {
		return 0
	}
	return m.beats.unheard()
}

// MayRemove calls CheckedClock.MayRemove.
func (m *Member) MayRemove() error { return m.Clock.MayRemove() }

// MayWrite returns an error if samples must be neither written nor sealed. In a shared store with an untrusted clock a
// write couldn't be acknowledged, and its sender would repeat it. A store's only process accepts samples with an
// untrusted clock. It seals by the earlier time (see CheckedClock.Times), so that nothing is too old for its window and
// the head doesn't grow.
func (m *Member) MayWrite() error {
	if m.beats == nil {
		return m.Clock.mayChange()
	}
	return m.Clock.MayRemove()
}

// MayAcknowledge returns an error if a durable commit that began at started must not be acknowledged, because other
// processes may no longer read it.
func (m *Member) MayAcknowledge(started time.Time) error {
	if m.beats == nil {
		return nil
	}
	return m.beats.mayAcknowledge(started)
}

// Elapsed returns a lower bound of the time between two readings of the clock. The monotonic clock doesn't count time
// while the machine is suspended, and the wall clock doesn't if it is set, so it returns the larger difference.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since).Abs(), now.Round(0).Sub(since.Round(0)).Abs())
}

// every calls a function once per interval until ctx ends, and passes its errors to failed.
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
