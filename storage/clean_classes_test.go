package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// A class of which only rollups are left is deleted from them, though others' samples of the same slots stand: at once,
// when the delete is worked off, when it is cleaned, and when nothing of it is left.
func TestDeleteOfAClassWhoseSamplesAreGone(t *testing.T) {
	for name, keep := range map[string]retention.Durations{"5m": {Raw: 2 * day, FiveMinutes: 40 * day, OneHour: 50 * day}, "1h": {Raw: 2 * day, FiveMinutes: 4 * day, OneHour: 50 * day}} {
		t.Run(name, func(t *testing.T) {
			ts := openTestStore(t, func(o *Options) {
				o.Retention, o.AddClasses, o.seams.still = 90*day, true, true
				o.Classes = []retention.Class{classOfJob("ci", "ci", keep)}
			})
			at := ts.now.Add(-8 * time.Hour).Truncate(2 * time.Hour)
			for _, job := range []string{"ci", "api"} { // Two slots.
				ts.write("default", jobLabels(job), every(at.Add(time.Minute), time.Minute, 240)...)
			}
			require.NoError(t, ts.SealAll(t.Context()))
			ts.passes(at.Add(13 * day))
			answers := func(when string, ci int) {
				t.Helper()
				jobs := map[string]int{"ci": ci, "api": 240}
				if ci == 0 {
					delete(jobs, "ci")
				}
				require.Equal(t, jobs, ts.bucketsOf("default", rollup.OneHour), "1h, %s", when)
				if keep.FiveMinutes < 13*day {
					delete(jobs, "ci")
				}
				require.Equal(t, jobs, ts.bucketsOf("default", rollup.FiveMinutes), "5m, %s", when)
			}
			answers("before", 240)
			for i, ci := range []int{180, 0} { // An hour, and then all.
				start, end := at.Add(time.Hour).UnixMilli()+1, at.Add(2*time.Hour).UnixMilli()
				if ci == 0 {
					start, end = -format.MaxTime, format.MaxTime
				}
				require.NoError(t, ts.Delete(t.Context(), "default", start, end, equal("job", "ci")))
				answers(fmt.Sprint("asked for, ", i), ci)
				require.NoError(t, ts.WorkOffDeletes(t.Context(), "default"))
				answers(fmt.Sprint("worked off, ", i), ci)
				require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
				answers(fmt.Sprint("cleaned, ", i), ci)
			}
			ts.reopen()
			answers("started anew", 0)
		})
	}
}

// Over an engine whose rows expire by themselves samples may be gone though their window is still listed: a delete is
// about the buckets that are left then, too.
func TestDeleteOfSamplesThatExpired(t *testing.T) {
	t.Parallel()
	for _, also := range []bool{false, true} { // Whether others' samples of the same slots stand.
		ts := openExpiring(t, func(o *Options) {
			o.Retention, o.seams.still = 2*day, true
			if also {
				o.AddClasses, o.Classes = true, []retention.Class{classOfJob("audit", "audit", keepLonger)}
			}
		})
		at := ts.now.Add(-8 * time.Hour).Truncate(2 * time.Hour)
		jobs := map[string]int{}
		for _, job := range []string{"ci", "audit"} {
			if job == "ci" || also {
				ts.write("default", jobLabels(job), every(at.Add(time.Minute), time.Minute, 240)...)
				jobs[job] = 240
			}
		}
		require.NoError(t, ts.SealAll(t.Context()))
		_, err := ts.Expire(t.Context())
		require.NoError(t, err)
		ts.now = at.Add(12 * day) // Nobody was there to hide, or drop.
		buckets := func(when string) {
			t.Helper()
			for _, res := range rollup.Resolutions {
				require.Equal(t, jobs, ts.bucketsOf("default", res), "%s, %s", res, when)
			}
		}
		buckets("before")
		require.NoError(t, ts.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("job", "ci")))
		delete(jobs, "ci")
		buckets("asked for")
		require.NoError(t, ts.WorkOffDeletes(t.Context(), "default"))
		buckets("worked off")
		ts.now = ts.now.Add(3 * day)
		require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
		buckets("cleaned")
		ts.reopen()
		buckets("started anew")
	}
}
