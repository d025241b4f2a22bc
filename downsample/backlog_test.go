package downsample

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
)

// days seals one sample on each of n days, and removes the rollups.
func (r *rig) days(n int) {
	for i := range n {
		r.write(testStart.Add(-time.Duration(i)*24*hour-10*hour), float64(i))
	}
	require.NoError(r.t, r.store.SealAll(r.t.Context()))
	r.unroll()
}

func (r *rig) unrolled() []storage.Unrolled {
	return listed(r.t, r.store.Unrolled(r.t.Context(), -maxTime, maxTime, func() {}))
}

// TestBacklogIsWorkedOff checks that missing rollups are computed, the oldest first, and only when no slot is waiting.
func TestBacklogIsWorkedOff(t *testing.T) {
	r := newRig(t, nil)
	r.days(6)
	require.Len(t, r.unrolled(), 6)

	// An interrupted round computes no missing rollups.
	r.write(testStart.Add(-5*hour), 1)
	r.write(testStart.Add(-15*hour), 1) // the day before
	r.fail(func(op faultengine.Op) bool {
		if op.Kind == faultengine.Write && op.Table == engine.RawPages {
			r.advance(roundLimit + time.Second) // sealing one slot takes this long
		}
		return false
	})
	r.loop.Round(t.Context())
	r.mend()
	require.Positive(t, r.metric("waiting_slots"))
	require.Len(t, r.unrolled(), 6)

	// The first round that has sealed everything computes rollups until the next round is due.
	windows := 0
	r.fail(func(op faultengine.Op) bool {
		if op.Kind == faultengine.Write && op.Table == engine.Sealed && op.N > 0 {
			windows++
		}
		return false
	})
	r.loop.Round(t.Context())
	r.mend()
	require.Positive(t, windows)
	require.Empty(t, r.unrolled())
	require.Equal(t, 6.0, r.metric("rolled_windows_total"))
	require.Zero(t, r.metric("unrolled_windows"))
	s := r.loop.Status(t.Context())
	require.Equal(t, r.now().UTC(), s.Rollups.Listed)
	require.Empty(t, s.Rollups.First)
	r.check()
}

// TestBacklogGoesOnPastErrors checks that, if the oldest window fails, the other windows are rolled up and the oldest
// one is retried later.
func TestBacklogGoesOnPastErrors(t *testing.T) {
	r := newRig(t, nil)
	r.days(3)
	oldest := r.unrolled()[0]
	r.fail(func(op faultengine.Op) bool {
		if op.Kind != faultengine.Scan || op.Table != engine.Raw || op.Range.Partition[0].Int != oldest.Window {
			return false
		}
		return len(op.Range.To) == 0 || op.Range.To[0].Int != format.KindLabels // counting series reads these
	})
	r.loop.Round(t.Context())
	require.Equal(t, []storage.Unrolled{oldest}, r.unrolled(), "the others were done")
	require.Equal(t, 1.0, r.metric("unrolled_windows"))
	s := r.loop.Status(t.Context()).Rollups
	require.Equal(t, 1, s.Windows)
	require.Equal(t, "default", s.First[0].Tenant)
	require.Equal(t, instant(oldest.StartMS), s.First[0].Start)
	require.Equal(t, 1, s.First[0].Failures)
	require.Contains(t, s.First[0].LastError, "fault by rule")

	failures := r.metric("failures_total")
	r.loop.Round(t.Context())
	require.Equal(t, failures, r.metric("failures_total"), "not yet again")
	for range 10 {
		r.advance(retryMost)
		r.loop.Round(t.Context())
	}
	require.Equal(t, failures+10, r.metric("failures_total"))
	log := r.log.take()
	require.Contains(t, log, "level=ERROR msg=\"can't create the rollups of a window")
	require.Contains(t, log, "failures=5")

	r.advance(relist) // a new listing keeps the number of failures
	r.loop.Round(t.Context())
	require.Equal(t, 12, r.loop.Status(t.Context()).Rollups.First[0].Failures)
	r.mend()
	r.advance(retryMost)
	r.loop.Round(t.Context())
	require.Empty(t, r.unrolled())
	require.Zero(t, r.metric("unrolled_windows"))
	r.check()
}

// TestBacklogIsDivided checks that each of two processes rolls up only the windows of its own partitions.
func TestBacklogIsDivided(t *testing.T) {
	r := newRig(t, func(_ *storage.Options, o *Options) { o.Shared = true })
	r.days(8)
	hold := func(own ...int) {
		held := make([]bool, 4)
		for _, p := range own {
			held[p] = true
		}
		r.loop.held.Store(&held)
	}
	hold()
	r.loop.Round(t.Context())
	require.Len(t, r.unrolled(), 8, "it owns nothing")
	hold(0, 1)
	r.loop.Round(t.Context())
	left := r.unrolled()
	require.NotEmpty(t, left)
	require.Less(t, len(left), 8)
	for i := range left {
		require.GreaterOrEqual(t, r.loop.backlog.partitionOf(&left[i]), 2)
	}
	require.Zero(t, r.metric("unrolled_windows"), "of its own")
	hold(0, 1, 2, 3) // the other process stopped
	require.Equal(t, float64(len(left)), r.metric("unrolled_windows"))
	r.loop.Round(t.Context())
	require.Empty(t, r.unrolled())
	r.check()
}

// TestRawGoesOnlyWithRollups checks that raw rows whose retention expires before the first round are hidden once their
// rollups exist, and deleted a week later.
func TestRawGoesOnlyWithRollups(t *testing.T) {
	r := newRig(t, func(so *storage.Options, _ *Options) { so.Retention = 3 * 24 * hour })
	r.days(2)
	r.advance(30 * 24 * hour)
	r.fail(func(op faultengine.Op) bool { return op.Kind == faultengine.Write && op.Table == engine.R5mPages })
	r.loop.Round(t.Context())
	r.advance(8 * 24 * hour)
	r.loop.Round(t.Context())
	require.Len(t, r.unrolled(), 2, "raw stays while its rollups can't be made")
	require.Equal(t, 80, r.check().Samples)
	s := r.loop.Status(t.Context())
	require.Len(t, s.Tasks, 1)
	require.Equal(t, "deleting windows past their retention", s.Tasks[0].Task)
	require.Contains(t, s.Tasks[0].LastError, "is kept, because its rollups could not be created")
	r.mend()
	r.advance(retryMost)
	r.loop.Round(t.Context())
	require.Empty(t, r.loop.Status(t.Context()).Tasks)
	require.Equal(t, 80, r.check().Samples, "hidden since now")
	r.advance(8 * 24 * hour)
	r.loop.Round(t.Context())
	stats := r.check()
	require.Zero(t, stats.Samples, "raw is gone")
	require.NotZero(t, stats.Rollups)
}
