package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runFor lets time pass in which the store runs.
func (m *clockMachine) runFor(d time.Duration) {
	for ; d > 0; d -= time.Hour {
		m.r.pass(min(d, time.Hour))
		m.clock.SeenMS()
	}
}

// TestShortRunsSeeNoMoreThanTheyRan starts a new store again and again for seconds, each time with a clock almost 3 days further ahead. The time
// between isn't seen: nothing is dropped, and soon the clock isn't trusted.
func TestShortRunsSeeNoMoreThanTheyRan(t *testing.T) {
	r := alone(t)
	keep := func(o *Options) { o.Retention = 3 * day }
	m := r.start(0, keep)
	for i := range 60 {
		require.NoError(t, m.write(r.now().Add(-time.Duration(i)*time.Hour), 1))
	}
	require.NoError(t, m.SealAll(t.Context()))
	m.stop()
	for i := range 8 {
		m = r.start(time.Duration(i)*29*day/10, keep)
		r.pass(8 * time.Second)
		_, err := m.Expire(t.Context())
		_ = m.Advance(t.Context(), 0)
		require.Equal(t, i > 1, err != nil, "start %d: %v", i, err)
		require.Less(t, m.clock.SeenMS(), time.Hour.Milliseconds())
		m.stop()
	}
	m = r.start(0, keep)
	require.Equal(t, 60, m.visible())
	require.NoError(t, m.write(r.now(), 2))
}

// TestClockThatWasSetBack accepts samples of the time that was measured for a quarter of the step, has them sent again for a while, and
// only then rejects them.
func TestClockThatWasSetBack(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		for _, by := range []time.Duration{20 * time.Minute, 7 * time.Hour, 71 * time.Hour} {
			r := alone(t)
			m := r.start(0)
			m.runFor(5 * day)
			if m.set(-by); restarted {
				m.stop()
				m = r.start(-by)
			}
			require.NoError(t, m.write(r.now(), 1))
			for range 9 {
				r.pass(by / 40)
				require.NoError(t, m.write(r.now(), 1), "%v", by)
			}
			r.pass(by/40 + time.Minute)
			require.ErrorIs(t, m.write(r.now(), 1), ErrMaybeAhead, "%v", by)
			r.pass(m.opts.AheadPatience)
			require.ErrorIs(t, m.write(r.now(), 1), ErrTooFarAhead, "%v", by)
			m.set(0)
			require.NoError(t, m.write(r.now(), 1))
			m.stop()
		}
	}
}

// TestClockOfABootIsSlow has a machine without a clock of its own begin where it ended, days late: until NTP has had time to set that, no sample is rejected.
func TestClockOfABootIsSlow(t *testing.T) {
	r := alone(t)
	m := r.start(0)
	m.runFor(5 * time.Hour)
	m.stop()
	r.pass(2 * day)
	m = r.start(-2 * day)
	require.ErrorIs(t, m.write(r.now(), 1), ErrMaybeAhead)
	require.NoError(t, m.write(r.now().Add(-2*day), 1))
	require.ErrorIs(t, m.write(r.now().Add(200*365*day), 1), ErrTooFarAhead, "no clock is slow by that")
	r.pass(m.opts.AheadPatience)
	require.ErrorIs(t, m.write(r.now(), 1), ErrTooFarAhead)
	m.set(0)
	require.NoError(t, m.write(r.now(), 1))
}
