package storage

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

// Known series fill the head, too: samples of them are refused before they are acknowledged, and sealing makes room.
func TestHeadIsBoundedForKnownSeries(t *testing.T) {
	t.Parallel()
	ts, _ := openFaultyStore(t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() }, func(o *Options) { o.HeadBytes = 1 << 20 })
	const bound = 1<<20 + leastForKnown
	at := ts.now.UnixMilli()
	want, each := 0, make([]sample, 10_000)
	write := func() error {
		for i := range each {
			each[i] = sample{at - int64(want+i), float64((want+i)*7919%1_000_003) / 3} // hardly compressed
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
	require.GreaterOrEqual(t, ts.head.bytes.Load(), int64(bound))
	require.Less(t, ts.head.bytes.Load(), int64(bound+1<<20), "beyond the bound there is one batch")
	b := ts.NewBatch("ann")
	b.free = true
	s, err := b.Define(nil, upLabels)
	require.NoError(t, err)
	require.NoError(t, b.Float(s, at+1, 0, 0))
	require.NoError(t, b.Commit(t.Context()), "what was acknowledged before is always taken")

	require.NoError(t, ts.SealAll(t.Context()))
	require.Less(t, ts.head.bytes.Load(), int64(bound))
	require.NoError(t, write(), "there is room again")
}

// Tenants who bring nothing leave nothing behind, nor do those whose series are refused.
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
	require.Empty(t, ts.head.tenants)
	ts.opts.HeadBytes = 1
	ts.Store.opts.HeadBytes = 1
	ts.head.bytes.Add(1)
	require.ErrorIs(t, ts.tryWrite("late", upLabels, sample{ts.now.UnixMilli(), 1}), ErrTooManySeries)
	require.Empty(t, ts.head.tenants)
	ts.head.bytes.Add(-1)
	require.NoError(t, ts.tryWrite("late", upLabels, sample{ts.now.UnixMilli(), 1}))
	require.Len(t, ts.head.tenants, 1)
}
