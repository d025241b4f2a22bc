package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/rollup"
)

// deletedInClasses is a store with a series that changes its class, of which hours are deleted.
type deletedInClasses struct {
	*testStore
	midnight time.Time
}

// openDeletedInClasses opens a store with these classes. The series is in the first one.
func openDeletedInClasses(t *testing.T, keep ...Keep) *deletedInClasses {
	ts := openTestStore(t, func(o *Options) {
		o.Retention, o.Retention5m, o.Retention1h = 2*day, 60*day, 90*day
		o.AddClasses, o.seams.still = true, true
		for i, k := range keep {
			o.Classes = append(o.Classes, classOfJob(fmt.Sprint("class", i+1), "ci", k))
		}
	})
	return &deletedInClasses{ts, ts.now.Truncate(day)}
}

// hours writes and seals a sample per minute from one hour to another, counted from midnight of the first day.
func (ts *deletedInClasses) hours(from, to int) {
	ts.t.Helper()
	if at := ts.midnight.Add(time.Duration(to) * time.Hour); ts.now.Before(at) {
		ts.now = at
	}
	ts.write("default", jobLabels("ci"), every(ts.midnight.Add(time.Duration(from)*time.Hour+time.Minute), time.Minute, (to-from)*60)...)
	require.NoError(ts.t, ts.SealAll(ts.t.Context()))
}

// inClass restarts the store with another class for the series; 0: the default one.
func (ts *deletedInClasses) inClass(class int) {
	ts.t.Helper()
	for i := range ts.opts.Classes {
		job := "other"
		if i+1 == class {
			job = "ci"
		}
		ts.opts.Classes[i].Match = classOfJob("", job, Keep{}).Match
	}
	ts.reopen()
}

// deleteHours deletes whole hours.
func (ts *deletedInClasses) deleteHours(from, to int) {
	ts.t.Helper()
	at := func(h int) int64 { return ts.midnight.Add(time.Duration(h) * time.Hour).UnixMilli() }
	require.NoError(ts.t, ts.Delete(ts.t.Context(), "default", at(from)+1, at(to), equal("job", "ci")))
}

// TestDeleteAfterTheClassChangedWithinADay deletes hours of a class of which only buckets of an hour are left, on a day of which the series' next
// class has buckets of 5 minutes.
func TestDeleteAfterTheClassChangedWithinADay(t *testing.T) {
	t.Parallel()
	ts := openDeletedInClasses(t, Keep{2 * day, 3 * day, 90 * day}, Keep{2 * day, 60 * day, 60 * day})
	ts.hours(0, 12)
	ts.inClass(2)
	ts.hours(12, 24)
	ts.passes(ts.midnight.Add(36 * day))
	require.Equal(t, map[string]int{"ci": 720}, ts.bucketsOf("default", rollup.FiveMinutes))
	require.Equal(t, map[string]int{"ci": 1440}, ts.bucketsOf("default", rollup.OneHour))
	ts.deleteHours(3, 6)
	require.Equal(t, map[string]int{"ci": 1260}, ts.bucketsOf("default", rollup.OneHour), "asked for")
	require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
	require.Equal(t, map[string]int{"ci": 1260}, ts.bucketsOf("default", rollup.OneHour), "cleaned")
	ts.reopen()
	require.Equal(t, map[string]int{"ci": 1260}, ts.bucketsOf("default", rollup.OneHour), "after a restart")
	ts.passes(ts.midnight.Add(75 * day)) // Only rows of the first class are shown.
	require.Equal(t, map[string]int{"ci": 1260}, ts.bucketsOf("default", rollup.OneHour), "what the first class has")
}

// TestDeleteAfterTheClassChangedWithinAWeek deletes hours of a class that has buckets of 5 minutes, in a week in which the series' next class has some,
// too, of other days. The next class is kept for longer.
func TestDeleteAfterTheClassChangedWithinAWeek(t *testing.T) {
	t.Parallel()
	ts := openDeletedInClasses(t, Keep{2 * day, 12 * day, 20 * day})
	ts.midnight = ts.midnight.Add(-day) // The day after is of the same week.
	require.Equal(t, ts.period.WindowAt(rollup.FiveMinutes, ts.midnight.UnixMilli()+1), ts.period.WindowAt(rollup.FiveMinutes, ts.midnight.Add(2*day).UnixMilli()))
	ts.hours(0, 24)
	ts.inClass(0)
	ts.hours(24, 30)
	ts.passes(ts.midnight.Add(12 * day))
	require.Equal(t, map[string]int{"ci": 1800}, ts.bucketsOf("default", rollup.OneHour))
	ts.deleteHours(3, 6)
	require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
	for _, step := range []struct{ days, want int }{{12, 1620}, {14, 1620}, {25, 360}, {35, 360}} {
		ts.passes(ts.midnight.Add(time.Duration(step.days) * day))
		require.Equal(t, map[string]int{"ci": step.want}, ts.bucketsOf("default", rollup.OneHour), "after %d days", step.days)
	}
}
