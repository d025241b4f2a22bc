package downsample

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

// headSettled returns the head's bytes in settled slots.
func (r *rig) headSettled() (bytes int64) {
	for p := range r.store.Partitions() {
		bytes += r.store.SettledHeadBytes(p, r.loop.opts.Settle.Milliseconds(), 0)
	}
	return bytes
}

// backfill writes to three settled slots on two days, and to one slot that hasn't ended.
func (r *rig) backfill(v float64) {
	for _, ago := range []time.Duration{30 * hour, 10 * hour, 4 * hour, 0} {
		r.write(testStart.Add(-ago), v)
	}
}

// TestRelieve checks that the samples of a backfill are sealed before the next round when writes stop, or when the head
// holds far too many of them.
func TestRelieve(t *testing.T) {
	r := newRig(t, nil)
	r.backfill(1)
	sealed := func() int { return r.loop.Status(t.Context()).SealedSlots }
	require.True(t, r.loop.Relieve(t.Context()))
	require.Zero(t, sealed(), "the head holds little")

	r.loop.opts.HeadBytes = r.headSettled() / 2
	require.True(t, r.loop.Relieve(t.Context()))
	require.Zero(t, sealed(), "it is being written to")
	r.advance(reliefRest)
	require.True(t, r.loop.Relieve(t.Context()))
	require.Equal(t, 3*4, sealed())
	require.Zero(t, r.headSettled())
	require.Zero(t, r.metric("rounds_total"))
	require.Equal(t, 3*40, r.check().Samples)

	r.backfill(2)
	r.loop.opts.HeadBytes = r.headSettled() / (2 * reliefMost)
	r.fail(func(op faultengine.Op) bool { return op.Kind == faultengine.Write })
	require.False(t, r.loop.Relieve(t.Context()))
	require.Equal(t, 3*4, sealed())
	r.mend()
	require.True(t, r.loop.Relieve(t.Context()), "it is written to all the time, and far too much")
	require.Equal(t, 6*4, sealed())
	require.Zero(t, r.headSettled())
	r.check()
}

// TestRunRelievesTheHead checks that the head is relieved between rounds, which are an hour apart.
func TestRunRelievesTheHead(t *testing.T) {
	r := newRig(t, func(_ *storage.Options, o *Options) { o.Interval, o.HeadBytes = time.Hour, 1 })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.loop.Run(ctx) }()
	require.Eventually(t, func() bool { return r.metric("rounds_total") == 1 }, time.Minute, time.Millisecond)
	r.backfill(1)
	require.Eventually(t, func() bool { return r.headSettled() == 0 }, time.Minute, 10*time.Millisecond)
	stop()
	<-ended
	require.Equal(t, 1.0, r.metric("rounds_total"))
	r.check()
}

// TestOneSlotFailsByItself checks that, if one slot of a day can't be sealed, the other slots are sealed.
func TestOneSlotFailsByItself(t *testing.T) {
	r := newRig(t, nil)
	for h := range 4 {
		r.write(testStart.Add(-time.Duration(h)*2*hour-5*hour), float64(h))
	}
	list := r.loop.list(t.Context())
	require.Len(t, list, 4*4)
	bad := list[5]
	r.fail(func(op faultengine.Op) bool {
		return op.Kind == faultengine.Scan && op.Range.Table.Name == "stage" && len(op.Range.Partition) == 2 &&
			op.Range.Partition[0].Int == bad.Slot && op.Range.Partition[1].Int == int64(bad.Partition)
	})
	r.loop.Round(t.Context())
	require.Equal(t, 4*4-1, r.loop.Status(t.Context()).SealedSlots)
	require.Equal(t, 1.0, r.metric("failures_total"))
	r.mend()
	r.loop.Round(t.Context())
	require.Equal(t, 4*4, r.loop.Status(t.Context()).SealedSlots)
	require.Equal(t, 4*40, r.check().Samples)
}

// TestRelieveLetsGo checks that Relieve releases series that have ended.
func TestRelieveLetsGo(t *testing.T) {
	r := newRig(t, func(_ *storage.Options, o *Options) { o.HeadBytes = 1 })
	r.write(testStart.Add(-10*hour), 1)
	r.advance(reliefRest)
	require.True(t, r.loop.Relieve(t.Context()))
	require.Zero(t, r.headSettled())
	require.Zero(t, r.store.ReleaseSeries())
	r.check()
}
