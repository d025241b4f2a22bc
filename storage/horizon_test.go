package storage

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestHorizonSteps hides and shows again: windows hidden for a week may go, counted from when each part was hidden.
func TestHorizonSteps(t *testing.T) {
	const week = int64(7 * format.DayMS)
	h := horizon{HiddenMS: never, LackingMS: never, DroppedMS: never}
	h.aim(10*format.DayMS, 0)
	h.aim(11*format.DayMS, format.DayMS)
	require.Equal(t, int64(11*format.DayMS), h.HiddenMS)
	require.Equal(t, int64(never), h.due(week-1))
	require.Equal(t, int64(10*format.DayMS), h.due(week))
	// Back into the first step, and ahead again: the rest begins anew.
	h.aim(5*format.DayMS, 2*format.DayMS)
	require.Equal(t, int64(5*format.DayMS), h.HiddenMS)
	h.aim(11*format.DayMS, 3*format.DayMS)
	require.Equal(t, int64(5*format.DayMS), h.due(week), "what stayed hidden")
	require.Equal(t, int64(11*format.DayMS), h.due(week+3*format.DayMS))
	// Dropped windows are never shown again.
	h.drop(5*format.DayMS, false)
	h.aim(never, 4*format.DayMS)
	require.Equal(t, int64(5*format.DayMS), h.HiddenMS)
	require.Empty(t, h.Steps)
	// The number of steps is bounded; what goes later for it was hidden as long.
	for i := int64(6); i < 6+2*maxSteps; i++ {
		h.aim(i*format.DayMS, i)
	}
	require.Len(t, h.Steps, maxSteps)
	require.Greater(t, h.Steps[0].ToMS, int64(6*format.DayMS))
}

// TestKeptBefore lowers a retention, by mistake and for good, and raises it.
func TestKeptBefore(t *testing.T) {
	const day = int64(format.DayMS)
	h := horizon{KeptMS: 60 * day}
	h.keep(30*day, 50*day)
	h.keep(10*day, 53*day)
	require.Equal(t, 60*day, h.living(day, 59*day), "within a week of the last step")
	require.Equal(t, 10*day, h.living(day, 60*day))
	require.Equal(t, 90*day, h.living(90*day, 54*day), "another process keeps more")
	h.keep(45*day, 54*day)
	require.Equal(t, 60*day, h.living(45*day, 55*day), "taken back in part")
	h.keep(0, 55*day)
	require.Zero(t, h.living(day, 100*day))
	h.keep(day, 200*day)
	require.Zero(t, h.living(day, 206*day), "forever, for a week")
	require.Equal(t, day, h.living(day, 207*day))
	h.keep(365*day, 300*day)
	require.Zero(t, h.SinceMS)
	require.Equal(t, 365*day, h.living(day, 300*day))
}

// TestRestoredWindows has windows brought back that were dropped: what lies between and after them lacks rows, until the boundary passes it.
func TestRestoredWindows(t *testing.T) {
	const day = int64(format.DayMS)
	h := horizon{HiddenMS: never, LackingMS: never, DroppedMS: never}
	h.aim(100*day, 0)
	h.drop(100*day, false)
	require.True(t, h.restore(10*day, 11*day))
	require.Equal(t, []int64{10 * day, 10 * day, 10 * day}, []int64{h.HiddenMS, h.LackingMS, h.DroppedMS})
	require.Equal(t, []hole{{11 * day, 100 * day}}, h.Holes)
	require.True(t, h.restore(11*day, 12*day))
	require.True(t, h.restore(20*day, 21*day))
	require.True(t, h.restore(99*day, 100*day))
	require.True(t, h.restore(5*day, 6*day))
	require.Equal(t, []hole{{6 * day, 10 * day}, {12 * day, 20 * day}, {21 * day, 99 * day}}, h.Holes)
	for end, lacks := range map[int64]bool{5: true, 6: false, 7: true, 10: true, 11: false, 12: false, 13: true, 20: true, 21: false, 99: true, 100: false, 101: false} {
		require.Equal(t, lacks, h.lacks(end*day), end)
	}
	h.drop(15*day, false)
	require.Equal(t, 20*day, h.LackingMS)
	require.Equal(t, []hole{{21 * day, 99 * day}}, h.Holes)
	many := horizon{HiddenMS: 1000 * day, LackingMS: 1000 * day, DroppedMS: 1000 * day}
	restored := 0
	for i := int64(999); i > 0 && many.restore(i*day, i*day+day/2); i-- {
		restored++
	}
	require.Equal(t, maxHoles, restored, "the number of holes is bounded")
}

