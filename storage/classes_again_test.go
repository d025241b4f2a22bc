package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestRollupsGoWithTheClassOfTheirSamples imports samples that are in the rollups of a class of before, whose raw rows are gone: the
// chunks of the present class have rollups of their own, which stay when those of the other class go.
func TestRollupsGoWithTheClassOfTheirSamples(t *testing.T) {
	t.Parallel()
	short := Class{Name: "short", Match: classOfJob("", "ci", Keep{}).Match, Keep: Keep{12 * day, 30 * day, 60 * day}}
	ts := openTestStore(t, func(o *Options) {
		o.Retention, o.Classes, o.AddClasses = 0, []Class{short}, true
	})
	at := ts.now.Add(-18 * day).UnixMilli()
	imports := func() {
		samples := &chunk.Samples{}
		for i := range int64(3) {
			samples.AppendFloat(at+i*60_000, 0, float64(i))
		}
		stats, err := ts.Import(t.Context(), "t", []ImportedSeries{{jobLabels("ci"), samples}})
		require.NoError(t, err)
		require.Equal(t, 3, stats.Samples)
	}
	imports()
	ts.passes(ts.now.Add(10 * day))
	require.Empty(t, ts.all("t"), "raw rows are gone")
	ts.opts.Classes = nil
	ts.reopen()
	imports()
	ts.opts.Classes = []Class{short} // It is configured as before, for others.
	ts.opts.Classes[0].Match = classOfJob("", "other", Keep{}).Match
	ts.reopen()
	for range 3 {
		ts.passes(ts.now.Add(20 * day))
		require.Len(t, ts.all("t")[jobLabels("ci").String()], 3)
		for _, res := range []rollup.Resolution{rollup.FiveMinutes, rollup.OneHour} {
			require.Equal(t, map[string]int{"ci": 3}, ts.bucketsOf("t", res), "%s at %v", res, ts.now.Format(time.DateOnly))
		}
		ts.check()
	}
}

// TestRollupsOfADayInTwoClasses changes the class of a series at noon: once a part of the day is past the retention of the class of the
// afternoon, that part is answered from what the morning's class has, and the rest from what has all.
func TestRollupsOfADayInTwoClasses(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) {
		withTestClasses(o)
		o.Classes, o.TenantRetention = nil, nil
	})
	midnight := format.FloorDiv(ts.now.UnixMilli(), format.DayMS)*format.DayMS - format.DayMS
	hours := func(from, to int64) {
		for h := from; h < to; h++ {
			ts.write("t", jobLabels("ci"), sample{midnight + h*format.HourMS + 60_000, 1}, sample{midnight + h*format.HourMS + 1_800_000, 1})
		}
		require.NoError(t, ts.SealAll(t.Context()))
	}
	hours(0, 12)
	ts.opts.Classes = []Class{classOfJob("ci", "ci", keepShort)}
	ts.reopen()
	ts.write("t", jobLabels("ci"), sample{midnight + 11*format.HourMS + 120_000, 1})
	hours(12, 24)
	for _, step := range []struct {
		hours int64 // of the day that are past it
		want  int
	}{{-1, 49}, {3, 49}, {18, 36}, {30, 24}} {
		ts.passes(time.UnixMilli(midnight + step.hours*format.HourMS).Add(keepShort.OneHour))
		require.Equal(t, map[string]int{"ci": step.want}, ts.bucketsOf("t", rollup.OneHour), "%d hours", step.hours)
	}
	ts.check()
}
