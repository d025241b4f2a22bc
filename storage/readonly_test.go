package storage

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/check"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
)

// neverWritten is an engine that fails the test when it is written to.
type neverWritten struct {
	engine.Engine
	t testing.TB
}

func (e neverWritten) Write(_ context.Context, batches []engine.Batch) error {
	e.t.Error("written:", batches)
	return engine.ErrReadOnly
}

func (e neverWritten) Drop(_ context.Context, t *engine.Table, _ engine.Key) error {
	e.t.Error("dropped:", t)
	return engine.ErrReadOnly
}

func (e neverWritten) CompareAndSet(
	_ context.Context, t *engine.Table, _, _ engine.Key, _, _ []byte,
) (bool, []byte, error) {
	e.t.Error("compared and set:", t)
	return false, nil, engine.ErrReadOnly
}

// told contains everything that read-only tools report about a store.
type told struct {
	Samples map[string][]sample
	Check   check.Totals
	Kept    []WindowInfo
	Changes []retention.Change
}

func (ts *testStore) told() (found told) {
	ts.t.Helper()
	ctx := ts.t.Context()
	var err error
	found.Samples = ts.all("ann")
	found.Check, err = ts.Check(ctx, func(problem string) { ts.t.Error(problem) })
	require.NoError(ts.t, err)
	found.Kept, err = ts.WindowInfos(ctx)
	require.NoError(ts.t, err)
	found.Changes, err = ts.Retention().Changes(ctx)
	require.NoError(ts.t, err)
	return found
}

// openOn opens a store on an engine, with the clock of the synctest bubble.
func openOn(t *testing.T, eng engine.Engine, o Options) *testStore {
	o.Elapsed = nil
	s := openReady(t, eng, o)
	return &testStore{Store: s, t: t, opts: o, eng: eng}
}

// fill writes and seals two days of samples, and deletes some of them. Then it writes more samples, which stay
// unsealed.
func (ts *testStore) fill() {
	ts.t.Helper()
	ctx, now := ts.t.Context(), ts.opts.Now()
	old := labels.FromStrings("__name__", "old", "job", "a")
	for hour := range 48 {
		ts.write("ann", upLabels, sample{now.Add(time.Duration(hour-48) * time.Hour).UnixMilli(), float64(hour)})
		ts.write("ann", old, sample{now.Add(time.Duration(hour-48) * time.Hour).UnixMilli(), float64(hour)})
	}
	require.NoError(ts.t, ts.SealAll(ctx))
	require.NoError(ts.t, ts.Delete(
		ctx, "ann", now.Add(-40*time.Hour).UnixMilli(), now.Add(-30*time.Hour).UnixMilli(),
		labels.MustNewMatcher(labels.MatchEqual, "job", "a"),
	))
	ts.write("ann", upLabels, sample{now.Add(-time.Minute).UnixMilli(), 1})
	ts.write("ann", old, sample{now.Add(-72 * time.Hour).UnixMilli(), 1})
	_, err := ts.Expire(ctx)
	require.NoError(ts.t, err)
}

// refusesWrites requires all operations that change a store to be rejected.
func (ts *testStore) refusesWrites() {
	ts.t.Helper()
	ctx := ts.t.Context()
	b := ts.NewBatch("ann")
	s, err := b.Define([]byte(upLabels.String()), upLabels)
	require.NoError(ts.t, err)
	require.NoError(ts.t, b.Float(s, ts.opts.Now().UnixMilli(), 0, 1))
	require.ErrorIs(ts.t, b.Commit(ctx), engine.ErrReadOnly)
	require.ErrorIs(ts.t, ts.SealAll(ctx), engine.ErrReadOnly)
	require.ErrorIs(
		ts.t, ts.Delete(ctx, "ann", 0, format.MaxTime, labels.MustNewMatcher(labels.MatchEqual, "job", "node")),
		engine.ErrReadOnly,
	)
	require.ErrorIs(ts.t, ts.retention.LogChange(ctx), engine.ErrReadOnly)
	_, err = ts.SetPeriod(ctx, format.Period{Partitions: 2 * ts.Partitions()}, time.Time{})
	require.ErrorIs(ts.t, err, engine.ErrReadOnly)
	leases, err := ts.member.Leases(ctx, ts.Partitions())
	require.NoError(ts.t, err)
	_, _, err = ts.member.SetLeaseOwner(ctx, 0, leases[0], "somebody")
	require.ErrorIs(ts.t, err, engine.ErrReadOnly)
	require.ErrorIs(ts.t, MarkRestored(ctx, engine.ReadOnly(ts.eng), "", ts.opts.Now()), engine.ErrReadOnly)
}

