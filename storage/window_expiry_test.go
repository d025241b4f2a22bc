package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestExpiryIsTheLongestOfProcesses runs three processes with a retention of 30 days, and for a month a fourth one with
// a retention of 10 days, which writes, seals and expires like the others. All samples must be kept and visible for 30
// days.
func TestExpiryIsTheLongestOfProcesses(t *testing.T) {
	r := newExpiryRig(t, true)
	var all []*clockMachine
	for range 3 {
		all = append(all, r.start(0, keeping(30*day, 0, 0)))
	}
	all = append(all, r.start(0, keeping(10*day, 60*day, 90*day)))
	r.passes(12*time.Hour, all...)
	for i := range 28 {
		m := all[(i+3)%len(all)]
		require.NoError(t, m.write(r.now(), float64(i)))
		require.NoError(t, m.SealAll(t.Context()))
		require.Equal(t, 30*day+retention.Grace, m.keptFor(rollup.Raw, r.now()))
		r.passes(day, all...)
	}
	for _, m := range all {
		require.Equal(t, 28, m.visible())
	}
	r.requireTogether()
}

// TestRaisedThenImported raises a raw retention of 30 days to a year, and imports older history, which must be kept for
// the year. If the engine expires rows, earlier rows keep their fixed expiry and become a hole. Answers must report the
// hole, and no import may fill it with rows that expire immediately.
func TestRaisedThenImported(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, expiring bool) {
		begin := r.now()
		m := r.start(0, keeping(30*day, 0, 0))
		for i := range 45 {
			require.NoError(t, m.write(r.now(), float64(i)))
			require.NoError(t, m.SealAll(t.Context()))
			r.passes(day, m)
		}
		m.stop()
		m = r.start(0, keeping(365*day, 0, 0))
		stats := m.brings(begin.Add(-100*day), 90, day)
		require.Zero(t, stats.RollupsOnly+stats.Expired)
		raised := r.now()
		_, err := m.Expire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 90, m.samplesBetween(begin.Add(-101*day), begin.Add(-11*day+time.Hour)), "at once")
		r.passes(50*day, m)
		require.Equal(t, 90, m.samplesBetween(begin.Add(-101*day), begin.Add(-11*day+time.Hour)))
		require.NoError(t, m.write(r.now(), 1))
		require.NoError(t, m.SealAll(t.Context()))
		if expiring {
			require.Equal(t, 365*day+retention.Grace, m.keptFor(rollup.Raw, begin.Add(-50*day)))
			require.Equal(t, 365*day+retention.Grace, m.keptFor(rollup.Raw, r.now()))
			require.Equal(t, 30*day+retention.Grace, m.keptFor(rollup.Raw, begin.Add(40*day)))
			require.Zero(t, m.samplesBetween(begin, raised.Add(-day)), "a hole")
		}
		shown, err := m.retention.VisibleRows(
			t.Context(), "t", begin.Add(-100*day).UnixMilli(), r.now().UnixMilli(), false,
		)
		require.NoError(t, err)
		hole := begin.UnixMilli()
		require.Greater(t, shown.Hidden[0].At[rollup.Raw], hole, "a query over the hole is told of it")
		beside, err := m.retention.VisibleRows(
			t.Context(), "t", begin.Add(-100*day).UnixMilli(), begin.Add(-11*day+time.Hour).UnixMilli(), false,
		)
		require.NoError(t, err)
		require.Less(t, beside.Hidden[0].At[rollup.Raw], begin.Add(-100*day).UnixMilli())
		again := m.brings(begin.Add(time.Hour), 5, day)
		require.Equal(t, 5, again.RollupsOnly, "samples of dropped or expired windows: %+v", again)
		require.Equal(t, 5, again.RawGone)
		r.passes(320*day, m)
		require.Zero(t, m.samplesBetween(begin.Add(-101*day), begin.Add(-11*day+time.Hour)))
		if expiring {
			r.requireTogether()
		}
		again = m.brings(begin.Add(-100*day), 90, day)
		require.Equal(t, 90, again.RollupsOnly, "the year again, after its rows have expired: %+v", again)
		m.stop()
		m = r.start(0, keeping(3*365*day, 0, 0))
		again = m.brings(begin.Add(-100*day), 90, day)
		require.Equal(t, 90, again.RawGone, "and after the retention was raised once more: %+v", again)
	})
}

