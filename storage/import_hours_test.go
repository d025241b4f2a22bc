package storage

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// hoursOnly keeps only the 1h rollups of the samples that historyOf returns: they are past the retention of raw samples
// and of 5m rollups.
var hoursOnly = keeping(10*day, 40*day, 400*day)

// historyOf returns series with 3 days of samples that ended 300 days ago.
func historyOf(now time.Time) []ImportedSeries {
	return pastOf(rand.New(rand.NewPCG(1, 2)), now.Add(-300*day), 3)
}

// importCopies imports copies of series, because the store may retain the imported samples.
func importCopies(t testing.TB, s *Store, list []ImportedSeries) ImportStats {
	t.Helper()
	var copies []ImportedSeries
	for _, x := range list {
		copies = append(copies, ImportedSeries{x.Labels, copyOf(x.Samples)})
	}
	stats, err := s.Import(t.Context(), "t", copies)
	require.NoError(t, err)
	return stats
}

// hoursOf returns the 1h buckets of all series, with all columns, as text by series.
func hoursOf(t testing.TB, s *Store) map[string]string {
	t.Helper()
	found, err := s.Select(t.Context(), query.Query{
		Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: rollup.OneHour,
		Columns: rollup.AllColumns, Warn: func(err error) { require.NoError(t, err) },
	})
	require.NoError(t, err)
	all := map[string]string{}
	for _, x := range found {
		var b rollup.Buckets
		require.NoError(t, x.Buckets(&b, &query.BucketBuffers{}))
		if b.Len() > 0 {
			all[x.Labels.String()] = fmt.Sprintf(
				"%d %x", b.Len(), rollup.AppendChunk(nil, &b, rollup.OneHour.Width(), 1),
			)
		}
	}
	return all
}

// bucketCount returns the number of samples in all buckets of a resolution of the matching series.
func bucketCount(t testing.TB, s *Store, res rollup.Resolution, matchers ...*labels.Matcher) (n int) {
	t.Helper()
	found, err := s.Select(t.Context(), query.Query{
		Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.AllColumns,
		Matchers: matchers,
	})
	require.NoError(t, err)
	for _, x := range found {
		var b rollup.Buckets
		require.NoError(t, x.Buckets(&b, &query.BucketBuffers{}))
		for _, c := range b.Count {
			n += int(c)
		}
	}
	return n
}

func requireNoProblems(t testing.TB, s *Store) {
	t.Helper()
	var problems []string
	_, err := s.Check(t.Context(), func(p string) { problems = append(problems, p) })
	require.NoError(t, err)
	require.Empty(t, problems)
}

// TestImportOfHistoryThatOnlyHoursCover imports samples past the retention of 5m rollups. Their 1h rollups must equal
// the 1h rollups of a store that retains everything. A repeated import must change nothing, samples past the retention
// of 1h rollups must be counted, and with a longer retention no rows may be missing.
func TestImportOfHistoryThatOnlyHoursCover(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, _ bool) {
		list := historyOf(r.now())
		all := newOwnRig(t).start(0, keeping(0, 0, 0))
		require.Equal(t, samplesOf(list), importCopies(t, all.Store, list).Samples)
		want := hoursOf(t, all.Store)
		require.Len(t, want, len(list))

		m := r.start(0, hoursOnly)
		stats := importCopies(t, m.Store, list)
		require.Equal(
			t, ImportStats{Series: len(list), RollupsOnly: samplesOf(list), HoursOnly: samplesOf(list)}, stats,
		)
		require.Equal(t, want, hoursOf(t, m.Store))
		require.Zero(t, bucketCount(t, m.Store, rollup.FiveMinutes))
		requireNoProblems(t, m.Store)

		again := importCopies(t, m.Store, list)
		require.Equal(t, stats.RollupsOnly, again.RollupsOnly)
		require.Positive(t, again.LeftOut)
		require.Equal(t, want, hoursOf(t, m.Store), "the same again")
		require.Equal(t, 3, m.brings(r.now().Add(-500*day), 3, time.Minute).Expired, "past all retentions")

		_, err := m.Expire(t.Context())
		require.NoError(t, err)
		r.passes(3*day, m)
		require.Equal(t, want, hoursOf(t, m.Store), "days later")
		m.stop()
		m = r.start(0, keeping(365*day, 365*day, 400*day))
		_, err = m.Expire(t.Context())
		require.NoError(t, err)
		shown, err := m.retention.VisibleRows(
			t.Context(), "t", r.now().Add(-310*day).UnixMilli(), r.now().UnixMilli(), false,
		)
		require.NoError(t, err)
		for res := rollup.Raw; res < rollup.OneHour; res++ {
			require.Greater(t, shown.Hidden[0].At[res], r.now().Add(-303*day).UnixMilli(),
				"queries read 1h rollups in place of %s", res)
		}
		require.Equal(t, want, hoursOf(t, m.Store), "after the retention was raised")
		requireNoProblems(t, m.Store)
	})
}

