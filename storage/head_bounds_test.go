package storage

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/head"
)

// TestHeadIsBoundedForKnownSeries fills the head with samples of known series. Further samples must be rejected before
// they are acknowledged, and sealing must free memory.
func TestHeadIsBoundedForKnownSeries(t *testing.T) {
	t.Parallel()
	ts, _ := openFaultyStore(
		t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() },
		func(o *Options) { o.HeadBytes = 1 << 20 },
	)
	const bound = 1<<20 + head.MinReserveForKnown
	at := ts.now.UnixMilli()
	want, each := 0, make([]sample, 10_000)
	write := func() error {
		for i := range each {
			each[i] = sample{at - int64(want+i), float64((want+i)*7919%1_000_003) / 3} // barely compressible
		}
		return ts.tryWrite("ann", upLabels, each...)
	}
	for want < 10_000_000 {
		if err := write(); err != nil {
			require.ErrorIs(t, err, ErrHeadFull)
			require.ErrorIs(t, err, ErrOverloaded, "which is tried again")
			break
		}
		want += len(each)
	}
	require.GreaterOrEqual(t, ts.head.Bytes(), int64(bound))
	require.Less(t, ts.head.Bytes(), int64(bound+1<<20), "beyond the bound there is one batch")
	b := ts.NewBatch("ann")
	b.free = true
	s, err := b.Define(nil, upLabels)
	require.NoError(t, err)
	require.NoError(t, b.Float(s, at+1, 0, 0))
	require.NoError(t, b.Commit(t.Context()), "what was acknowledged before is always taken")

	require.NoError(t, ts.SealAll(t.Context()))
	require.Less(t, ts.head.Bytes(), int64(bound))
	require.NoError(t, write(), "there is room again")
}

// TestTenantsWhoBringNothingArentRemembered checks that the head has no state of tenants without samples, even if their
// series were rejected.
func TestTenantsWhoBringNothingArentRemembered(t *testing.T) {
	ts, _ := openFaultyStore(t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() }, nil)
	for i := range 100 {
		b := ts.NewBatch(fmt.Sprint("nobody", i))
		_, ok := b.Lookup([]byte("alias"))
		require.False(t, ok)
		_, err := b.Define(nil, labels.EmptyLabels())
		require.Error(t, err)
		require.NoError(t, b.Commit(t.Context()))
	}
	require.Empty(t, ts.head.Tenants())
	const most = 1 << 20
	ts.Store.opts.HeadBytes = most
	nobody := ts.head.TenantOrNone("nobody")
	ts.head.AddBytes(nobody, 2*most) // New series of all tenants are now rejected.
	require.ErrorIs(t, ts.tryWrite("late", upLabels, sample{ts.now.UnixMilli(), 1}), ErrTooManySeries)
	require.Empty(t, ts.head.Tenants())
	ts.head.AddBytes(nobody, -2*most)
	require.NoError(t, ts.tryWrite("late", upLabels, sample{ts.now.UnixMilli(), 1}))
	require.Len(t, ts.head.Tenants(), 1)
}

// hold writes a sample of a tenant, and adds bytes to the memory that is attributed to the tenant.
func (ts *testStore) hold(tenant string, bytes int64) {
	ts.t.Helper()
	require.NoError(ts.t, ts.tryWrite(tenant, upLabels, sample{ts.now.UnixMilli(), 1}))
	t := ts.head.Tenant(tenant)
	ts.head.AddBytes(t, bytes-t.Bytes())
}