// TestImportedAgainAfterRaising imports history that is only stored as rollups, raises the retention, and imports the
// history again together with earlier days. Days with rollups must get no raw samples, because some raw samples of a
// day would hide that others are missing. The import must count the samples that it therefore stores only as rollups.
// On a single machine the earlier days must get raw samples.
func TestImportedAgainAfterRaising(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, expiring bool) {
		from := r.now().Add(-100 * day)
		m := r.start(0, keeping(30*day, 0, 0))
		require.Equal(t, 50, m.brings(from, 50, day).RollupsOnly)
		m.stop()
		m = r.start(0, keeping(365*day, 0, 0))
		stats := m.brings(from.Add(-20*day), 70, day)
		require.Equal(t, 50, stats.RollupsOnly)
		require.Equal(t, 50, stats.RawGone)
		_, err := m.Expire(t.Context())
		require.NoError(t, err)
		count := func() int { return m.samplesBetween(from.Add(-21*day), from.Add(-day)) }
		require.Equal(t, 20, count())
		require.Zero(t, m.samplesBetween(from, from.Add(60*day)))
		r.passes(20*day, m)
		require.Equal(t, 20, count())
		require.Zero(t, m.brings(from.Add(-20*day), 20, day).RollupsOnly)
	})
}

// TestImportedWithoutRollups raises the retention after the rollups of a week have expired, and imports a day of that
// week that never had raw samples. The samples can't be added to 5m rollups. If only raw samples were stored, nothing
// would be left after they have expired, although the retention of rollups is longer. On a single machine, which has a
// boundary for missing raw samples, the samples must be stored as 1h rollups. If the engine expires rows, they must be
// skipped. The samples of the following week must be stored.
func TestImportedWithoutRollups(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, expiring bool) {
		m := r.start(0, keeping(20*day, 20*day, 365*day))
		week := time.UnixMilli(m.period.WindowStart(m.period.WindowAt(rollup.FiveMinutes, r.now().UnixMilli()) - 1))
		require.Equal(t, 1, m.brings(week.Add(time.Hour), 1, day).Samples)
		r.passes(45*day, m)
		m.stop()
		m = r.start(0, keeping(60*day, 90*day, 365*day))
		stats := m.brings(week.Add(3*day+time.Hour), 1, day)
		if expiring {
			require.Equal(t, 1, stats.Expired, "%+v", stats)
		} else {
			require.Equal(t, []int{1, 1}, []int{stats.HoursOnly, stats.RawGone}, "%+v", stats)
			require.Equal(t, 1, m.bucketsBetween(rollup.OneHour, week.Add(2*day), week.Add(4*day)))
		}
		require.Zero(t, stats.Samples)
		stats = m.brings(week.Add(8*day+time.Hour), 1, day)
		require.Equal(t, 1, stats.Samples, "%+v", stats)
		require.Equal(t, 1, m.bucketsBetween(rollup.OneHour, week.Add(7*day), week.Add(9*day)))
	})
}

// TestLoweredByMistake lowers a retention for six days and raises it again: nothing may be lost. Then it lowers the
// retention permanently: the hidden samples must be dropped after a week.
func TestLoweredByMistake(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, expiring bool) {
		begin := r.now()
		running := func(raw, passes time.Duration) *clockMachine {
			m := r.start(0, keeping(raw, 0, 0))
			for ; passes > 0; passes -= day {
				require.NoError(t, m.write(r.now(), 1))
				require.NoError(t, m.SealAll(t.Context()))
				r.passes(day, m)
			}
			return m
		}
		running(90*day, 20*day).stop()
		m := running(3*day, 6*day)
		require.Less(t, m.visible(), 5)
		m.stop()
		m = running(90*day, 20*day)
		require.Equal(t, 46, m.visible())
		if expiring {
			require.Equal(t, 90*day+retention.Grace, m.keptFor(rollup.Raw, begin.Add(25*day)))
		}
		m.stop()
		m = running(3*day, 9*day)
		m.stop()
		if !expiring {
			require.Less(t, r.rowsOf(engine.Raw), 20, "space comes back")
		}
		m = running(90*day, day)
		if !expiring {
			require.Less(t, m.visible(), 20)
		}
	})
}