// newOwnRig returns an additional rig, on an engine in memory that doesn't expire rows.
func newOwnRig(t *testing.T) *expiryRig {
	r := &expiryRig{clockRig: &clockRig{t: t}, memory: memory.New()}
	r.eng = r.memory
	return r
}

// TestImportOfHoursThatFailsAnywhere fails each write of an import of 1h rollups in turn. A repeated import must then
// store the same rows as an import without errors.
func TestImportOfHoursThatFailsAnywhere(t *testing.T) {
	t.Parallel()
	soak.Seed(t)
	var want map[string]string
	for at := 0; ; at++ {
		require.Less(t, at, 100)
		var left countdown
		ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write && left.hit() {
				return faultengine.Fail(nil)
			}
			return faultengine.Pass()
		}, func(o *Options) { hoursOnly(o); o.seams.still = true })
		list := historyOf(ts.now)[:3]
		left.Store(int64(at))
		_, err := ts.Import(t.Context(), "t", []ImportedSeries{
			{list[0].Labels, copyOf(list[0].Samples)}, {list[1].Labels, copyOf(list[1].Samples)},
		})
		left.Store(0)
		require.Equal(t, samplesOf(list), importCopies(t, ts.Store, list).RollupsOnly)
		got := hoursOf(t, ts.Store)
		if at == 0 {
			want = got
		}
		require.Equal(t, want, got, "write %d failed", at)
		requireNoProblems(t, ts.Store)
		if at > 0 && err == nil {
			require.Greater(t, at, 3, "it writes more often")
			return
		}
	}
}

// TestDeletesOfHistoryThatOnlyHoursCover deletes imported hours, imports other hours of the same series, and deletes
// some of them. Only deleted hours may be missing, before and after the deletes are cleaned. One of the series also has
// 5m rollups.
func TestDeletesOfHistoryThatOnlyHoursCover(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, _ bool) {
		m := r.start(0, hoursOnly, func(o *Options) {
			o.AddClasses = true
			o.Classes = []retention.Class{
				classOfJob("ci", "ci", retention.Durations{Raw: 10 * day, FiveMinutes: 390 * day, OneHour: 400 * day}),
			}
		})
		r.pass(2 * day) // The classes are in force afterwards.
		at := r.now().Add(-300 * day).Truncate(day)
		bring := func(job string, hour int) {
			t.Helper()
			list := ImportedSeries{jobLabels(job), &chunk.Samples{}}
			for _, x := range every(at.Add(time.Duration(hour)*time.Hour+time.Minute), time.Minute, 60) {
				list.Samples.AppendFloat(x.t, 0, x.v)
			}
			stats := importCopies(t, m.Store, []ImportedSeries{list})
			require.Equal(t, 60, stats.RollupsOnly)
			if job == "ci" {
				require.Zero(t, stats.HoursOnly)
			} else {
				require.Equal(t, 60, stats.HoursOnly)
			}
		}
		check := func(when string, api, web, ci int) {
			t.Helper()
			for job, n := range map[string]int{"api": api, "web": web, "ci": ci} {
				require.Equal(t, n, bucketCount(t, m.Store, rollup.OneHour, equal("job", job)), "%s, %s", job, when)
			}
			require.Equal(t, ci, bucketCount(t, m.Store, rollup.FiveMinutes, equal("job", "ci")), when)
		}
		deleteJobs := func(from, to time.Time, jobs string) {
			t.Helper()
			require.NoError(t, m.Delete(
				t.Context(), "t", from.UnixMilli()+1, to.UnixMilli(),
				labels.MustNewMatcher(labels.MatchRegexp, "job", jobs),
			))
		}
		bring("api", 1)
		bring("api", 5)
		bring("web", 1)
		bring("ci", 1)
		check("before", 120, 60, 60)
		deleteJobs(at, at.Add(4*time.Hour), "api|ci")
		check("deleted", 60, 60, 0)
		bring("api", 2)
		check("brought", 120, 60, 0)
		bring("ci", 2)
		check("brought after others", 120, 60, 60)
		bring("api", 3)
		check("brought again", 180, 60, 60)
		require.NoError(t, m.WorkOffDeletes(t.Context(), "t"))
		check("worked off", 180, 60, 60)
		deleteJobs(at.Add(time.Hour), at.Add(3*time.Hour), "api")
		check("deleted again", 120, 60, 60)
		require.NoError(t, m.CleanTombstones(t.Context(), "t"))
		check("cleaned", 120, 60, 60)
		r.passes(3*day, m)
		require.NoError(t, m.CleanTombstones(t.Context(), "t"))
		check("days later", 120, 60, 60)
		requireNoProblems(t, m.Store)
	})
}

