package storage

import (
	"bytes"
	"context"
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
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// storedBoundaries reads a tenant's row of retention boundaries.
func (s *Store) storedBoundaries(ctx context.Context, tenant string) (value []byte, err error) {
	item := engine.Key{engine.Text(tenant)}
	for row, err := range s.eng.Scan(
		ctx, engine.Range{Table: engine.Store, Partition: engine.Key{engine.Text("horizons")}, From: item, To: item},
	) {
		if err != nil {
			return nil, err
		}
		value = slices.Clone(row.Value)
	}
	return value, nil
}

// setHorizons replaces a tenant's row of retention boundaries.
func (ts *testStore) setHorizons(tenant string, value []byte) {
	ts.t.Helper()
	before, err := ts.storedBoundaries(ts.t.Context(), tenant)
	require.NoError(ts.t, err)
	ok, _, err := ts.eng.CompareAndSet(
		ts.t.Context(), engine.Store, engine.Key{engine.Text("horizons")}, engine.Key{engine.Text(tenant)}, before,
		value,
	)
	require.NoError(ts.t, err)
	require.True(ts.t, ok)
}

// TestDamagedHorizons damages the row of retention boundaries. The damage must be reported, the flags must determine
// which samples are hidden, and nothing may be dropped.
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

// imports calls Import with samples of one series.
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

// TestLateSamplesDontOverwriteHistory imports history that is only stored as rollups, raises the retention, and imports
// late samples of the same hour one by one. The hour's count must not decrease.
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

// TestHiddenWhenRollupsKnow lowers a retention when the rollups of some slots don't yet include a delete. The rollups
// must be computed before the samples of these slots are hidden, and queries must return the rollups. On an engine that
// expires rows, queries must not read hidden samples.
func TestHiddenWhenRollupsKnow(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB, func(*Options)) *testStore{
		"kept": openTestStore, "expiring": openExpiring,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := open(t, func(o *Options) { o.Retention, o.seams.still = 30*day, true })
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
		})
	}
}

// TestLoweringIsTold lowers a retention. Before it takes effect, Changes must report how many samples it will hide.
// Afterwards HiddenByLowering must report when the hidden samples are dropped, until the retention is raised again.
func TestLoweringIsTold(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = 0 })
	ts.write("default", jobLabels("web"), sample{ts.now.UnixMilli() - 1000, 1}, sample{ts.now.UnixMilli() - 500, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	ts.passes(ts.now.Add(10 * day))
	changes, err := ts.Retention().Changes(t.Context())
	require.NoError(t, err)
	require.Empty(t, changes)
	ts.opts.Retention, ts.opts.Retention5m, ts.opts.Retention1h = day, 0, 0
	ts.reopen()
	changes, err = ts.Retention().Changes(t.Context())
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
	hidden, err := ts.Retention().HiddenByLowering(t.Context())
	require.NoError(t, err)
	require.Len(t, hidden, 1)
	require.WithinDuration(t, ts.now.Add(5*day), hidden[0].Goes, time.Hour)
	view, err := OpenView(t.Context(), ts.eng, ts.opts)
	require.NoError(t, err)
	_, _, err = view.Clock(t.Context())
	require.NoError(t, err)
	fromOutside, err := view.Retention().HiddenByLowering(t.Context())
	require.NoError(t, err)
	require.Equal(t, hidden, fromOutside)
	// The retention is raised again.
	ts.opts.Retention = 0
	ts.reopen()
	changes, err = ts.Retention().Changes(t.Context())
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.True(t, changes[0].Shown)
	ts.passes(ts.now)
	require.Len(t, ts.all("default"), 1)
	hidden, err = ts.Retention().HiddenByLowering(t.Context())
	require.NoError(t, err)
	require.Empty(t, hidden)
}

// TestLoweringThatHidesNothingIsNotTold lowers the retentions of raw samples and of rollups. Only raw samples are old
// enough to be hidden, so only one line may be logged, about raw samples.
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
	require.Equal(t, 1, strings.Count(
		log.String(),
		"a shorter retention hides samples; they are deleted in a week. Until then, a server started with a longer retention shows them again",
	), log.String())
	require.Contains(t, log.String(), "resolution=raw")
}

// TestHorizonsWaitForTheClock makes a clock leap over the week in which samples are hidden. Nothing may be dropped
// until a week was observed.
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
	pass(30 * day) // The clock is trusted by now, but its leap isn't observed uptime.
	for range 3 {
		pass(time.Hour)
		_, err = expire()
		require.NoError(t, err)
	}
	h, err := ts.retention.Boundaries(t.Context(), "default")
	require.NoError(t, err)
	require.Greater(t, h.Dropped(retention.DefaultClass, rollup.Raw), int64(never), "it ran for more than a week since")
	value, err := ts.storedBoundaries(t.Context(), "default")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(value), `{"horizons":[`))
}