// TestRowsOfAWindowExpireTogether writes into the same windows with processes that have different retentions. Rows are
// written late, imported, or rewritten because of deletes, before and after the retention is raised, and by a process
// that was paused. All rows of a class in a window must expire at the same time.
func TestRowsOfAWindowExpireTogether(t *testing.T) {
	r := newExpiryRig(t, true)
	one, other := r.start(0, keeping(10*day, 20*day, 90*day)), r.start(0, keeping(10*day, 20*day, 90*day))
	r.passes(12*time.Hour, one, other)
	first := r.now()
	require.NoError(t, one.write(first, 1))
	require.NoError(t, one.SealAll(t.Context()))
	paused := other
	r.pass(time.Hour)
	one.stop()
	one = r.start(0, keeping(200*day, 0, 0))
	require.NoError(t, one.write(first.Add(time.Minute), 2))
	require.NoError(t, one.SealAll(t.Context()))
	one.brings(first.Add(-time.Hour), 30, time.Minute)
	require.NoError(t, one.Delete(
		t.Context(), "t", first.Add(-50*time.Minute).UnixMilli(), first.Add(-40*time.Minute).UnixMilli(), ofMetric()...,
	))
	require.NoError(t, one.CleanTombstones(t.Context(), "t"))
	require.NoError(t, paused.member.SendHeartbeat(t.Context()))
	require.NoError(t, paused.write(first.Add(2*time.Minute), 3))
	require.NoError(t, paused.SealAll(t.Context()))
	r.requireTogether()
	require.Equal(t, 10*day+retention.Grace, one.keptFor(rollup.Raw, first))
	r.passes(day, one, paused)
	require.NoError(t, one.write(r.now(), 4))
	require.NoError(t, one.SealAll(t.Context()))
	require.Equal(t, 200*day+retention.Grace, one.keptFor(rollup.Raw, r.now()))
	r.requireTogether()
}

// TestMistypedAtTheTurnOfAWindow starts all processes with retentions of two hours by mistake, at the start of a window
// of 1h rollups, and in the first minutes of a store. The samples of the next month must be kept for their full
// retention.
func TestMistypedAtTheTurnOfAWindow(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, expiring bool) {
		const wrong = 2 * time.Hour
		keeps := func(m *clockMachine, res rollup.Resolution, want time.Duration) {
			t.Helper()
			if expiring {
				require.Equal(t, want, m.keptFor(res, r.now()), "%s", res)
			}
		}
		m := r.start(0, keeping(wrong, wrong, wrong))
		require.NoError(t, m.write(r.now(), 1))
		require.NoError(t, m.SealAll(t.Context()))
		keeps(m, rollup.FiveMinutes, 14*day)
		keeps(m, rollup.OneHour, 35*day)
		m.stop()
		right := keeping(30*day, 365*day, 5*365*day)
		m = r.start(0, right)
		r.passes(12*time.Hour, m)
		second := r.now()
		require.NoError(t, m.write(second, 2))
		require.NoError(t, m.SealAll(t.Context()))
		r.passes(13*day, m)
		for _, res := range rollup.Resolutions {
			require.Equal(
				t, 2, m.bucketsBetween(res, second.Add(-day), r.now()), "%s of a new store, after 13 days", res,
			)
		}
		turn := time.UnixMilli(m.period.WindowEnd(m.period.WindowAt(rollup.OneHour, r.now().UnixMilli()) + 1))
		r.passes(turn.Sub(r.now())-26*time.Hour, m)
		m.stop()
		r.pass(turn.Sub(r.now()) - time.Minute)
		before := r.now()
		m = r.start(0, keeping(wrong, wrong, wrong))
		require.NoError(t, m.write(before, 3))
		require.NoError(t, m.SealAll(t.Context()))
		r.passes(3*time.Minute, m)
		require.NoError(t, m.write(r.now(), 4))
		require.NoError(t, m.SealAll(t.Context()))
		m.stop()
		m = r.start(0, right)
		keeps(m, rollup.OneHour, 5*365*day+retention.Grace)
		keeps(m, rollup.FiveMinutes, 365*day+retention.Grace)
		keeps(m, rollup.Raw, 30*day+retention.Grace)
		r.passes(28*day, m)
		require.Equal(t, 2, m.samplesBetween(before, r.now()), "raw, four weeks later")
		for _, res := range rollup.Resolutions {
			require.Equal(t, 2, m.bucketsBetween(res, before.Add(-time.Hour), r.now()), "%s, four weeks later", res)
		}
	})
}