// TestHeadIsSharedFairly fills the head with a burst of one tenant. Samples and new series of tenants that are below
// their share must be accepted.
func TestHeadIsSharedFairly(t *testing.T) {
	const most = 32 << 20
	ts, _ := openFaultyStore(
		t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() },
		func(o *Options) { o.HeadBytes = most },
	)
	write := func(name string) error { return ts.tryWrite(name, upLabels, sample{ts.now.UnixMilli() - 1, 1}) }
	series := func(name string) error {
		return ts.tryWrite(name, labels.FromStrings(labels.MetricName, "new"), sample{ts.now.UnixMilli(), 1})
	}
	ts.hold("small", most/8)
	for i := range 100 {
		ts.hold(fmt.Sprint("tiny", i), 2<<10)
	}
	ts.hold("burst", most)
	require.ErrorIs(t, series("burst"), ErrTooManySeries, "new series of who holds most")
	require.NoError(t, write("burst"), "known ones have some more")
	ts.hold("burst", 2*most)
	err := write("burst")
	require.ErrorIs(t, err, ErrHeadShare)
	require.NotErrorIs(t, err, ErrOverloaded, "it is about this tenant")

	for _, name := range []string{"small", "tiny0", "newcomer"} {
		// The head is now between the two bounds: only tenants below their share may add to it.
		ts.head.AddBytes(ts.head.Tenant("burst"), -most/2-most/8-most/16)
		require.NoError(t, series(name), name)
		require.NoError(t, write(name), name)
		ts.head.AddBytes(ts.head.Tenant("burst"), most/2+most/8+most/16)
	}
	ts.head.AddBytes(ts.head.Tenant("burst"), -most/2)
	for _, name := range []string{"small", "tiny0", "newcomer"} {
		require.NoError(t, write(name), name)
		require.ErrorIs(
			t, ts.tryWrite(name, labels.FromStrings(labels.MetricName, "newer"), sample{ts.now.UnixMilli(), 1}),
			ErrTooManySeries, name,
		)
	}
	require.ErrorIs(t, write("burst"), ErrHeadShare)
	ts.head.AddBytes(ts.head.Tenant("burst"), most/2)
	require.ErrorIs(t, write("small"), ErrHeadFull, "the head is bounded, whoever fills it")
	require.ErrorIs(t, write("burst"), ErrHeadShare)

	ts.head.AddBytes(ts.head.Tenant("small"), most)
	ts.head.AddBytes(ts.head.Tenant("burst"), -most)
	require.ErrorIs(t, write("small"), ErrHeadShare, "both hold too much now")
	ts.head.AddBytes(ts.head.Tenant("small"), -most)
	require.NoError(t, write("small"))
}

// TestAccountOfTheHead checks that the size of the head is the sum over its tenants after each kind of addition and
// removal, and 0 once all samples are sealed.
func TestAccountOfTheHead(t *testing.T) {
	ts, eng := openFaultyStore(t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() }, nil)
	agree := func() {
		t.Helper()
		var sum int64
		for _, name := range ts.head.Tenants() {
			sum += ts.head.Tenant(name).Bytes()
		}
		require.Equal(t, ts.head.Bytes(), sum)
	}
	for i := range 300 {
		for _, name := range []string{"ann", "bob"} {
			ts.write(
				name, labels.FromStrings(labels.MetricName, "up", "host", fmt.Sprint(i%7)),
				sample{ts.now.UnixMilli() - int64(i)*60_000, float64(i)},
			)
		}
	}
	agree()
	require.NoError(t, ts.Store.Close())
	ts.Store = openReady(t, eng, ts.opts)
	require.Positive(t, ts.head.Bytes())
	agree()
	require.NoError(t, ts.SealAll(t.Context()))
	agree()
	ts.requireEmptyHead()
	require.Empty(t, ts.head.Tenants(), "who has nothing unsealed isn't remembered")
	ts.write("ann", upLabels, sample{ts.now.UnixMilli(), 1})
	agree()
}

// TestForgottenTenantComesBack releases a tenant from the head between two steps of a batch. The next step must create
// it again.
func TestForgottenTenantComesBack(t *testing.T) {
	ts, _ := openFaultyStore(t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() }, nil)
	at := ts.now.UnixMilli()
	first, second := ts.NewBatch("ann"), ts.NewBatch("ann")
	s, err := first.Define([]byte("alias"), upLabels)
	require.NoError(t, err)
	require.NoError(t, first.Float(s, at, 0, 1))
	ts.ReleaseSeries()
	require.Empty(t, ts.head.Tenants())
	again, err := second.Define([]byte("alias"), upLabels)
	require.NoError(t, err)
	require.NotSame(t, s, again)
	require.NoError(t, second.Float(again, at+1, 0, 2))
	require.NoError(t, first.Commit(t.Context()))
	require.NoError(t, second.Commit(t.Context()))
	require.Equal(t, []sample{{at, 1}, {at + 1, 2}}, ts.all("ann")[upLabels.String()])
	require.NoError(t, ts.SealAll(t.Context()))
	ts.requireEmptyHead()
	require.Equal(t, []sample{{at, 1}, {at + 1, 2}}, ts.all("ann")[upLabels.String()])
}
