package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// today returns an option that passes the date of a clock with the given error as the operator's date.
func (r *clockRig) today(off time.Duration) func(*Options) {
	return func(o *Options) { o.Today = r.now().Add(off).UTC().Truncate(day) }
}

// runFor advances the time while the store runs.
func (m *clockMachine) runFor(d time.Duration) {
	for ; d > 0; d -= time.Hour {
		m.r.pass(min(d, time.Hour))
		m.clock.ObservedUptimeMS()
	}
}

// countedAnywhere returns the number of samples that a query finds. The query reads buckets where raw samples are
// hidden.
func (m *clockMachine) countedAnywhere() int {
	m.r.t.Helper()
	q := query.Query{Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Matchers: ofMetric()}
	horizons, err := m.BoundariesOf(m.r.t.Context(), q)
	require.NoError(m.r.t, err)
	n := m.visible()
	for _, older := range query.OlderQueries(q, horizons, rollup.ColumnCount) {
		list, err := m.Select(m.r.t.Context(), older)
		require.NoError(m.r.t, err)
		for _, s := range list {
			var b rollup.Buckets
			require.NoError(m.r.t, s.Buckets(&b, &query.BucketBuffers{}))
			for _, count := range b.Count {
				n += int(count)
			}
		}
	}
	return n
}

// TestShortRunsSeeNoMoreThanTheyRan runs a new store repeatedly for some seconds, each time with a clock that is almost
// 3 days further ahead. The time between the runs must not count as observed: nothing may be dropped, and soon the
// clock must be untrusted.
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
		_ = m.UnlistSlots(t.Context(), 0)
		require.Equal(t, i > 1, err != nil, "start %d: %v", i, err)
		require.Less(t, m.clock.ObservedUptimeMS(), time.Hour.Milliseconds())
		m.stop()
	}
	m = r.start(0, keep)
	require.Equal(t, 60, m.visible())
	require.NoError(t, m.write(r.now(), 2))
}

// startAhead starts a process with a fast clock that an operator has confirmed. By this clock it hides samples that are
// past the retention.
func (r *clockRig) startAhead(ahead time.Duration, change func(*Options)) *clockMachine {
	r.t.Helper()
	m := r.start(ahead, change, r.today(ahead))
	r.pass(time.Minute)
	_, err := m.Expire(r.t.Context())
	require.NoError(r.t, err)
	return m
}

// TestAcceptedAfterAClockAheadIsShown hides all samples by a clock that is 40 days fast and was confirmed by an
// operator. Once the clock is right, queries must return all samples, including those that are accepted then, before
// and after they are sealed.
func TestAcceptedAfterAClockAheadIsShown(t *testing.T) {
	for name, keep := range map[string]func(*Options){
		"raw hidden": func(o *Options) {},
		"all hidden": func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 3*day, 6*day, 20*day },
	} {
		t.Run(name, func(t *testing.T) {
			r := alone(t)
			m := r.start(0, keep)
			for i := range 60 {
				require.NoError(t, m.write(r.now().Add(-time.Duration(i)*time.Hour), 1))
			}
			require.NoError(t, m.SealAll(t.Context()))
			m.stop()
			const ahead = 40 * day
			m = r.startAhead(ahead, keep)
			require.Zero(t, m.visible())
			m.stop()

			m = r.start(0, keep)
			for i := range 10 {
				require.NoError(t, m.write(r.now().Add(-time.Duration(i)*time.Minute-time.Second), 1))
			}
			require.Equal(t, 70, m.visible())
			require.Equal(t, 70, m.countedAnywhere())
			require.NoError(t, m.SealAll(t.Context()))
			require.Equal(t, 70, m.visible())
			m.stop()
			m = r.start(0, keep, r.today(0))
			_, err := m.Expire(t.Context())
			require.NoError(t, err)
			require.Equal(t, 70, m.visible())
		})
	}
}

// TestAcceptedAfterADeleteByAClockAhead checks that a delete doesn't apply to samples that are accepted after it, even
// if it covers their timestamps. The process deletes all samples up to its current time while its clock is 40 days
// fast, and then accepts samples with a correct clock. These samples must be visible. When the clock is later 100 days
// fast, so that raw retention hides the samples, a query for buckets must still find them. It computes the buckets of
// their slot from samples, because the rollups of the slot have no commit record of the delete.
func TestAcceptedAfterADeleteByAClockAhead(t *testing.T) {
	r := alone(t)
	keep := func(o *Options) { o.Retention = 30 * day }
	m := r.start(0, keep)
	require.NoError(t, m.write(r.now(), 1))
	require.NoError(t, m.SealAll(t.Context()))
	m.stop()
	const ahead = 40 * day
	m = r.startAhead(ahead, keep)
	require.NoError(t, m.Delete(t.Context(), "t", -format.MaxTime, r.now().Add(ahead).UnixMilli(), ofMetric()...))
	m.stop()

	m = r.start(0, keep)
	for i := range 10 {
		require.NoError(t, m.write(r.now().Add(-time.Duration(i)*time.Minute), 2))
	}
	require.NoError(t, m.SealAll(t.Context()))
	require.Equal(t, 10, m.visible())
	m.set(100 * day)
	require.Zero(t, m.visible())
	require.Equal(t, 10, m.countedAnywhere())
}