// TestExpiryOfANewClass adds a class with a longer retention than all others, in a window whose shared rows already
// have an expiry. The rows of the class must expire with the shared rows, and in the next window be kept for their full
// retention.
func TestExpiryOfANewClass(t *testing.T) {
	t.Parallel()
	ts := openExpiring(t, func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 10*day, 20*day, 60*day })
	window := ts.period.RawWindowAt(ts.now.UnixMilli())
	shared, err := ts.retention.Expiry(t.Context(), "t", retention.Shared, window)
	require.NoError(t, err)
	ts.opts.Classes, ts.opts.AddClasses = []retention.Class{
		classOfJob("audit", "audit", retention.Durations{Raw: 90 * day, FiveMinutes: 90 * day, OneHour: 90 * day}),
	}, true
	ts.reopen()
	expires, err := ts.retention.Expiry(t.Context(), "t", 1, window)
	require.NoError(t, err)
	require.Equal(t, shared, expires)
	expires, err = ts.retention.Expiry(t.Context(), "t", 1, window+1)
	require.NoError(t, err)
	require.Equal(t, ts.period.WindowEnd(window+1)/1000+int64((90*day+retention.Grace).Seconds()), expires)
	later, err := ts.retention.LaterRetentions(t.Context())
	require.NoError(t, err)
	require.Empty(t, later, "nothing is sealed of the tenant")
	ts.write("t", jobLabels("web"), sample{ts.now.UnixMilli() - 1000, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	later, err = ts.retention.LaterRetentions(t.Context())
	require.NoError(t, err)
	require.Equal(t, retention.LaterRetention{
		Tenant: "t", Class: "audit", Resolution: rollup.Raw, Expire: time.Unix(shared, 0).UTC(),
		From: time.UnixMilli(ts.period.WindowEnd(window)).UTC(),
	}, later[0])
}

// TestExpiriesAhead checks that the expiries of the next day's windows are fixed for a tenant that was written to
// today, but not for an idle one.
func TestExpiriesAhead(t *testing.T) {
	t.Parallel()
	ts := openExpiring(t, func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 10*day, 20*day, 90*day })
	fixed := func(window int64) bool {
		_, ok, err := ts.storedExpiry(t.Context(), "t", retention.DefaultClass, window)
		require.NoError(t, err)
		return ok
	}
	next := ts.period.RawWindowAt(ts.now.UnixMilli()) + 1
	ts.write("t", labelsOfMetric(), sample{ts.now.UnixMilli() - 1000, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	ts.now = time.UnixMilli(ts.period.WindowEnd(next - 1)).Add(-time.Minute)
	_, err := ts.Expire(t.Context())
	require.NoError(t, err)
	require.True(t, fixed(next))
	ts.now = ts.now.Add(day)
	_, err = ts.Expire(t.Context())
	require.NoError(t, err)
	require.False(t, fixed(next+1))
}

// TestShortLivedRowsOfASlowClock writes rows with a TTL of an hour from a process whose clock is hours slow. They must
// expire after an hour by the engine's clock.
func TestShortLivedRowsOfASlowClock(t *testing.T) {
	r := newExpiryRig(t, true)
	m := r.start(-5*time.Hour, keeping(10*day, 0, 0))
	require.NoError(t, m.write(r.now().Add(-5*time.Hour), 1))
	tails := 0
	for _, b := range r.memory.All() {
		if b.Table == engine.Tails {
			tails++
			require.Equal(t, r.now().Add(membership.TailTTL).Unix(), b.Expires)
		}
	}
	require.Equal(t, 1, tails)
}
