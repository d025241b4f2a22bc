package downsample

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

// sealedDays writes samples on the given number of days and lets the loop seal them.
func (r *rig) sealedDays(days int) {
	r.t.Helper()
	for d := range days {
		for _, h := range []time.Duration{1, 9, 17} {
			r.write(testStart.Add(-time.Duration(d)*24*hour-h*hour), float64(d))
		}
	}
	r.round()
}

// round runs a round of the loop.
func (r *rig) round() {
	r.loop.Round(r.t.Context())
	r.advance(time.Minute)
}

func (r *rig) compactable() []ended.OverWindow {
	r.t.Helper()
	return listed(r.t, r.store.Compactable(r.t.Context(), func() {}))
}

func forEver(so *storage.Options, _ *Options) { so.Retention = 0 }

// TestLoopCompactsWhatRests checks that past windows are compacted once they have had no writes for a while, and again
// after later writes.
func TestLoopCompactsWhatRests(t *testing.T) {
	r := newRig(t, forEver)
	r.sealedDays(40)
	list := r.compactable()
	require.Greater(t, len(list), 5)
	require.Zero(t, r.metric("compacted_windows_total"), "they were written to just now")
	require.EqualValues(t, len(list), r.loop.Status(t.Context()).Compaction.Windows)
	for range 3 {
		r.round()
	}
	require.Empty(t, r.compactable())
	require.EqualValues(t, len(list), r.metric("compacted_windows_total"))
	require.Zero(t, r.metric("uncompacted_windows"))
	require.Zero(t, r.loop.Status(t.Context()).Compaction.Windows)
	require.Contains(t, r.log.take(), "compacted rollups")

	r.write(testStart.Add(-20*24*hour), 7)
	r.advance(hour)
	r.round()
	for range 3 {
		r.round()
	}
	again := r.compactable()
	require.NotEmpty(t, again)
	require.EqualValues(t, len(again), r.metric("uncompacted_windows"), "those that were compacted before rest for longer")
	require.True(t, r.loop.Status(t.Context()).Compaction.First[0].Again)
	r.advance(overAgainRest)
	for range 3 {
		r.round()
	}
	require.Empty(t, r.compactable())
	r.check()
}

// TestLoopCompactsAgainAfterErrors checks that windows that can't be compacted are reported and retried, and that other
// windows are processed.
func TestLoopCompactsAgainAfterErrors(t *testing.T) {
	r := newRig(t, forEver)
	r.sealedDays(40)
	windows := len(r.compactable())
	bad := r.compactable()[0].Window
	r.fail(func(op faultengine.Op) bool {
		return op.Kind == faultengine.Scan && (op.Table == engine.R5m || op.Table == engine.R1h) && len(op.Range.Partition) > 0 && op.Range.Partition[0].Int == bad
	})
	for range 3 {
		r.round()
	}
	require.Len(t, r.compactable(), 1)
	status := r.loop.Status(t.Context()).Compaction
	require.Equal(t, 1, status.Windows)
	require.Positive(t, status.First[0].Failures)
	require.Contains(t, status.First[0].LastError, "fault by rule")
	require.EqualValues(t, windows-1, r.metric("compacted_windows_total"))
	require.NotEmpty(t, r.loop.Status(t.Context()).Tasks)
	r.mend()
	r.advance(retryMost)
	for range 2 {
		r.round()
	}
	require.Empty(t, r.compactable())
	require.Empty(t, r.loop.Status(t.Context()).Tasks)
	r.check()
}

// TestPlanCompacts checks that a plan contains the past windows that overlap its range, and compacts them without
// waiting. A plan for windows with long chunks is empty.
func TestPlanCompacts(t *testing.T) {
	r := newRig(t, forEver)
	r.sealedDays(40)
	windows := len(r.compactable())
	some := r.plan(-21*24*hour, -20*24*hour)
	require.NotEmpty(t, some.Compact)
	require.Less(t, len(some.Compact), windows)
	for _, c := range some.Compact {
		require.GreaterOrEqual(t, c.EndMS, some.Range.MinMS)
		require.Less(t, c.StartMS, some.Range.MaxMS)
	}
	done, err := some.Run(t.Context(), r.store, func(Done) {})
	require.NoError(t, err)
	require.Equal(t, len(some.Compact), done.Compacted)
	require.Positive(t, done.Chunks)
	require.Len(t, r.compactable(), windows-done.Compacted)

	all := r.plan(-100*24*hour, hour)
	r.fail(func(op faultengine.Op) bool { return op.Kind == faultengine.Write && op.Table == engine.R1h })
	done, err = all.Run(t.Context(), r.store, func(Done) {})
	require.ErrorIs(t, err, faultengine.ErrFault)
	require.Positive(t, done.Failed)
	r.mend()
	done, err = r.plan(-100*24*hour, hour).Run(t.Context(), r.store, func(Done) {})
	require.NoError(t, err)
	require.Positive(t, done.Compacted)
	require.Zero(t, r.plan(-100*24*hour, hour).Steps())
	r.check()
}
