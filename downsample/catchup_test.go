package downsample

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

func (r *rig) plan(from, to time.Duration) *Plan {
	r.t.Helper()
	p, err := NewPlan(r.t.Context(), r.store, Range{
		MinMS: testStart.Add(from).UnixMilli(), MaxMS: testStart.Add(to).UnixMilli(), Settle: 15 * time.Minute,
	})
	require.NoError(r.t, err)
	return p
}

// TestCatchUp checks that a plan processes everything in its range, and nothing outside of it.
func TestCatchUp(t *testing.T) {
	r := newRig(t, nil)
	r.days(4) // sealed without rollups
	for h := range 6 {
		// The slots end at 12:00, 10:00, …, 2:00.
		r.write(testStart.Add(time.Duration(h)*-2*hour-30*time.Minute), float64(h))
	}
	all := r.plan(-100*24*hour, hour)
	require.Len(t, all.Slots, 5*4, "the last one hasn't settled")
	require.Len(t, all.Windows, 4)
	require.Equal(t, 5*4+4*4, all.Steps(), "each window has a seal of each partition")
	require.Less(t, all.Slots[0].Slot, all.Slots[19].Slot)

	require.Len(t, r.plan(-6*hour-time.Minute, -5*hour).Slots, 8,
		"what touches the range: the slots until 6:00 and 8:00")
	require.Len(t, r.plan(-6*hour+time.Millisecond, -5*hour).Slots, 4)
	require.Empty(t, r.plan(-3*24*hour, -2*24*hour).Slots)
	require.Empty(t, r.plan(hour, 2*hour).Slots)

	some := r.plan(-3*24*hour-12*hour+time.Millisecond, -2*24*hour-12*hour)
	require.Len(t, some.Windows, 1)
	var told []Done
	done, err := some.Run(t.Context(), r.store, func(d Done) { told = append(told, d) })
	require.NoError(t, err)
	require.Equal(t, Done{Steps: 6, All: 6, Now: done.Now, Windows: 1, Series: 40, Compacted: 1, Counted: 1}, done,
		"the window of its 5m rollups is over")
	require.Len(t, told, 3)
	require.Len(t, r.unrolled(), 3)

	done, err = all.Run(t.Context(), r.store, func(Done) {})
	require.NoError(t, err)
	require.Equal(t, Done{
		Steps: 39, All: 39, Now: done.Now, Slots: 20, Repaired: done.Repaired, Samples: 200, Windows: 4, Series: 120,
		Compacted: 1, Counted: 2,
	}, done,
		"what was done meanwhile isn't done again")
	again := r.plan(-100*24*hour, hour)
	require.Zero(t, again.Steps())
	done, err = again.Run(t.Context(), r.store, func(Done) {})
	require.NoError(t, err)
	require.Equal(t, Done{}, done)
	r.check()
}

// TestCatchUpInterrupted checks that new plans complete the work of plans that were interrupted, each after one more
// write than the plan before.
func TestCatchUpInterrupted(t *testing.T) {
	r := newRig(t, nil)
	r.days(2)
	for h := 1; h < 4; h++ {
		r.write(testStart.Add(time.Duration(h)*-2*hour-30*time.Minute), float64(h))
	}
	want := r.plan(-100*24*hour, 0).Steps()
	stops := 0
	for {
		p := r.plan(-100*24*hour, 0)
		if p.Steps() == 0 {
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		writes := 0
		rule := func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write {
				if writes++; writes > 3+stops { // within a step
					cancel()
					return faultengine.Lose(ctx.Err())
				}
			}
			return faultengine.Pass()
		}
		r.rule.Store(&rule)
		_, err := p.Run(ctx, r.store, func(Done) {})
		cancel()
		r.mend()
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			stops++
		}
		require.Less(t, stops, 100)
	}
	require.Greater(t, stops, 3)
	require.Positive(t, want)
	require.Equal(t, 5*40, r.check().Samples)
	require.Empty(t, r.unrolled())
}

// TestCatchUpLeavesOutWhatFails checks that a plan continues after a slot that can't be sealed, and stops when every
// step fails.
func TestCatchUpLeavesOutWhatFails(t *testing.T) {
	r := newRig(t, nil)
	for h := 1; h < 4; h++ {
		r.write(testStart.Add(time.Duration(h)*-2*hour-30*time.Minute), float64(h))
	}
	broken := errors.New("broken")
	p := r.plan(-100*24*hour, 0)
	bad := p.Slots[1]
	rule := func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.Table == engine.Stage && op.Batch.Partition[0].Int == bad.Slot &&
			op.Batch.Partition[1].Int == int64(bad.Partition) {
			return faultengine.Fail(broken)
		}
		return faultengine.Pass()
	}
	r.rule.Store(&rule)
	done, err := p.Run(t.Context(), r.store, func(Done) {})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "1 of 12 steps failed")
	require.Equal(t, 1, done.Failed)
	require.Equal(t, 11, done.Slots)
	require.Equal(t, 1, r.plan(-100*24*hour, 0).Steps())

	r.mend()
	for h := 1; h < 4; h++ {
		r.write(testStart.Add(time.Duration(h)*-2*hour-29*time.Minute), float64(h))
	}
	p = r.plan(-100*24*hour, 0)
	r.fail(func(op faultengine.Op) bool { return op.Kind == faultengine.Write })
	done, err = p.Run(t.Context(), r.store, func(Done) {})
	require.ErrorIs(t, err, errGaveUp)
	require.ErrorIs(t, err, faultengine.ErrFault)
	require.Equal(t, maxFailures, done.Failed)
	r.mend()
	done, err = p.Run(t.Context(), r.store, func(Done) {})
	require.NoError(t, err)
	require.Equal(t, 12, done.Slots)
	require.Equal(t, 12, done.Repaired, "also the one that had only kept its staged rows")
	require.Equal(t, 240, r.check().Samples)
}

// TestCatchUpLeavesWhatIsExpired checks that a plan doesn't seal slots whose samples would be dropped.
func TestCatchUpLeavesWhatIsExpired(t *testing.T) {
	r := newRig(t, func(so *storage.Options, _ *Options) { so.Retention = 2 * 24 * hour })
	r.write(testStart.Add(-3*hour), 1)
	r.advance(20 * 24 * hour)
	p, err := NewPlan(t.Context(), r.store, Everything(0))
	require.NoError(t, err)
	require.Empty(t, p.Slots)
	require.Len(t, p.Expired, 4)
	require.Zero(t, p.Steps())
}

// TestCatchUpTellsDamageFromWhatIsDone checks that slots with unreadable rows are counted separately from sealed slots.
func TestCatchUpTellsDamageFromWhatIsDone(t *testing.T) {
	r := newRig(t, nil)
	r.write(testStart.Add(-3*hour), 1)
	p := r.plan(-100*24*hour, 0)
	damaged := p.Slots[0].Work
	require.NoError(t, r.eng.Write(t.Context(), []engine.Batch{{
		Table: engine.Stage, Partition: engine.Key{engine.Int(damaged.Slot), engine.Int(int64(damaged.Partition))},
		Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Text("someone-else's-id"[:engine.IDLen]), engine.Int(1)}, Timestamp: 1,
			Value: []byte("no blob"),
		}},
	}}))
	done, err := p.Run(t.Context(), r.store, func(Done) {})
	require.NoError(t, err)
	require.Equal(t, 1, done.Left)
	require.Equal(t, len(p.Slots), done.Slots, "what can be read is sealed")
}
