package storage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestDeleteThatCutsBuckets deletes ranges that end within an hour, and within 5 minutes, at each state of the raw
// samples. The buckets of both resolutions count the same samples, from the moment the delete returns until after it
// was cleaned. The samples are 100 seconds apart, the last of each hour at its end.
func TestDeleteThatCutsBuckets(t *testing.T) {
	t.Parallel()
	type left struct{ raw, rollups int } // how many of 72 samples are left where samples are kept, and where only buckets are
	for name, of := range map[string]struct {
		from, to time.Duration
		left     left
	}{
		"an hour but for its end":         {0, time.Hour - time.Millisecond, left{37, 39}},
		"all but the end of 5 minutes":    {time.Millisecond, 20*time.Minute - time.Millisecond, left{61, 63}},
		"all samples of 5 minutes":        {25*time.Minute + 90*time.Second, 30 * time.Minute, left{69, 69}},
		"some samples of 5 minutes":       {25*time.Minute + 101*time.Second, 30 * time.Minute, left{70, 72}},
		"one slot's end, another's start": {30*time.Minute + time.Millisecond, 2*time.Hour + 10*time.Minute, left{18, 18}},
	} {
		for state, passed := range map[string]time.Duration{"kept": 0, "hidden": 5 * day, "gone": 30 * day} {
			for _, classes := range []bool{false, true} {
				for _, expiring := range []bool{false, true} {
					t.Run(name+", raw samples "+state+map[bool]string{true: ", classes"}[classes]+map[bool]string{true: ", expiring"}[expiring], func(t *testing.T) {
						t.Parallel()
						left, has := of.left.raw, false
						if state == "gone" {
							left, has = of.left.rollups, of.left.rollups != of.left.raw
						}
						deletesThatCut{of.from, of.to, passed, classes, expiring}.run(t, left, has)
					})
				}
			}
		}
	}
}

// deletesThatCut is one case of TestDeleteThatCutsBuckets: what it deletes, how long after the samples, whether other
// classes' samples are kept, and whether rows expire by themselves.
type deletesThatCut struct {
	from, to, passed  time.Duration
	classes, expiring bool
}

func (c deletesThatCut) run(t *testing.T, left int, hasDeleted bool) {
	open := openTestStore
	if c.expiring {
		open = openExpiring
	}
	ts := open(t, func(o *Options) {
		o.Retention, o.Retention5m, o.AddClasses, o.seams.still = 2*day, 400*day, true, true
		if c.classes {
			o.Classes = []retention.Class{classOfJob("audit", "audit", retention.Durations{Raw: 400 * day, FiveMinutes: 400 * day, OneHour: 0})}
		}
	})
	at := ts.now.Add(-12 * time.Hour).Truncate(2 * time.Hour)
	want := map[string]int{"api": 72, "audit": 72, "batch": 72}
	for job := range want {
		ts.write("default", jobLabels(job), every(at.Add(100*time.Second), 100*time.Second, 72)...)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.passes(ts.now.Add(c.passed))
	require.NoError(t, ts.Delete(t.Context(), "default", at.Add(c.from).UnixMilli(), at.Add(c.to).UnixMilli(), equal("job", "api")))
	want["api"] = left
	ts.requireBuckets(want, hasDeleted)
}

// requireBuckets requires these counts of samples in the buckets of both resolutions, now, when the deletes are worked
// off and cleaned, and after a restart. Where they count deleted samples, too, that is said.
func (ts *testStore) requireBuckets(want map[string]int, hasDeleted bool) {
	ts.t.Helper()
	for _, when := range []string{"deleted", "worked off", "cleaned", "started again"} {
		switch when {
		case "worked off":
			require.NoError(ts.t, ts.WorkOffDeletes(ts.t.Context(), "default"))
		case "cleaned":
			require.NoError(ts.t, ts.CleanTombstones(ts.t.Context(), "default"))
		case "started again":
			ts.reopen()
		}
		for _, res := range rollup.Resolutions {
			require.Equal(ts.t, want, ts.bucketsOf("default", res), "%s, %s", res, when)
			_, told := ts.warned(res)
			require.Equal(ts.t, hasDeleted, len(told) == 1 && strings.Contains(told[0], "the result includes deleted samples"), "%s, %s: %v", res, when, told)
			require.LessOrEqual(ts.t, len(told), 1)
		}
	}
}

// TestDeleteOfAllSamplesOfAnHour deletes an hour but for its last second, where only buckets of an hour are left: no
// sample is as late. Of the hour before it deletes nothing, though its end is in the range.
func TestDeleteOfAllSamplesOfAnHour(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention, o.Retention5m, o.seams.still = 2*day, 2*day, true })
	at := ts.now.Add(-12 * time.Hour).Truncate(2 * time.Hour)
	ts.write("default", jobLabels("api"), every(at.Add(30*time.Second), time.Minute, 240)...)
	require.NoError(t, ts.SealAll(t.Context()))
	ts.passes(ts.now.Add(30 * day))
	for _, from := range []time.Duration{time.Hour, 2 * time.Hour} {
		require.NoError(t, ts.Delete(t.Context(), "default", at.Add(from).UnixMilli(), at.Add(from+time.Hour-time.Second).UnixMilli(), equal("job", "api")))
	}
	for range 2 {
		require.Equal(t, map[string]int{"api": 120}, ts.bucketsOf("default", rollup.OneHour))
		require.Empty(t, ts.bucketsOf("default", rollup.FiveMinutes))
		require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
	}
}

