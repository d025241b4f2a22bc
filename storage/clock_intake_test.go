package storage

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/pebble"
)

// rejectAhead makes a store on a single machine reject samples ahead of its clock without a wait.
func rejectAhead(o *Options) { o.AheadPatience = 0 }

// TestClockOffByHoursInACluster checks a process of a cluster whose clock is slow or fast by less than 6 hours. It must
// accept and return samples whose time is right by the cluster's clock, and reject samples whose time is wrong by both
// clocks.
func TestClockOffByHoursInACluster(t *testing.T) {
	for name, off := range map[string]time.Duration{
		"3 h slow": -3 * time.Hour, "20 min slow": -20 * time.Minute, "3 h fast": 3 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			r := &clockRig{t: t, shared: true}
			r.eng = &clockedEngine{memory.New(), r.now}
			short := func(o *Options) { o.Retention = 48 * time.Hour }
			right, wrong := r.start(0, short), r.start(off, short)
			require.NoError(t, wrong.write(r.now(), 1), "its sender's clock is right")
			require.NoError(t, wrong.write(r.now().Add(MaxAhead), 2))
			require.NoError(t, wrong.write(r.now().Add(-47*time.Hour), 3))
			require.Equal(t, 3, right.visible())
			require.Equal(t, 3, wrong.visible())
			require.ErrorIs(
				t, wrong.write(r.now().Add(max(off, 0)+MaxAhead+time.Second), 4), ErrTooFarAhead, "by both clocks",
			)
			require.ErrorIs(
				t, wrong.write(r.now().Add(min(off, 0)-48*time.Hour-time.Second), 5), ErrTooOld, "by both clocks",
			)
			require.NoError(t, right.SealAll(t.Context()))
			require.Equal(t, 3, right.visible())
		})
	}
}

// stoppedEngine is a clockedEngine that can be made unreachable.
type stoppedEngine struct {
	clockedEngine
	down  atomic.Bool
	asked atomic.Int64
}

func (e *stoppedEngine) Clock(ctx context.Context) (time.Time, error) {
	e.asked.Add(1)
	if e.down.Load() {
		return time.Time{}, engine.ErrUnavailable
	}
	return e.clockedEngine.Clock(ctx)
}

// TestClockOfAPausedMachineInACluster slows a clock by a pause of the virtual machine, which the machine doesn't
// measure. Before the next heartbeat, a sample must be rejected only after the cluster's clock was read again.
func TestClockOfAPausedMachineInACluster(t *testing.T) {
	r := &clockRig{t: t, shared: true}
	eng := &stoppedEngine{clockedEngine: clockedEngine{memory.New(), r.now}}
	r.eng = eng
	var paused atomic.Int64
	m := r.start(0, func(o *Options) {
		o.Elapsed = func() time.Duration { return time.Duration(r.passed.Load() - paused.Load()) }
	})
	require.NoError(t, m.write(r.now(), 1))
	r.pass(time.Hour)
	paused.Store(int64(time.Hour))
	m.set(-time.Hour)
	eng.down.Store(true)
	err := m.write(r.now(), 2)
	require.ErrorIs(t, err, engine.ErrUnavailable, "the sender tries again")
	require.NotErrorIs(t, err, ErrTooFarAhead)
	eng.down.Store(false)
	require.NoError(t, m.write(r.now(), 2))
	require.Equal(t, 2, m.visible())

	before := eng.asked.Load()
	b := m.NewBatch("t")
	s, err := b.Define(nil, labelsOfMetric())
	require.NoError(t, err)
	for range 100 {
		require.ErrorIs(t, b.Float(s, r.now().Add(time.Hour).UnixMilli(), 0, 1), ErrTooFarAhead)
	}
	b.Release()
	require.Equal(t, before+1, eng.asked.Load(), "once per request")
}