// TestLookAtStore opens the store of a stopped process ReadOnly: with the same or other flags, and with a clock that is
// 60 days slow or fast. In one case an operator has confirmed the date of the fast clock. Reads must return the same as
// after an ordinary start, and no row may be written, however long the store is open.
func TestLookAtStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, change := range map[string]func(o *Options){
			"as it was":      func(*Options) {},
			"a clock ahead":  func(o *Options) { o.Now = func() time.Time { return time.Now().Add(60 * 24 * time.Hour) } },
			"a clock behind": func(o *Options) { o.Now = func() time.Time { return time.Now().Add(-60 * 24 * time.Hour) } },
			"as it was named": func(o *Options) {
				o.Now = func() time.Time { return time.Now().Add(60 * 24 * time.Hour) }
				o.Today = o.Now().Truncate(24 * time.Hour)
			},
			"other flags": func(o *Options) {
				o.Retention, o.AddClasses = 36*time.Hour, true
				o.Classes = []retention.Class{
					{Name: "x", Match: [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, "job", "a")}}},
				}
			},
			"another slot": func(o *Options) { o.Slot, o.Partitions = time.Hour, 1 },
		} {
			inner := memory.New()
			ts := openOn(t, inner, DefaultOptions())
			ts.fill()
			require.NoError(t, ts.Store.Close())
			before := inner.All()

			o := DefaultOptions()
			change(&o)
			o.ReadOnly = true
			look := openOn(t, neverWritten{inner, t}, o)
			found := look.told()
			look.refusesWrites()
			time.Sleep(10 * time.Minute) // advances the bubble's time
			require.NoError(t, look.clock.StoreUptime(t.Context()))
			require.NoError(t, look.Store.Close())
			require.Equal(t, before, inner.All(), name)

			o.ReadOnly, o.AnySettings, o.AddClasses = false, true, false
			ts = openOn(t, inner, o)
			after := ts.told()
			require.Equal(t, after.Samples, found.Samples, name)
			require.Equal(t, after.Check, found.Check, name)
			require.Len(t, found.Kept, len(after.Kept), name)
			require.Len(t, found.Changes, len(after.Changes), name)
			require.NotEmpty(t, found.Samples, name)
			require.NoError(t, ts.Store.Close())
		}
		_, err := Open(
			t.Context(), memory.New(), func() Options { o := DefaultOptions(); o.ReadOnly = true; return o }(),
		)
		require.ErrorIs(t, err, ErrNoStore)
	})
}

// TestLookAtSharedStore opens a store ReadOnly while another process uses it. The ReadOnly process must not be listed
// or write anything, and must see samples and periods that are added later.
func TestLookAtSharedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		o := DefaultOptions()
		o.Shared = true
		ts := openOn(t, &clockedEngine{inner, time.Now}, o)
		ts.fill()
		synctest.Wait() // Until the rollups that the delete applies to are recomputed.
		o.ReadOnly = true
		look := openOn(t, &clockedEngine{neverWritten{inner, t}, time.Now}, o)
		require.Equal(t, ts.told(), look.told())
		look.refusesWrites()
		for range 3 {
			time.Sleep(10 * time.Minute)
			ts.write("ann", upLabels, sample{time.Now().UnixMilli(), 1})
			require.Equal(t, ts.all("ann"), look.all("ann"))
			require.NoError(t, ts.SealAll(t.Context()))
			require.Equal(t, ts.all("ann"), look.all("ann"))
		}
		_, err := ts.SetPeriod(t.Context(), format.Period{Partitions: 2 * ts.Partitions()}, time.Time{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, ts.Periods(), look.Periods())
		processes, err := look.member.Processes(t.Context())
		require.NoError(t, err)
		require.Len(t, processes, 1)
		require.NoError(t, look.Store.Close())
		require.NoError(t, ts.Store.Close())
	})
}
