package storage

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestClassOfASeriesChanges adds a class for series that already have rows, and removes it again. Late samples must be
// stored in the class of their day, and samples of later days in the new class. No class number may be reused.
func TestClassOfASeriesChanges(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) {
		withTestClasses(o)
		o.Classes, o.TenantRetention = nil, nil
	})
	ls := jobLabels("ci")
	classes := func(list ...retention.Class) {
		ts.opts.Classes = list
		ts.reopen()
	}
	var days []int64
	var in []int64
	written := 0
	seal := func(day, class int64) {
		t.Helper()
		ts.write("usual", ls, sample{day + int64(written)*15_000, float64(written)})
		written++
		require.NoError(t, ts.SealAll(t.Context()))
		require.Len(t, ts.all("usual"), 1)
		require.Len(t, ts.all("usual")[ls.String()], written)
		for res := range rollup.Resolution(resolutions) {
			if res > rollup.Raw {
				require.Equal(t, map[string]int{"ci": written}, ts.bucketsOf("usual", res))
			}
			require.Positive(t, ts.chunksAt(res, day, class, "usual"), "%s, class %d", res, class)
		}
		ts.check()
	}
	step := func(class int64) {
		t.Helper()
		for i, day := range days { // Late samples.
			seal(day, in[i])
		}
		at := ts.now.Add(-5 * time.Hour).UnixMilli()
		days, in = append(days, at), append(in, class)
		seal(at, class)
		ts.now = ts.now.Add(6 * time.Hour)
	}
	step(0)
	ts.now = ts.now.Add(18 * time.Hour)
	classes(classOfJob("other", "x", keepLonger), classOfJob("ci", "ci", keepLonger))
	step(2)
	ts.now = ts.now.Add(18 * time.Hour)
	classes(classOfJob("new", "ci", keepLonger))
	step(3)
	classes()
	seal(days[2], 3) // The day keeps its list of classes.
	ts.now = ts.now.Add(18 * time.Hour)
	step(0)
	ts.now = ts.now.Add(18 * time.Hour)
	classes(classOfJob("ci", "ci", keepLonger))
	step(2)
	require.EqualValues(t, 4, ts.retention.Classes())
	require.Equal(t, []retention.ListFrom{{FromMS: never, ID: ts.retention.ListInForce(0)}}, listsOf(t, ts.eng))

	// The samples of each class must expire at the time of that class.
	of := map[int64]int{}
	for i := range in {
		of[in[i]] += len(in) - i
	}
	of[3]++
	require.Equal(t, written, of[0]+of[2]+of[3])
	ts.passes(ts.now.Add(keepLong.Raw))
	require.Len(t, ts.all("usual")[ls.String()], of[2]+of[3])
	require.Equal(t, map[string]int{"ci": written}, ts.bucketsOf("usual", rollup.FiveMinutes))
	ts.passes(ts.now.Add(keepLong.FiveMinutes))
	require.Equal(t, map[string]int{"ci": of[2] + of[3]}, ts.bucketsOf("usual", rollup.FiveMinutes))
	require.Equal(t, map[string]int{"ci": written}, ts.bucketsOf("usual", rollup.OneHour))
	ts.check()
}

// TestLateSamplesGoByTheirDay moves one series to a class with a shorter retention, and another to a class with a
// longer one. Late samples must be accepted, returned and stored by the class of their day, and by the current class if
// their day has no rows.
func TestLateSamplesGoByTheirDay(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, withTestClasses)
	at := ts.now.Add(-time.Hour)
	for _, job := range []string{"ci", "audit"} { // ci has the shorter retention, and audit the longer one.
		ts.write("a", jobLabels(job), sample{at.UnixMilli(), 1})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.now = ts.now.Add(10 * day)
	ts.opts.Classes = []retention.Class{classOfJob("ci", "audit", keepShort), classOfJob("audit", "ci", keepLonger)}
	ts.reopen()
	late := func(job string, at time.Time, want error) {
		t.Helper()
		b := ts.NewBatch("a")
		s, err := b.Define(nil, jobLabels(job))
		require.NoError(t, err)
		require.ErrorIs(t, b.Float(s, at.UnixMilli(), 0, 1), want, job)
		require.NoError(t, b.Commit(t.Context()))
	}
	late("audit", at.Add(time.Minute), nil)
	late("ci", at.Add(time.Minute), ErrTooOld)
	late("audit", at.Add(-2*day), ErrTooOld)
	late("ci", at.Add(-2*day), nil)
	for range 2 {
		require.Len(t, ts.all("a")[jobLabels("audit").String()], 2)
		require.Len(t, ts.all("a")[jobLabels("ci").String()], 1)
		require.NoError(t, ts.SealAll(t.Context()))
	}
	require.Equal(t, 2, ts.chunksAt(rollup.Raw, at.UnixMilli(), 2, "a"), "the class of the day")
	require.Equal(t, 1, ts.chunksAt(rollup.Raw, at.Add(-2*day).UnixMilli(), 2, "a"), "the present class")
	ts.check()
}