// TestUnsealedSamplesPassTheRetention accepts late samples just before they are past the raw retention, in a slot with
// sealed samples. Until they are sealed, the buckets that queries return must include them, also after a restart and
// days later.
func TestUnsealedSamplesPassTheRetention(t *testing.T) {
	for _, expiring := range []bool{false, true} {
		r := alone(t)
		if expiring {
			r.eng = memory.NewExpiring(r.now)
		}
		keep := func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = day, 10*day, 20*day }
		m := r.start(0, keep)
		for i := range 60 {
			require.NoError(t, m.write(r.now().Add(-day+time.Duration(5*i+1)*time.Second), 1))
		}
		require.NoError(t, m.SealAll(t.Context()))
		_, err := m.Expire(t.Context()) // It records that the window's rollups exist.
		require.NoError(t, err)
		for i := range 20 {
			require.NoError(t, m.write(r.now().Add(-day+time.Duration(5*i+2)*time.Second), 1))
		}
		require.Equal(t, 80, m.visible())
		for _, passed := range []time.Duration{10 * time.Minute, day, 3 * day} {
			r.pass(passed)
			require.Zero(t, m.visible())
			require.Equal(t, 80, m.countedAnywhere(), "expiring %v, after %s", expiring, passed)
			m.stop()
			m = r.start(0, keep, r.today(0))
			require.Equal(t, 80, m.countedAnywhere(), "expiring %v, restarted after %s", expiring, passed)
			_, err := m.Expire(t.Context())
			require.NoError(t, err)
			require.Equal(t, 80, m.countedAnywhere())
		}
		require.NoError(t, m.SealAll(t.Context()))
		require.Equal(t, 80, m.countedAnywhere())
	}
}

// TestUnsealedSamplesOfExpiredRows starts a process with an acknowledged, unsealed sample whose raw rows would already
// have expired. Answers must have a warning until the sample is sealed, and include the sample afterwards.
func TestUnsealedSamplesOfExpiredRows(t *testing.T) {
	r := alone(t)
	r.eng = memory.NewExpiring(r.now)
	keep := func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = day, 20*day, 40*day }
	m := r.start(0, keep)
	require.NoError(t, m.write(r.now().Add(time.Second-day), 1))
	require.NoError(t, m.SealAll(t.Context()))
	require.NoError(t, m.write(r.now().Add(time.Hour-day), 1))
	m.stop()
	r.pass(10 * day)
	m = r.start(0, keep, r.today(0))
	for _, res := range rollup.Resolutions {
		a, told := m.answer(t, res)
		require.Equal(t, 1, a, "%s", res)
		require.Len(t, told, 1)
		require.Contains(t, told[0], "missing from the result until they are sealed")
	}
	require.NoError(t, m.SealAll(t.Context()))
	for _, res := range rollup.Resolutions {
		a, told := m.answer(t, res)
		require.Equal(t, 2, a, "%s", res)
		require.Empty(t, told)
	}
}

// answer returns the number of samples in the buckets of a resolution, and the warnings.
func (m *clockMachine) answer(t *testing.T, res rollup.Resolution) (n int, told []string) {
	t.Helper()
	found, err := m.Select(t.Context(), query.Query{
		Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Matchers: ofMetric(), Resolution: res,
		Columns: rollup.ColumnCount,
		Warn:    func(err error) { told = append(told, err.Error()) },
	})
	require.NoError(t, err)
	for _, s := range found {
		var b rollup.Buckets
		require.NoError(t, s.Buckets(&b, &query.BucketBuffers{}))
		for _, count := range b.Count {
			n += int(count)
		}
	}
	return n, told
}

// TestDroppedByAClockAhead drops current windows by a clock that is 20 days fast and was confirmed by an operator.
// Samples of the dropped windows can't be stored and must be rejected with a retryable error. Later samples must be
// stored, and samples past the retention rejected permanently.
func TestDroppedByAClockAhead(t *testing.T) {
	r := alone(t)
	keep := func(o *Options) { o.Retention = 3 * day }
	m := r.start(0, keep)
	require.NoError(t, m.write(r.now(), 1))
	require.NoError(t, m.SealAll(t.Context()))
	require.ErrorIs(t, m.write(r.now().Add(-4*day), 1), ErrTooOld)
	m.stop()
	const ahead = 20 * day
	m = r.start(ahead, keep, r.today(ahead))
	_, err := m.Expire(t.Context())
	require.NoError(t, err)
	m.runFor(8 * day)
	_, err = m.Expire(t.Context())
	require.NoError(t, err)
	m.stop()
	for _, today := range []func(*Options){func(*Options) {}, r.today(0)} {
		m = r.start(0, keep, today)
		require.ErrorIs(t, m.write(r.now(), 2), ErrDroppedAhead)
		require.NotErrorIs(t, m.write(r.now(), 2), ErrTooOld)
		require.ErrorIs(t, m.write(r.now().Add(-4*day), 2), ErrTooOld)
		to, err := m.Retention().DroppedAhead(t.Context(), "t")
		require.NoError(t, err)
		require.True(t, to.After(r.now()))
		require.NoError(t, m.write(to.Add(time.Minute), 2), "by the time that was expected, or by the clock")
		m.stop()
		r.pass(to.Sub(r.now()) - 5*time.Minute)
	}
}

// TestClockThatWasSetBack sets the only clock back. Samples with the right time must be accepted for a quarter of the
// step. Then they must be rejected with a retryable error for some time, and only then permanently.
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

// TestClockOfABootIsSlow starts a machine without a hardware clock: its clock continues at the time of the last
// shutdown, days late. Until NTP has had time to set the clock, no sample may be rejected permanently.
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
