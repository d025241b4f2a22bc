package storage

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestExpiriesFixedByOthersAreRead reads the expiries of a window in a process before another process fixes the expiry
// of a class in it. Both processes must treat the rows of that class as expired at the same time.
func TestExpiriesFixedByOthersAreRead(t *testing.T) {
	r := newExpiryRig(t, true)
	classes := func(o *Options) {
		o.Classes, o.AddClasses = []retention.Class{
			classOfJob("short", "short", retention.Durations{Raw: day, FiveMinutes: day, OneHour: day}),
		}, true
	}
	one, other := r.start(0, keeping(90*day, 0, 0), classes), r.start(0, keeping(90*day, 0, 0), classes)
	r.passes(12*time.Hour, one, other)
	window := one.period.WindowAt(rollup.Raw, r.now().UnixMilli())
	_, err := one.retention.Expiry(t.Context(), "t", retention.DefaultClass, window)
	require.NoError(t, err)
	require.NoError(t, one.retention.LoadExpiries(t.Context(), "t", window))
	expires, err := other.retention.Expiry(t.Context(), "t", 1, window)
	require.NoError(t, err)
	r.passes(time.Unix(expires, 0).Sub(r.now())-retention.Margin+time.Hour, one, other)
	for i, m := range []*clockMachine{one, other} {
		require.NoError(t, m.retention.LoadExpiries(t.Context(), "t", window))
		require.Equal(t, []int64{retention.DefaultClass}, m.retention.UnexpiredClasses("t", window), "process %d", i)
	}
}

// TestRaisedThenImportedWithRollups starts with a retention of 30 days for all resolutions, raises it, and imports
// older history into days whose rows were all dropped. Raw samples and rollups must be kept for the raised retention.
func TestRaisedThenImportedWithRollups(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, expiring bool) {
		begin := r.now()
		m := r.start(0, keeping(30*day, 30*day, 30*day))
		for i := range 80 {
			require.NoError(t, m.write(r.now(), float64(i)))
			require.NoError(t, m.SealAll(t.Context()))
			r.passes(day, m)
		}
		m.stop()
		m = r.start(0, keeping(200*day, 365*day, 365*day))
		from, to := begin.Add(-100*day), begin.Add(-36*day+time.Hour)
		stats := m.brings(from, 65, day)
		require.Zero(t, stats.RollupsOnly+stats.Expired, "%+v", stats)
		r.passes(3*day, m)
		left, err := listed(m.Unrolled(t.Context(), -format.MaxTime/2, format.MaxTime/2, func() {}))
		require.NoError(t, err)
		require.Empty(t, left, "rollups were dropped again")
		require.Equal(t, 65, m.samplesBetween(from, to))
		n, warnings := m.bucketsAndWarnings(rollup.OneHour, from.Add(-time.Hour), r.now())
		require.Greater(t, n, 65+20, "a query over a hole of all resolutions sees both sides of it")
		require.Len(t, warnings, 1)
		var hole *retention.HoleError
		require.ErrorAs(t, warnings[0], &hole)
		require.Greater(t, hole.From, to.UnixMilli())
		require.Less(t, hole.From, begin.UnixMilli())
		require.Less(t, hole.To, r.now().Add(-20*day).UnixMilli())
		r.passes(130*day, m)
		require.Zero(t, m.samplesBetween(from, to))
		for _, res := range rollup.Resolutions {
			require.Equal(t, 65, m.bucketsBetween(res, from.Add(-time.Hour), to.Add(time.Hour)), "%s", res)
		}
		r.passes(160*day, m)
		for _, res := range rollup.Resolutions {
			require.Zero(t, m.bucketsBetween(res, from.Add(-time.Hour), to.Add(time.Hour)), "%s", res)
		}
	})
}

// TestRaisedThenImportedBesideCoarserRollups starts with a longer retention for 1h rollups than for other rows, raises
// the shorter retentions, and imports into days that only have 1h rollups left. The 1h rollups include all samples, so
// 5m buckets of the imported samples must not replace them in answers.
func TestRaisedThenImportedBesideCoarserRollups(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, _ bool) {
		begin := r.now()
		m := r.start(0, keeping(30*day, 30*day, 365*day))
		for i := range 80 {
			require.NoError(t, m.write(r.now(), float64(i)))
			require.NoError(t, m.SealAll(t.Context()))
			r.passes(day, m)
		}
		m.stop()
		m = r.start(0, keeping(200*day, 365*day, 365*day))
		at := begin.Add(10 * day).Truncate(time.Hour)
		stats := m.brings(at.Add(5*time.Minute), 5, time.Minute)
		require.Equal(t, []int{5, 5}, []int{stats.HoursOnly, stats.RawGone}, "%+v", stats)
		_, err := m.Expire(t.Context())
		require.NoError(t, err)
		shown, err := m.retention.VisibleRows(t.Context(), "t", at.UnixMilli(), at.Add(time.Hour).UnixMilli(), false)
		require.NoError(t, err)
		for _, res := range []rollup.Resolution{rollup.Raw, rollup.FiveMinutes} {
			require.Greater(t, shown.Hidden[0].At[res], at.Add(time.Hour).UnixMilli(), "%s", res)
		}
		require.Equal(t, 6, m.bucketsBetween(rollup.OneHour, at.Add(-time.Hour), at.Add(time.Hour)))
	})
}

// TestRestoredAfterAFastClock drops all rows of a window by a clock that was fast by weeks, and corrects the clock.
// Then it imports the window again in the same process, which has written the names of the window before. The names and
// samples must be found.
func TestRestoredAfterAFastClock(t *testing.T) {
	r := newExpiryRig(t, false)
	m := r.start(0, keeping(30*day, 30*day, 30*day))
	first := r.now()
	require.NoError(t, m.write(first, 1))
	require.NoError(t, m.SealAll(t.Context()))
	m.set(200 * day)
	for m.clock.MayRemove() != nil {
		r.pass(time.Hour)
	}
	r.passes(10*day, m)
	window := m.period.WindowAt(rollup.Raw, first.UnixMilli())
	rows, err := m.hasRows(t.Context(), "t", window)
	require.NoError(t, err)
	require.False(t, rows)
	m.set(0)
	for r.pass(time.Hour); m.clock.MayRemove() != nil; r.pass(time.Hour) {
		require.Less(t, r.now().Sub(first), 29*day)
	}
	stats := m.brings(first, 5, time.Minute)
	require.Zero(t, stats.RollupsOnly+stats.Expired, "%+v", stats)
	require.Equal(t, 5, m.samplesBetween(first, first.Add(time.Hour)))
	names, err := m.LabelValues(
		t.Context(), labels.MetricName,
		query.Query{Tenant: "t", MinT: first.UnixMilli(), MaxT: first.Add(time.Hour).UnixMilli()},
	)
	require.NoError(t, err)
	require.Equal(t, []string{"m"}, names)
	_, err = m.Check(t.Context(), func(problem string) { t.Error(problem) })
	require.NoError(t, err)
}