// TestDeleteBeforeRawIsHidden deletes a part of buckets while raw samples are shown. Then the process stops before the
// delete was worked off, and starts when these samples are hidden, or have expired. A delete within a day before they
// are hidden is exact all the same, and so is any while they stand. Once they have expired, an answer that has deleted
// samples comes with a warning, and no other does.
func TestDeleteBeforeRawIsHidden(t *testing.T) {
	t.Parallel()
	const part, nothing = 20*time.Minute - time.Millisecond, 99 * time.Second
	for _, expiring := range []bool{false, true} {
		for _, c := range []struct{ ahead, stopped, to time.Duration }{ // Of the hiding, from the delete on, and the end of the delete.
			{time.Hour, 4 * time.Hour, part}, {time.Hour, 12 * day, part}, {23 * time.Hour, 12 * day, part},
			{30 * time.Hour, 40 * time.Hour, part}, {30 * time.Hour, 12 * day, part}, {30 * time.Hour, 12 * day, nothing},
		} {
			t.Run(fmt.Sprintf("expiring %v, %v", expiring, c), func(t *testing.T) {
				t.Parallel()
				open := openTestStore
				if expiring {
					open = openExpiring
				}
				ts := open(t, func(o *Options) { o.Retention, o.Retention5m, o.seams.still = 2*day, 400*day, true })
				at := ts.now.Add(-12 * time.Hour).Truncate(2 * time.Hour)
				ts.write("default", jobLabels("api"), every(at.Add(100*time.Second), 100*time.Second, 72)...)
				require.NoError(t, ts.SealAll(t.Context()))
				ts.passes(at.Add(2*day - c.ahead))
				require.NoError(t, ts.Delete(t.Context(), "default", at.Add(time.Millisecond).UnixMilli(), at.Add(c.to).UnixMilli(), equal("job", "api")))
				raw, _ := ts.warned(rollup.Raw)
				require.Len(t, raw, 1)
				for until := ts.now.Add(c.stopped); ts.now.Before(until); ts.now = ts.now.Add(time.Hour) {
					ts.clock.ObservedUptimeMS()
				}
				ts.reopen()
				expired := expiring && c.ahead > day && c.stopped > 9*day
				for _, when := range []string{"hidden", "worked off", "cleaned"} {
					switch when {
					case "worked off":
						require.NoError(t, ts.WorkOffDeletes(t.Context(), "default"))
					case "cleaned":
						require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
					}
					for _, res := range rollup.Resolutions {
						want := 61
						switch {
						case c.to == nothing || expired && res == rollup.OneHour && when == "hidden":
							want = 72
						case expired:
							want = 63
						}
						_, told := ts.warned(res)
						require.Equal(t, want, ts.bucketsOf("default", res)["api"], "%s, %s", when, res)
						hasDeleted := c.to != nothing && want != 61
						require.Equal(t, hasDeleted, len(told) == 1 && strings.Contains(told[0], "the result includes deleted samples"), "%s, %s: %v", when, res, told)
					}
				}
			})
		}
	}
}