// TestSlowClockOnOneMachine sends samples ahead of a clock that may be slow. A single machine can't detect whether its
// clock is slow, so senders must get a retryable error until NTP has had time to set the clock. Only then are the
// samples rejected permanently.
func TestSlowClockOnOneMachine(t *testing.T) {
	eng, err := pebble.Open(t.TempDir(), pebble.DefaultOptions())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, eng.Close()) })
	for name, eng := range map[string]engine.Engine{"memory": memory.New(), "pebble": eng} {
		t.Run(name, func(t *testing.T) {
			r := &clockRig{t: t, eng: eng}
			m := r.start(-20 * time.Minute)
			patience := m.opts.AheadPatience
			require.Positive(t, patience)
			later := func() {
				t.Helper()
				require.ErrorIs(t, m.write(r.now(), 1), ErrMaybeAhead)
			}
			later()
			r.pass(patience - time.Second)
			later()
			m.set(0) // NTP corrects the clock.
			require.NoError(t, m.write(r.now(), 1))

			ahead := func() error { return m.write(r.now().Add(time.Hour), 1) } // The sender's clock is fast.
			require.ErrorIs(t, ahead(), ErrMaybeAhead, "the clock was set")
			r.pass(patience / 2)
			require.ErrorIs(t, ahead(), ErrMaybeAhead)
			r.pass(patience / 2)
			require.ErrorIs(t, ahead(), ErrTooFarAhead)
			for range 5 { // The check continues while such samples arrive.
				r.pass(patience)
				require.ErrorIs(t, ahead(), ErrTooFarAhead)
			}
			require.ErrorIs(t, m.write(r.now().Add(200*365*24*time.Hour), 1), ErrTooFarAhead)

			r.pass(2 * time.Hour)
			b := m.NewBatch("t")
			s, err := b.Define(nil, labelsOfMetric())
			require.NoError(t, err)
			at := r.now().UnixMilli()
			require.ErrorIs(
				t, b.Float(s, at+7*time.Hour.Milliseconds(), 0, 1), ErrTooFarAhead,
				"a trusted clock isn't slow by that",
			)
			require.ErrorIs(
				t, b.Float(s, at+time.Hour.Milliseconds(), 0, 1), ErrMaybeAhead, "beside a sample that was rejected",
			)
			b.Release()

			m.set(-20 * time.Minute) // The expected time stays right.
			require.NoError(t, m.write(r.now(), 2))
			require.Equal(t, 2, m.visible())
			r.pass(10 * time.Minute)
			later()
			m.set(0)
			require.NoError(t, m.write(r.now(), 3))
			require.Equal(t, 3, m.visible())

			r.pass(patience)
			require.ErrorIs(t, ahead(), ErrMaybeAhead)
			r.pass(patience)
			require.ErrorIs(t, ahead(), ErrTooFarAhead)
			r.pass(2 * time.Hour)
			require.ErrorIs(t, ahead(), ErrMaybeAhead, "it is another fault: a machine may have been paused")
			require.ErrorIs(
				t, m.write(r.now().Add(200*365*24*time.Hour), 1), ErrTooFarAhead, "no clock is slow by that",
			)
		})
	}
}

// TestClockDifferencesAreLogged checks the log of a process whose clock differs from the cluster's. It must contain one
// line when the clock becomes slow or fast by a minute, one line when the difference has doubled, and one line when the
// clock is right again, regardless of the number of heartbeats.
func TestClockDifferencesAreLogged(t *testing.T) {
	r := &clockRig{t: t, shared: true}
	r.eng = &clockedEngine{memory.New(), r.now}
	var log bytes.Buffer
	m := r.start(0, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	// logged changes the clock's error for some time, and requires one log line with the texts in want, or no line if
	// want is empty.
	logged := func(off time.Duration, want ...string) {
		t.Helper()
		log.Reset()
		m.set(off)
		for range 100 {
			r.pass(30 * time.Second)
			require.NoError(t, m.member.SendHeartbeat(t.Context()))
		}
		require.Equal(t, min(len(want), 1), strings.Count(log.String(), "\n"), log.String())
		for _, text := range want {
			require.Contains(t, log.String(), text)
		}
	}
	logged(0)
	logged(-59 * time.Second)
	logged(-time.Minute, "level=WARN", "clock is slow", "by=1m0s")
	logged(-90 * time.Second)
	logged(-3*time.Hour, "level=WARN", "clock is slow", "by=3h0m0s")
	logged(-time.Minute)
	logged(-time.Second, "level=INFO", "this machine's clock matches the cluster's again")
	logged(3*time.Hour, "level=WARN", "clock is fast")
}