// horizonsGolden is a row as FORMAT.md shows it.
const horizonsGolden = `{"horizons":[{"class":0,"resolution":0,"hidden_ms":1777593600000,"lacking_ms":1776988800000,"dropped_ms":1776988800000,"holes":[{"from_ms":1777075200000,"to_ms":1777161600000}],"kept_ms":2592000000,"before_ms":86400000,"since_ms":31532400000,"steps":[{"to_ms":1777507200000,"seen_ms":31532400000,"lowered":{"kept_ms":0,"hidden_ms":1776988800000}},{"to_ms":1777593600000,"seen_ms":31618800000}]},{"class":0,"resolution":1,"hidden_ms":-9007199254740992,"lacking_ms":-9007199254740992,"dropped_ms":-9007199254740992,"kept_ms":0}]}`

func TestHorizonRows(t *testing.T) {
	r, err := parseHorizons([]byte(horizonsGolden))
	require.NoError(t, err)
	require.Equal(t, horizonRow{Horizons: []horizon{
		{
			HiddenMS: 1777593600000, LackingMS: 1776988800000, DroppedMS: 1776988800000, KeptMS: 2592000000, BeforeMS: 86400000, SinceMS: 31532400000,
			Holes: []hole{{1777075200000, 1777161600000}},
			Steps: []hidingStep{{1777507200000, 31532400000, &keptBefore{0, 1776988800000}}, {1777593600000, 31618800000, nil}},
		},
		{Resolution: rollup.FiveMinutes, HiddenMS: never, LackingMS: never, DroppedMS: never},
	}}, r)
	value, err := json.Marshal(r)
	require.NoError(t, err)
	require.Equal(t, horizonsGolden, string(value))
	for _, bad := range []string{
		"", "{", `{"horizons":[{"resolution":3}]}`, `{"horizons":[{"class":-1}]}`, `{"horizons":[{"hidden_ms":1,"lacking_ms":2}]}`,
		`{"horizons":[{"lacking_ms":1,"hidden_ms":1,"dropped_ms":2}]}`, `{"horizons":[{"resolution":1},{"resolution":0}]}`,
	} {
		_, err := parseHorizons([]byte(bad))
		require.Error(t, err, bad)
	}
}

// setHorizons stores a value in place of a tenant's row.
func (ts *testStore) setHorizons(tenant string, value []byte) {
	ts.t.Helper()
	before, err := ts.readHorizons(ts.t.Context(), tenant, nil)
	require.NoError(ts.t, err)
	ok, _, err := ts.eng.CompareAndSet(ts.t.Context(), engine.Store, horizonsPartition, engine.Key{engine.Text(tenant)}, before.value, value)
	require.NoError(ts.t, err)
	require.True(ts.t, ok)
}

// TestDamagedHorizons can't read a row: it is named, flags hide, and nothing goes.
func TestDamagedHorizons(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention, o.Retention5m, o.Retention1h = 2*day, 2*day, 2*day })
	ts.write("default", jobLabels("web"), sample{ts.now.UnixMilli() - 1000, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	ts.setHorizons("default", []byte("{"))
	ts.reopen()
	require.Zero(t, ts.passes(ts.now.Add(20*day)))
	require.Empty(t, ts.all("default"))
	ts.setHorizons("default", []byte(`{"horizons":[]}`))
	ts.reopen()
	require.Positive(t, ts.passes(ts.now.Add(8*day)))
}

// imports imports samples of one series.
func (ts *testStore) imports(ls labels.Labels, list ...sample) ImportStats {
	ts.t.Helper()
	var samples chunk.Samples
	for _, x := range list {
		samples.AppendFloat(x.t, 0, x.v)
	}
	stats, err := ts.Import(ts.t.Context(), "default", []ImportedSeries{{ls, &samples}})
	require.NoError(ts.t, err)
	return stats
}

// TestLateSamplesDontOverwriteHistory imports history of which only rollups are made, raises the retention and imports late
// samples of the same hour one by one: the hour counts no less than before.
func TestLateSamplesDontOverwriteHistory(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = day })
	ls := labels.FromStrings(labels.MetricName, "up", "job", "old")
	begin := ts.now.Add(-20 * day).Truncate(time.Hour)
	var list []sample
	for i := range 6 * 240 {
		list = append(list, sample{begin.Add(time.Duration(i)*15*time.Second + time.Millisecond).UnixMilli(), 1})
	}
	stats := ts.imports(ls, list...)
	require.Equal(t, len(list), stats.RollupsOnly)
	ts.opts.Retention = 30 * day
	ts.reopen()
	before := ts.bucketsOf("default", rollup.OneHour)
	require.Equal(t, len(list), before["old"])
	for i := range 3 {
		ts.imports(ls, sample{begin.Add(time.Duration(i)*time.Minute + 7*time.Second).UnixMilli(), 1})
		require.GreaterOrEqual(t, ts.bucketsOf("default", rollup.OneHour)["old"], before["old"])
	}
}