// TestDeletesOfHoursWithoutClasses deletes imported hours in a store without other data, and imports hours in multiple
// calls after the delete. All later hours must be kept when the delete is cleaned.
func TestDeletesOfHoursWithoutClasses(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, _ bool) {
		m := r.start(0, hoursOnly)
		at := r.now().Add(-300 * day).Truncate(day)
		bring := func(hour int) {
			t.Helper()
			require.Equal(t, 30, m.brings(at.Add(time.Duration(hour)*time.Hour+time.Minute), 30, time.Minute).HoursOnly)
		}
		bring(1)
		bring(2)
		require.NoError(t, m.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...))
		require.Zero(t, bucketCount(t, m.Store, rollup.OneHour))
		for i, hour := range []int{1, 4, 5} {
			bring(hour)
			require.Equal(t, 30*(i+1), bucketCount(t, m.Store, rollup.OneHour))
		}
		require.NoError(t, m.WorkOffDeletes(t.Context(), "t"))
		require.Equal(t, 90, bucketCount(t, m.Store, rollup.OneHour))
		r.passes(3*day, m)
		require.NoError(t, m.CleanTombstones(t.Context(), "t"))
		require.Equal(t, 90, bucketCount(t, m.Store, rollup.OneHour))
		requireNoProblems(t, m.Store)
	})
}

// TestSealedAfterTheRetentionOf5mRollups seals samples whose raw and 5m windows were already dropped. The samples must
// be added to 1h rollups, including those of other slots that are sealed together.
func TestSealedAfterTheRetentionOf5mRollups(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Minute, time.Hour} {
		ts := openTestStore(t, func(o *Options) { hoursOnly(o); o.seams.still = true })
		at := ts.now.Add(-8 * time.Hour)
		ts.write("default", jobLabels("other"), every(at, time.Minute, 3)...)
		require.NoError(t, ts.SealAll(t.Context()))
		ts.write("default", jobLabels("api"), every(at, step, 8)...)
		ts.write("default", jobLabels("web"), every(at, step, 7)...)
		ts.passes(at.Add(100 * day))
		require.NoError(t, ts.SealAll(t.Context()))
		want := map[string]int{"other": 3, "api": 8, "web": 7}
		require.Equal(t, want, ts.bucketsOf("default", rollup.OneHour), step)
		require.Empty(t, ts.bucketsOf("default", rollup.FiveMinutes))
		requireNoProblems(t, ts.Store)
	}
}

// TestHoursAfterADeleteThatOutlivesOthers5mRollups imports hours after a delete. It imports more hours after the 5m
// rollups of another class were dropped, together with the commit records of the delete in them. The hours that were
// imported first must be kept.
func TestHoursAfterADeleteThatOutlivesOthers5mRollups(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) {
		o.Retention, o.Retention5m, o.AddClasses, o.seams.still = 2*day, 40*day, true, true
		o.Classes = []retention.Class{
			classOfJob("ci", "ci", retention.Durations{Raw: 2 * day, FiveMinutes: 100 * day, OneHour: 0}),
		}
	})
	at := ts.now.Add(-80 * day).Truncate(day)
	bring := func(job string, hour int) {
		t.Helper()
		require.Equal(t, 30,
			ts.importJob(job, every(at.Add(time.Duration(hour)*time.Hour+time.Minute), time.Minute, 30)...).RollupsOnly)
	}
	bring("api", 1)
	bring("ci", 1)
	require.NoError(t, ts.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("job", "api")))
	bring("api", 2)
	require.Equal(t, map[string]int{"api": 30, "ci": 30}, ts.bucketsOf("default", rollup.OneHour))
	ts.passes(ts.now.Add(60 * day))
	require.Empty(t, ts.bucketsOf("default", rollup.FiveMinutes))
	bring("api", 3)
	require.Equal(t, map[string]int{"api": 60, "ci": 30}, ts.bucketsOf("default", rollup.OneHour))
}