// sharedClasses is a store that processes with different class files share.
type sharedClasses struct {
	t    *testing.T
	eng  engine.Engine
	opts Options
	now  time.Time
	log  bytes.Buffer
	all  []*testStore
}

func newSharedClasses(t *testing.T) *sharedClasses {
	x := &sharedClasses{
		t: t, eng: memory.New(), opts: DefaultOptions(), now: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC),
	}
	x.opts.Now = func() time.Time { return x.now }
	x.opts.Shared, x.opts.AddClasses, x.opts.seams.still, x.opts.seams.trustsClocks = true, true, true, true
	x.opts.Logger = slog.New(slog.NewTextHandler(&x.log, nil))
	return x
}

func (x *sharedClasses) open(list ...retention.Class) *testStore {
	opts := x.opts
	opts.Classes = list
	s := openReady(x.t, x.eng, opts)
	x.t.Cleanup(func() { require.NoError(x.t, s.Close()) })
	x.all = append(x.all, &testStore{Store: s, t: x.t, eng: x.eng, now: x.now})
	return x.all[len(x.all)-1]
}

// passes advances the time, and lets each process send a heartbeat.
func (x *sharedClasses) passes(d time.Duration) {
	x.now = x.now.Add(d)
	for _, s := range x.all {
		require.NoError(x.t, s.member.SendHeartbeat(x.t.Context()))
	}
}

// TestClassesOfASharedStoreBeginLater adds a class while another process writes to the store. Both processes must use
// the class from the first day that starts at least 25 hours later. An old day without rows must get the list in force.
func TestClassesOfASharedStoreBeginLater(t *testing.T) {
	t.Parallel()
	x := newSharedClasses(t)
	old := x.open()
	at := x.now.Add(-time.Hour)
	old.write("a", jobLabels("ci"), sample{at.UnixMilli(), 1})
	require.NoError(t, old.SealAll(t.Context()))
	young := x.open(classOfJob("ci", "ci", keepLonger))
	begin := time.Date(2026, 5, 8, 0, 0, 0, 0, time.UTC)
	require.Contains(t, x.log.String(), "take effect later")
	require.Contains(t, x.log.String(), begin.Format(time.RFC3339))
	require.EqualValues(t, 1, old.retention.Classes())
	require.NoError(t, old.refreshPeriods(t.Context()))
	require.EqualValues(t, 2, old.retention.Classes())
	require.Contains(t, x.log.String(), "another process was started later")
	imports := func(s *testStore, at time.Time) {
		samples := &chunk.Samples{}
		samples.AppendFloat(at.UnixMilli(), 0, 1)
		_, err := s.Import(t.Context(), "a", []ImportedSeries{{jobLabels("ci"), samples}})
		require.NoError(t, err)
	}
	imports(young, at.Add(-5*day))
	require.Equal(t, 1, young.chunksAt(rollup.Raw, at.Add(-5*day).UnixMilli(), 0, "a"), "the list isn't in force")
	for i, s := range []*testStore{young, old, old, young} { // All processes use the store's list.
		s.write("a", jobLabels("ci"), sample{x.now.Add(-time.Duration(i) * time.Minute).UnixMilli(), 1})
		require.NoError(t, s.SealAll(t.Context()))
		class := int64(0)
		if x.now.After(begin) {
			class = 1
		}
		require.Positive(t, s.chunksAt(rollup.Raw, x.now.UnixMilli(), class, "a"), "at %v", x.now)
		require.Zero(t, s.chunksAt(rollup.Raw, x.now.UnixMilli(), 1-class, "a"), "at %v", x.now)
		x.passes(day)
	}
	imports(old, at.Add(-6*day))
	require.Equal(t, 1, old.chunksAt(rollup.Raw, at.Add(-6*day).UnixMilli(), 1, "a"), "the day had no rows")
	imports(old, at.Add(-5*day-time.Hour))
	require.Zero(t, old.chunksAt(rollup.Raw, at.Add(-5*day).UnixMilli(), 1, "a"), "the day has a list")
	for _, s := range []*testStore{old, young} {
		require.Len(t, s.all("a")[jobLabels("ci").String()], 8)
		s.check()
	}
}

