package storage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// deletedInClasses is a store with a series whose class changes and whose hours are deleted.
type deletedInClasses struct {
	*testStore
	midnight time.Time
}

// openDeletedInClasses opens a store with a class per retention in keep. The series is in the first class.
func openDeletedInClasses(t *testing.T, keep ...retention.Durations) *deletedInClasses {
	ts := openTestStore(t, func(o *Options) {
		o.Retention, o.Retention5m, o.Retention1h = 2*day, 60*day, 90*day
		o.AddClasses, o.seams.still = true, true
		for i, k := range keep {
			o.Classes = append(o.Classes, classOfJob(fmt.Sprint("class", i+1), "ci", k))
		}
	})
	return &deletedInClasses{ts, ts.now.Truncate(day)}
}

// hours writes one sample per minute between two hours, counted from midnight of the first day, and seals them.
func (ts *deletedInClasses) hours(from, to int) {
	ts.t.Helper()
	if at := ts.midnight.Add(time.Duration(to) * time.Hour); ts.now.Before(at) {
		ts.now = at
	}
	ts.write(
		"default", jobLabels("ci"),
		every(ts.midnight.Add(time.Duration(from)*time.Hour+time.Minute), time.Minute, (to-from)*60)...,
	)
	require.NoError(ts.t, ts.SealAll(ts.t.Context()))
}

// inClass restarts the store with the series in another class. 0 is the default class.
func (ts *deletedInClasses) inClass(class int) {
	ts.t.Helper()
	for i := range ts.opts.Classes {
		job := "other"
		if i+1 == class {
			job = "ci"
		}
		ts.opts.Classes[i].Match = classOfJob("", job, retention.Durations{}).Match
	}
	ts.reopen()
}

// deleteHours deletes the samples between two hours, counted from midnight of the first day.
func (ts *deletedInClasses) deleteHours(from, to int) {
	ts.t.Helper()
	at := func(h int) int64 { return ts.midnight.Add(time.Duration(h) * time.Hour).UnixMilli() }
	require.NoError(ts.t, ts.Delete(ts.t.Context(), "default", at(from)+1, at(to), equal("job", "ci")))
}

// TestDeleteAfterTheClassChangedWithinAWeek deletes hours of a class that has 5m buckets. In the same week the series
// also has 5m buckets of other days in its next class, which has a longer retention. The deleted samples must never be
// counted again, and the other samples must be counted during the retention of their class.
func TestDeleteAfterTheClassChangedWithinAWeek(t *testing.T) {
	t.Parallel()
	ts := openDeletedInClasses(t, retention.Durations{Raw: 2 * day, FiveMinutes: 12 * day, OneHour: 20 * day})
	ts.midnight = ts.midnight.Add(-day) // The next day must be in the same week.
	require.Equal(
		t, ts.period.WindowAt(rollup.FiveMinutes, ts.midnight.UnixMilli()+1),
		ts.period.WindowAt(rollup.FiveMinutes, ts.midnight.Add(2*day).UnixMilli()),
	)
	ts.hours(0, 24)
	ts.inClass(0)
	ts.hours(24, 30)
	ts.passes(ts.midnight.Add(12 * day))
	require.Equal(t, map[string]int{"ci": 1800}, ts.bucketsOf("default", rollup.OneHour))
	ts.deleteHours(3, 6)
	require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
	for _, step := range []struct{ days, want int }{{12, 1620}, {14, 1620}, {25, 360}, {35, 360}} {
		ts.passes(ts.midnight.Add(time.Duration(step.days) * day))
		require.Equal(
			t, map[string]int{"ci": step.want}, ts.bucketsOf("default", rollup.OneHour), "after %d days", step.days,
		)
	}
}

// TestRawRowsExpireDuringAnImport imports samples after a delete. Their raw rows expire before the delete is applied to
// the rollups, so the import fails. After a repeated import, queries must return the samples.
func TestRawRowsExpireDuringAnImport(t *testing.T) {
	t.Parallel()
	r, err := newClassesRun("classes base=2026-05-03T00:00:00Z engine=expiring keep=120h,120h,120h/48h,1248h,1728h")
	require.NoError(t, err)
	r.in[1] = 1
	r.start()
	defer r.stop()
	r.pass(17*time.Hour + 58*time.Minute)
	r.line(strings.Fields("import 1 188h 9")) // It fixes when the window's rows expire.
	r.beat()
	r.pass(24 * time.Hour)
	r.line(strings.Fields("delete 1 216h 208h"))
	require.Empty(t, r.problem)

	midnight := r.base.Truncate(day).Add(2 * day)
	require.Less(t, midnight.Sub(r.now()), 2*time.Minute)
	r.eng.Engine = faultengine.Wrap(unclosed{r.expiring}, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.Table == engine.R1h && r.now().Before(midnight) {
			r.passed.set(midnight.Sub(r.base) + time.Second)
		}
		return r.eng.rule(op)
	})
	words := strings.Fields("import 1 212h 9")
	_, times, v := r.samples(words)
	samples := &chunk.Samples{}
	for _, at := range times {
		samples.AppendFloat(at, 0, v)
	}
	_, err = r.Import(t.Context(), "t", []ImportedSeries{{waysLabels(1), samples}})
	require.ErrorIs(t, err, errRawExpired)
	r.model.put(1, times, v, r.classOf(1), r.now().UnixMilli(), false, false)
	r.beat()
	r.line(words)
	r.look()
	r.pass(2 * day)
	r.look()
	r.quiet()
	require.Empty(t, r.problem)
}