// TestHiddenWhenRollupsKnow lowers a retention over samples that were written after a delete, and of whose slots the rollups don't know of
// it yet: when they are hidden, these answer.
func TestHiddenWhenRollupsKnow(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention, o.seams.still = 30*day, true })
	require.NoError(t, ts.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("job", "web")))
	ts.write("default", jobLabels("web"), every(ts.now.Add(-15*day), time.Minute, 13)...)
	require.NoError(t, ts.SealAll(t.Context()))
	ts.opts.Retention = 10 * day
	ts.reopen()
	_, err := ts.Expire(t.Context())
	require.NoError(t, err)
	require.Empty(t, ts.all("default"))
	for _, res := range rollup.Resolutions {
		require.Equal(t, map[string]int{"web": 13}, ts.bucketsOf("default", res))
	}
}

// TestLoweringIsTold lowers a retention: before, it can be asked what that hides; afterwards it is told until it goes.
func TestLoweringIsTold(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = 0 })
	ts.write("default", jobLabels("web"), sample{ts.now.UnixMilli() - 1000, 1}, sample{ts.now.UnixMilli() - 500, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	ts.passes(ts.now.Add(10 * day))
	changes, err := ts.HorizonChanges(t.Context())
	require.NoError(t, err)
	require.Empty(t, changes)
	ts.opts.Retention, ts.opts.Retention5m, ts.opts.Retention1h = day, 0, 0
	ts.reopen()
	changes, err = ts.HorizonChanges(t.Context())
	require.NoError(t, err)
	require.Len(t, changes, 1)
	c := changes[0]
	require.False(t, c.Shown)
	require.Equal(t, int64(2), c.Samples)
	require.Equal(t, [2]time.Duration{0, day}, [2]time.Duration{c.Was, c.Is})
	require.WithinDuration(t, ts.now.Add(retention.Grace), c.Goes, time.Hour)
	require.Len(t, ts.all("default"), 1, "asking changes nothing")
	ts.passes(ts.now.Add(2 * day))
	require.Empty(t, ts.all("default"))
	hidden, err := ts.HiddenByLowering(t.Context())
	require.NoError(t, err)
	require.Len(t, hidden, 1)
	require.WithinDuration(t, ts.now.Add(5*day), hidden[0].Goes, time.Hour)
	view, err := OpenView(t.Context(), ts.eng, ts.opts)
	require.NoError(t, err)
	_, _, err = view.Clock(t.Context())
	require.NoError(t, err)
	fromOutside, err := view.HiddenByLowering(t.Context())
	require.NoError(t, err)
	require.Equal(t, hidden, fromOutside)
	// Taken back.
	ts.opts.Retention = 0
	ts.reopen()
	changes, err = ts.HorizonChanges(t.Context())
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.True(t, changes[0].Shown)
	ts.passes(ts.now)
	require.Len(t, ts.all("default"), 1)
	hidden, err = ts.HiddenByLowering(t.Context())
	require.NoError(t, err)
	require.Empty(t, hidden)
}

// TestLoweringThatHidesNothingIsNotTold lowers the retention of rollups, of which there are none that old.
func TestLoweringThatHidesNothingIsNotTold(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ts := openTestStore(t, func(o *Options) { o.Retention, o.Logger = 0, slog.New(slog.NewTextHandler(&log, nil)) })
	ts.write("default", jobLabels("web"), sample{ts.now.UnixMilli() - 1000, 1}, sample{ts.now.UnixMilli() - 500, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	ts.passes(ts.now.Add(10 * day))
	ts.opts.Retention, ts.opts.Retention5m, ts.opts.Retention1h = day, 30*day, 60*day
	ts.reopen()
	ts.passes(ts.now)
	require.Empty(t, ts.all("default"))
	require.Equal(t, 1, strings.Count(log.String(), "a shorter retention hides samples; they are deleted in a week. Until then, a server started with a longer retention shows them again"), log.String())
	require.Contains(t, log.String(), "resolution=raw")
}

// TestHorizonsWaitForTheClock drops nothing for a clock that leaps over the week, and goes on when the week has run.
func TestHorizonsWaitForTheClock(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = day })
	var ran time.Duration
	ts.opts.Elapsed = func() time.Duration { return ran }
	ts.reopen()
	ts.write("default", jobLabels("web"), sample{ts.now.UnixMilli() - 1000, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	pass := func(d time.Duration) { ts.now, ran = ts.now.Add(d), ran+d }
	expire := func() (n int, err error) { return ts.Expire(t.Context()) }
	pass(50 * time.Hour)
	_, err := expire()
	require.NoError(t, err)
	ts.now = ts.now.Add(30 * day)
	_, err = expire()
	require.ErrorIs(t, err, membership.ErrClock)
	pass(30 * day) // It is believed by now, but a leap isn't time that has passed.
	for range 3 {
		pass(time.Hour)
		_, err = expire()
		require.NoError(t, err)
	}
	h, err := ts.horizonsOf(t.Context(), "default")
	require.NoError(t, err)
	require.Greater(t, h.dropped(retention.DefaultClass, rollup.Raw), int64(never), "it ran for more than a week since")
	require.True(t, strings.HasPrefix(string(h.value), `{"horizons":[`))
}