// TestImportBeforeItsClassesAreInForce imports samples whose retention is long enough only in a scheduled class. They
// must be rejected until the class is in force.
func TestImportBeforeItsClassesAreInForce(t *testing.T) {
	t.Parallel()
	x := newSharedClasses(t)
	x.opts.Retention, x.opts.Retention5m = 3*day, 3*day
	s := x.open()
	s.write("default", jobLabels("ci"), sample{x.now.UnixMilli(), 1})
	require.NoError(t, s.SealAll(t.Context()))
	s = x.open(classOfJob("ci", "ci", retention.Durations{Raw: 90 * day, FiveMinutes: 90 * day, OneHour: 90 * day}))
	imports := func(job string, age time.Duration) (ImportStats, error) {
		samples := &chunk.Samples{}
		samples.AppendFloat(x.now.Add(-age).UnixMilli(), 0, 1)
		return s.Import(t.Context(), "default", []ImportedSeries{{jobLabels(job), samples}})
	}
	_, err := imports("ci", 30*day)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, "in force from 2026-05-08T00:00:00Z on: repeat the import then")
	for job, age := range map[string]time.Duration{"ci": day, "other": 30 * day} { // The class makes no difference.
		_, err = imports(job, age)
		require.NoError(t, err)
	}
	x.passes(2 * day)
	stats, err := imports("ci", 30*day)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Samples)
	require.Zero(t, stats.Expired)
}

// TestClassesOfTwoFiles starts processes with different class files in turn. The store must use the file of the last
// started process, and every process must read that list.
func TestClassesOfTwoFiles(t *testing.T) {
	t.Parallel()
	x := newSharedClasses(t)
	a, b := classOfJob("a", "ci", keepLonger), classOfJob("b", "ci", keepShort)
	first := x.open(a)
	id := first.retention.ListInForce(x.now.UnixMilli())
	require.NotEmpty(t, id, "a store without rows goes by the first file at once")
	first.write("a", jobLabels("ci"), sample{x.now.UnixMilli(), 1})
	require.NoError(t, first.SealAll(t.Context()))
	second := x.open(b)
	require.Equal(t, id, second.retention.ListInForce(x.now.UnixMilli()))
	x.open(a)
	x.open(b)
	require.Len(t, listsOf(t, second.eng), 2, "one list per day")
	x.passes(7 * day)
	third := x.open(a)
	require.Len(t, listsOf(t, third.eng), 2, "lists that aren't read any more are left out")
	require.NoError(t, second.refreshPeriods(t.Context()))
	for i, s := range []*testStore{second, third} {
		require.EqualValues(t, 3, s.retention.Classes())
		at := x.now.Add(time.Duration(len(s.all("a"))) * time.Minute).UnixMilli()
		s.write("a", jobLabels("ci"), sample{at, 1})
		require.NoError(t, s.SealAll(t.Context()))
		require.Equal(t, i+1, s.chunksAt(rollup.Raw, at, 2, "a"), "b was in force")
		x.passes(time.Hour)
	}
	x.passes(3 * day)
	for _, s := range []*testStore{second, third} {
		s.write("a", jobLabels("ci"), sample{x.now.UnixMilli(), 1})
		require.NoError(t, s.SealAll(t.Context()))
		require.Zero(t, s.chunksAt(rollup.Raw, x.now.UnixMilli(), 2, "a"), "a is in force")
	}
	third.check()
}

// TestImportRefusedFixesNoClasses imports samples past their retention. The rejected import must not fix the list of
// classes of their day: once a class that accepts them is added, a repeated import must succeed.
func TestImportRefusedFixesNoClasses(t *testing.T) {
	for _, expiring := range []bool{false, true} {
		t.Run(fmt.Sprint("expiring=", expiring), func(t *testing.T) {
			t.Parallel()
			open := openTestStore
			if expiring {
				open = openExpiring
			}
			ts := open(t, func(o *Options) {
				o.Retention, o.Retention5m, o.Retention1h, o.AddClasses, o.seams.still = 3*day, 3*day, 3*day, true, true
			})
			at := ts.now.Add(-30 * day)
			require.Equal(t, 3, ts.importJob("ci", every(at, time.Minute, 3)...).Expired)
			ts.opts.Classes = []retention.Class{
				classOfJob("ci", "ci", retention.Durations{Raw: 90 * day, FiveMinutes: 90 * day, OneHour: 90 * day}),
			}
			ts.reopen()
			require.Zero(t, ts.importJob("ci", every(at, time.Minute, 3)...).Expired)
			require.Equal(t, map[string]int{"ci": 3}, ts.bucketsOf("default", rollup.OneHour))
			require.Positive(t, ts.chunksAt(rollup.Raw, at.UnixMilli(), 1, "default"))
			ts.check()
		})
	}
}

// listsOf returns the stored history of class lists.
func listsOf(t testing.TB, eng engine.Engine) []retention.ListFrom {
	have, _, err := readSettings(t.Context(), eng)
	require.NoError(t, err)
	return have.Lists
}
