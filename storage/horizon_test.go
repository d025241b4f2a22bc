package storage

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
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
	h.drop(5 * format.DayMS)
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

// TestHorizonOfShorterLives raises retentions over an engine whose rows vanish by themselves.
func TestHorizonOfShorterLives(t *testing.T) {
	now := int64(100 * format.DayMS)
	outlived := func(keptMS int64) int64 { return now - keptMS - 7*format.DayMS }
	h := horizon{KeptMS: 30 * format.DayMS, HiddenMS: never, LackingMS: never, DroppedMS: never}
	written := func() []wroteUnder {
		return []wroteUnder{{FromMS: 10 * format.DayMS, ToMS: 20 * format.DayMS}, {FromMS: 60 * format.DayMS, ToMS: now}}
	}
	h.keep(365*format.DayMS, 50*format.DayMS, written)
	require.Equal(t, []wroteUnder{{10 * format.DayMS, 20 * format.DayMS, 30 * format.DayMS}, {60 * format.DayMS, now, 30 * format.DayMS}}, h.Wrote)
	vanished := func(from, to int64) int64 { return h.vanished(outlived, from*format.DayMS, to*format.DayMS) }
	require.Equal(t, now-37*format.DayMS, vanished(0, 100))
	now += 50 * format.DayMS
	require.Equal(t, int64(100*format.DayMS), vanished(0, 200), "not what was written later")
	require.Equal(t, int64(100*format.DayMS), vanished(100, 101))
	require.Equal(t, int64(never), vanished(101, 200))
	require.Equal(t, int64(never), vanished(30, 60), "nor what was written between")
	require.Equal(t, int64(20*format.DayMS), vanished(0, 60))
	require.Equal(t, int64(never), vanished(0, 10))
	// The lacking range takes up the gaps that it touches.
	h.lackVanished(outlived)
	require.Equal(t, int64(never), h.LackingMS)
	h.lack(15 * format.DayMS)
	h.lackVanished(outlived)
	require.Equal(t, int64(20*format.DayMS), h.LackingMS)
	h.lack(61 * format.DayMS)
	h.lackVanished(outlived)
	require.Equal(t, int64(100*format.DayMS), h.LackingMS)
	require.Empty(t, h.Wrote)
	// A retention that was raised a moment ago and is raised once more: rows of that moment, too.
	twice := horizon{KeptMS: 30 * format.DayMS, HiddenMS: never, LackingMS: never, DroppedMS: never}
	twice.keep(60*format.DayMS, 50*format.DayMS, written)
	twice.keep(365*format.DayMS, 51*format.DayMS, written)
	require.Len(t, twice.Wrote, 4)
	// One start with a wrong flag doesn't count, but the retention in force before it does, also once it was taken back.
	for _, by := range [][]int64{{30, 365}, {30, 60, 365}, {30, 20, 45, 60, 0}} {
		wrong := horizon{KeptMS: 60 * format.DayMS, HiddenMS: never, LackingMS: never, DroppedMS: never}
		for i, kept := range by {
			require.Empty(t, wrong.Wrote)
			wrong.keep(kept*format.DayMS, (50+int64(i))*format.DayMS, written)
		}
		require.Equal(t, []wroteUnder{{10 * format.DayMS, 20 * format.DayMS, 60 * format.DayMS}, {60 * format.DayMS, now, 60 * format.DayMS}}, wrong.Wrote)
		require.True(t, wrong.Raised)
		require.Zero(t, wrong.BeforeMS)
	}
	h.keep(30*format.DayMS, 51*format.DayMS, written)
	h.keep(365*format.DayMS, 52*format.DayMS, written)
	require.Empty(t, h.Wrote)
	h.keep(30*format.DayMS, 60*format.DayMS, nil)
	h.keep(0, 70*format.DayMS, nil)
	require.Empty(t, h.Wrote, "here nothing vanishes by itself")
	require.Zero(t, h.BeforeMS)
	// Where the windows could not be listed: all that is older.
	h.Wrote = []wroteUnder{{ToMS: 140 * format.DayMS, KeptMS: 3 * format.DayMS}}
	require.Equal(t, int64(140*format.DayMS), vanished(110, 120))
	h.lackVanished(outlived)
	require.Equal(t, int64(140*format.DayMS), h.LackingMS)
}

