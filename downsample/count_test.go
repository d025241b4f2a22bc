package downsample

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

func (r *rig) countsWaiting() int {
	r.t.Helper()
	return len(listed(r.t, r.store.Counts().Uncounted(r.t.Context(), func() {})))
}

// TestLoopCountsSeriesOfWhatRests checks that past windows are counted once they are no longer written to, and again
// after later writes.
func TestLoopCountsSeriesOfWhatRests(t *testing.T) {
	r := newRig(t, forEver)
	r.sealedDays(5)
	waiting := r.countsWaiting()
	require.Greater(t, waiting, 3)
	require.Zero(t, r.metric("counted_windows_total"), "they were written to just now")
	require.EqualValues(t, waiting, r.metric("uncounted_windows"))
	r.round()
	require.Zero(t, r.countsWaiting())
	require.EqualValues(t, waiting, r.metric("counted_windows_total"))
	require.Zero(t, r.metric("uncounted_windows"))

	r.write(testStart.Add(-3*24*hour), 7)
	r.advance(hour)
	for range 3 {
		r.round()
	}
	require.Equal(t, 2, r.countsWaiting(),
		"the window, and the one after, which is compared with it; they rest for longer")
	r.advance(overAgainRest)
	for range 15 { // windows aren't listed in every round
		r.round()
	}
	require.Zero(t, r.countsWaiting())
	require.EqualValues(t, waiting+2, r.metric("counted_windows_total"))
	r.check()
}

// TestLoopCountsAgainAfterErrors checks that, if one window fails, the other windows are counted and the failed one is
// retried.
func TestLoopCountsAgainAfterErrors(t *testing.T) {
	r := newRig(t, forEver)
	r.sealedDays(5)
	list := listed(t, r.store.Counts().Uncounted(t.Context(), func() {}))
	r.fail(func(op faultengine.Op) bool {
		return op.Kind == faultengine.Write && op.Table == engine.Catalog && op.Batch.Partition[0].Int == list[0].Window
	})
	r.round()
	require.Equal(t, 1, r.countsWaiting())
	require.EqualValues(t, len(list)-1, r.metric("counted_windows_total"))
	require.Contains(t, r.loop.Status(t.Context()).Counting.First[0].LastError, "fault by rule")
	r.mend()
	r.advance(retryMost)
	r.round()
	require.Zero(t, r.countsWaiting())
	require.Zero(t, r.loop.Status(t.Context()).Counting.Windows)
	r.check()
}

// TestOneProcessCountsSeries checks that only the process that owns the first partition counts series.
func TestOneProcessCountsSeries(t *testing.T) {
	r := newRig(t, func(so *storage.Options, o *Options) { so.Retention, o.Idle = 0, true })
	r.sealedDays(4)
	require.NoError(t, r.store.SealAll(t.Context()))
	require.Positive(t, r.countsWaiting())
	for range 3 {
		r.round()
		r.advance(time.Hour)
	}
	require.Positive(t, r.countsWaiting())
	require.Zero(t, r.metric("uncounted_windows"))
}

// TestPlanCountsSeries checks that a plan counts the windows that overlap its range as its last step, and that the next
// plan counts the remaining windows.
func TestPlanCountsSeries(t *testing.T) {
	r := newRig(t, forEver)
	r.sealedDays(5)
	waiting := r.countsWaiting()
	some := r.plan(-3*24*hour, -2*24*hour)
	require.NotEmpty(t, some.Count)
	require.Less(t, len(some.Count), waiting)
	for _, c := range some.Count {
		require.GreaterOrEqual(t, c.EndMS, some.Range.MinMS)
		require.Less(t, c.StartMS, some.Range.MaxMS)
	}
	done, err := some.Run(t.Context(), r.store, func(Done) {})
	require.NoError(t, err)
	require.Equal(t, len(some.Count), done.Counted)
	require.Equal(t, done.All, done.Steps)

	all := r.plan(-100*24*hour, hour)
	r.fail(func(op faultengine.Op) bool { return op.Kind == faultengine.Write && op.Table == engine.Catalog })
	done, err = all.Run(t.Context(), r.store, func(Done) {})
	require.ErrorIs(t, err, faultengine.ErrFault)
	require.ErrorContains(t, err, "counting the series of the window until")
	require.Zero(t, done.Counted)
	r.fail(func(faultengine.Op) bool { return false })
	_, err = r.plan(-100*24*hour, hour).Run(t.Context(), r.store, func(Done) {})
	require.NoError(t, err)
	require.Zero(t, r.countsWaiting())
	require.Zero(t, r.plan(-100*24*hour, hour).Steps())
	r.check()
}
