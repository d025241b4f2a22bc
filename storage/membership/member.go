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
	// CommitTimeout bounds a commit. It is long, because the sender has its own deadline. A commit that takes longer
	// isn't acknowledged.
	CommitTimeout = 30 * time.Second
	// TailTTL is the TTL of a stream position. Other processes use the stream positions of this process to find the
	// samples that it has acknowledged.
	TailTTL = time.Hour
)

// ErrClock means that this machine's clock is untrusted. Until it is trusted again, nothing is deleted, and a shared
// store accepts no samples.
var ErrClock = errors.New("membership: this machine's clock is untrusted")

// Options configure a Member.
type Options struct {
	Engine engine.Engine
	// Writer is this process' unique name in the staging log.
	Writer string
	// Self describes this process to the other processes. It is only displayed.
	Self Process
	// Shared is true if other processes may use the engine at the same time.
	Shared bool
	// ReadOnly prevents all writes.
	ReadOnly bool
	// Now returns the clock's time. Elapsed returns the time since some fixed moment, and isn't affected by setting the
	// clock. If Elapsed is nil, the monotonic part of Now's result is used.
	Now     func() time.Time
	Elapsed func() time.Duration
	// Today is the date that an operator specified, zero if none. A clock that shows this date is trusted.
	Today time.Time
	// AheadPatience is how long samples that are too far ahead are rejected with a retryable error, on a single
	// machine, because the machine's clock may be slow.
	AheadPatience time.Duration
	// Created is when the store was created. LastKnown returns the latest time, in milliseconds, at which the store's
	// contents prove that it was in use. It is called if the store contains no observed uptime.
	Created   time.Time
	LastKnown func(context.Context) (int64, error)
	// State returns the state to advertise, which other processes read with EachStatement. leaving is true if this
	// process is about to stop. Learn is called when the other processes may have advertised new state. Refresh is
	// called when they may have changed the store's settings.
	State   func(leaving bool) ([]byte, error)
	Learn   func(context.Context) error
	Refresh func(context.Context) error
	// Corrupt is called for unreadable rows.
	Corrupt func(*engine.Table, error)
	Logger  *slog.Logger
	// Still disables background heartbeats, and makes each explicit heartbeat advertise the state. Believing makes
	// every clock trusted. Both are for tests.
	Still, Believing bool
}

// Member is this process as one of the processes that use a store, or as its only one.
type Member struct {
	o     Options
	Clock *CheckedClock
	// Filling serializes changes of rollups that aren't caused by new samples. The inputs of such a change are recorded
	// nowhere else, so two processes would undo each other's changes. A caller that also needs the lock for sealing
	// must acquire that lock first.
	Filling *Turn
	// Imports are the imports of this process that are under way.
	Imports    *ImportList
	heartbeats *heartbeats // nil if this is the only process

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// New returns a member. It neither reads nor writes. Before Open, only the methods that list other processes may be
// used.
func New(o Options) *Member {
	m := &Member{o: o}
	m.Clock, m.Filling = &CheckedClock{o: &m.o}, newTurn(m, leaseFilling)
	m.Imports = &ImportList{now: o.Now}
	if o.Shared {
		m.heartbeats = &heartbeats{o: &m.o, clock: m.Clock, filling: m.Filling}
	}
	return m
}

// Open reads the store's observed uptime and, in a shared store, announces this process. The caller must call Close.
func (m *Member) Open(ctx context.Context) error {
	if now := m.o.Now(); !m.o.Today.IsZero() && !m.Clock.isConfirmedDate(now) {
		m.o.Logger.Warn("--storage.today is ignored, because this machine's clock has another date",
			"date", m.o.Today.Format(time.DateOnly), "clock", now.UTC())
	}
	if err := m.Clock.resumeUptime(ctx); err != nil {
		return err
	}
	if m.heartbeats != nil {
		if err := m.heartbeats.send(ctx); err != nil {
			return err
		}
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.Clock.open, m.cancel = background, cancel
	switch {
	case m.o.Still:
	case m.heartbeats != nil: // A read-only process also reads the settings and the engine's clock.
		m.running.Go(func() {
			panics.Repeat(background, "announcing this process", func() { m.heartbeats.run(background) })
		})
	case !m.o.ReadOnly:
		m.running.Go(func() { panics.Repeat(background, "observing the clock", func() { m.Clock.run(background) }) })
	}
	return nil
}

// Close stops the background work of Open, and announces to the other processes that this process has stopped.
func (m *Member) Close() {
	m.cancel()
	m.running.Wait()
	if m.heartbeats != nil {
		m.heartbeats.advertiseStop()
	}
}

// IsAlone reports whether this process is the only one that may use the engine.
func (m *Member) IsAlone() bool { return m.heartbeats == nil }

// Writer returns this process' name in the staging log, in hexadecimal.
func (m *Member) Writer() string { return hex.EncodeToString([]byte(m.o.Writer)) }

// SendHeartbeat sends a heartbeat now, in addition to the one per HeartbeatInterval.
func (m *Member) SendHeartbeat(ctx context.Context) error {
	if m.heartbeats == nil {
		return nil
	}
	return m.heartbeats.send(ctx)
}

// Leave announces that this process accepts no more work, so that other processes take over its leases without waiting
// for LivenessTimeout. It may continue to write.
func (m *Member) Leave(ctx context.Context) error {
	if m.heartbeats == nil {
		return nil
	}
	return m.heartbeats.announceLeave(ctx)
}

// HeartbeatAge returns the time since the last durable heartbeat of this process, 0 if it is the only process. After
// LivenessTimeout, other processes take over its leases.
func (m *Member) HeartbeatAge() time.Duration {
	if m.heartbeats == nil {
		return 0
	}
	return m.heartbeats.age()
}

// MayRemove calls CheckedClock.MayRemove.
func (m *Member) MayRemove() error { return m.Clock.MayRemove() }

// MayWrite returns an error if this process must neither write nor seal samples. In a shared store a write couldn't be
// acknowledged while the clock is untrusted, and its sender would repeat it. A store's only process accepts samples
// even with an untrusted clock. It seals by the earlier time (see CheckedClock.Times), so that no sample is too old for
// its window and the head doesn't grow.
func (m *Member) MayWrite() error {
	if m.heartbeats == nil {
		return m.Clock.mayChange()
	}
	return m.Clock.MayRemove()
}

// MayAcknowledge returns an error if a durable commit that started at the given time must not be acknowledged, because
// other processes may no longer read its samples.
func (m *Member) MayAcknowledge(started time.Time) error {
	if m.heartbeats == nil {
		return nil
	}
	return m.heartbeats.mayAcknowledge(started)
}

// Elapsed returns the time between two readings of the clock: the larger of the differences by the wall clock and by
// the monotonic clock. The monotonic clock stops while the machine is suspended, and the wall clock may be set.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since).Abs(), now.Round(0).Sub(since.Round(0)).Abs())
}

// runEvery calls a function once per interval until ctx ends, and passes its errors to failed.
func runEvery(ctx context.Context, interval time.Duration, beat func(context.Context) error, failed func(error)) {
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