// TestManyShorterLives has more ranges than a horizon keeps: those that are near to each other become one, which has all of them.
func TestManyShorterLives(t *testing.T) {
	h := horizon{HiddenMS: never, LackingMS: never, DroppedMS: never}
	for i := range int64(2 * maxWrote) {
		h.keep(format.DayMS+i, (100+20*i)*format.DayMS, nil)
		h.keep(2*format.DayMS, (110+20*i)*format.DayMS, func() []wroteUnder {
			return []wroteUnder{{FromMS: 100 * i * format.DayMS, ToMS: (100*i + 1) * format.DayMS}, {FromMS: (100*i + 3) * format.DayMS, ToMS: (100*i + 4) * format.DayMS}}
		})
	}
	require.Len(t, h.Wrote, maxWrote)
	for i := range int64(2 * maxWrote) {
		for _, end := range []int64{(100*i + 1) * format.DayMS, (100*i + 4) * format.DayMS} {
			require.True(t, slices.ContainsFunc(h.Wrote, func(w wroteUnder) bool { return end > w.from() && end <= w.ToMS && w.KeptMS <= format.DayMS+i }), "%d", end)
		}
	}
}

// horizonsGolden is a row as FORMAT.md shows it.
const horizonsGolden = `{"horizons":[{"class":0,"resolution":0,"hidden_ms":1777593600000,"lacking_ms":1776988800000,"dropped_ms":1776988800000,"kept_ms":2592000000,"since_ms":31532400000,"raised":true,"wrote":[{"from_ms":1777420800000,"to_ms":1777593600000,"kept_ms":86400000}],"steps":[{"to_ms":1777507200000,"seen_ms":31532400000,"lowered":{"kept_ms":0,"hidden_ms":1776988800000}},{"to_ms":1777593600000,"seen_ms":31618800000}]},{"class":0,"resolution":1,"hidden_ms":-9007199254740992,"lacking_ms":-9007199254740992,"dropped_ms":-9007199254740992,"kept_ms":0}]}`

func TestHorizonRows(t *testing.T) {
	r, err := parseHorizons([]byte(horizonsGolden))
	require.NoError(t, err)
	require.Equal(t, horizonRow{Horizons: []horizon{
		{
			HiddenMS: 1777593600000, LackingMS: 1776988800000, DroppedMS: 1776988800000, KeptMS: 2592000000, SinceMS: 31532400000,
			Raised: true, Wrote: []wroteUnder{{1777420800000, 1777593600000, 86400000}},
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

// TestStoreWithoutHorizons opens a store that has no row of horizons, of which raw windows were dropped: it is found out,
// and a higher retention doesn't look for them.
func TestStoreWithoutHorizons(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = 2 * day })
	begin := ts.now
	for d := range time.Duration(4) {
		ts.now = begin.Add(d * day)
		ts.write("default", jobLabels("web"), sample{ts.now.UnixMilli() - 1000, 1})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	first := ts.period.RawWindowAt(begin.UnixMilli())
	_, err := ts.dropWindow(t.Context(), first, []string{"default"})
	require.NoError(t, err)
	ts.opts.Retention = 0
	ts.reopen()
	h, err := ts.horizonsOf(t.Context(), "default")
	require.NoError(t, err)
	require.Nil(t, h.value)
	require.Equal(t, ts.period.WindowEnd(first), h.lacking(classDefault, rollup.Raw))
	require.Equal(t, int64(never), h.lacking(classDefault, rollup.FiveMinutes))
	all, err := ts.horizons(t.Context(), "default", -format.MaxTime, format.MaxTime)
	require.NoError(t, err)
	require.Equal(t, ts.period.WindowEnd(first), all[0].At[rollup.Raw])
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
	require.WithinDuration(t, ts.now.Add(expireGrace), c.Goes, time.Hour)
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
	require.Greater(t, h.dropped(classDefault, rollup.Raw), int64(never), "it ran for more than a week since")
	require.True(t, strings.HasPrefix(string(h.value), `{"horizons":[`))
}
