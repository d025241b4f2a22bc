package storage

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
)

// twoProcesses starts two processes with a raw retention of two days on one engine. ruleOfOne and ruleOfOther are
// called for each operation of the respective process, unless they are nil.
func twoProcesses(t *testing.T, ruleOfOne, ruleOfOther func(faultengine.Op)) (one, other *clockMachine) {
	inner := memory.New()
	r := &clockRig{t: t, shared: true}
	start := func(rule func(faultengine.Op)) *clockMachine {
		r.eng = &clockedEngine{faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
			if rule != nil {
				rule(op)
			}
			return faultengine.Pass()
		}), r.now}
		return r.start(0, func(o *Options) { o.Retention = 2 * day })
	}
	return start(ruleOfOne), start(ruleOfOther)
}

// TestImportsOfTwoProcessesIntoOneSlot imports history that is only stored as rollups, with two processes, into the
// same slot of a series. The second import starts when the first one has read the stored rows and is about to write.
// The samples of both must be stored, as reported.
func TestImportsOfTwoProcessesIntoOneSlot(t *testing.T) {
	t.Parallel()
	var before atomic.Pointer[func()] // called once, before process one writes 5m chunks
	var looks atomic.Int64            // reads of leases by process other
	one, other := twoProcesses(t, func(op faultengine.Op) {
		if op.Kind == faultengine.Write && (op.Table == engine.R5m || op.Table == engine.R5mPages) &&
			op.Batch.Mutations[len(op.Batch.Mutations)-1].Clustering[0].Int == format.KindChunk {
			if f := before.Swap(nil); f != nil {
				(*f)()
			}
		}
	}, func(op faultengine.Op) {
		if op.Kind == faultengine.Scan && op.Table == engine.Lease {
			looks.Add(1)
		}
	})
	for _, m := range []*clockMachine{one, other} {
		require.NoError(t, m.member.SendHeartbeat(t.Context()))
	}
	at := one.r.now().Add(-40 * day).Truncate(2 * time.Hour)
	bring := func(m *clockMachine, from time.Time) (stats ImportStats, err error) {
		var samples chunk.Samples
		for i := range 60 {
			samples.AppendFloat(from.Add(time.Duration(i+1)*time.Minute).UnixMilli(), 0, float64(i))
		}
		return m.Import(t.Context(), "t", []ImportedSeries{{labels.FromStrings(labels.MetricName, "m"), &samples}})
	}
	done := make(chan error, 1)
	begin := func() {
		looked := looks.Load()
		go func() {
			_, err := bring(other, at.Add(time.Hour))
			done <- err
		}()
		require.Eventually(
			t, func() bool { return len(done) > 0 || looks.Load() > looked+1 }, time.Minute, time.Millisecond,
			"it has ended, or waits",
		)
	}
	before.Store(&begin)
	stats, err := bring(one, at)
	require.NoError(t, err)
	require.Equal(t, 60, stats.RollupsOnly)
	require.NoError(t, <-done)
	for _, m := range []*clockMachine{one, other} {
		require.Equal(t, 120, m.counted())
	}
}

// TestFillingAfterAnotherProcessDied stops a process during its turn. The next process must wait until the heartbeats
// of the stopped one have timed out.
func TestFillingAfterAnotherProcessDied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &clockRig{t: t, shared: true}
		r.eng = &clockedEngine{memory.New(), r.now}
		gone, next := r.start(0), r.start(0)
		for _, m := range []*clockMachine{gone, next} {
			require.NoError(t, m.member.SendHeartbeat(t.Context()))
		}
		_, err := gone.member.Filling.Begin(t.Context())
		require.NoError(t, err)
		hasty, cancel := context.WithTimeout(t.Context(), membership.LivenessTimeout/2)
		defer cancel()
		_, err = next.member.Filling.Begin(hasty)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		begun := time.Now()
		end, err := next.member.Filling.Begin(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), membership.LivenessTimeout)
		end()
		end, err = next.member.Filling.Begin(t.Context())
		require.NoError(t, err, "it was given back")
		end()
	})
}

// TestWaitForATurnEndsWithItsContext requests a turn with a context that has ended, while another goroutine of the
// process has the turn. The request must fail, and a later request must succeed.
func TestWaitForATurnEndsWithItsContext(t *testing.T) {
	for _, shared := range []bool{false, true} {
		r := &clockRig{t: t, shared: shared}
		r.eng = &clockedEngine{memory.New(), r.now}
		m := r.start(0)
		end, err := m.member.Filling.Begin(t.Context())
		require.NoError(t, err)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = m.member.Filling.Begin(canceled)
		require.ErrorIs(t, err, context.Canceled)
		end()
		end, err = m.member.Filling.Begin(t.Context())
		require.NoError(t, err)
		end()
	}
}

// TestFillingThatIsNotGivenBack makes the engine fail when a turn ends or is requested. The next heartbeat must release
// the turn, so that no process waits forever.
func TestFillingThatIsNotGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fails bool
		r := &clockRig{t: t, shared: true}
		r.eng = &clockedEngine{faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
			if fails && op.Kind == faultengine.CompareAndSet && op.Table == engine.Lease {
				return faultengine.Lose(errors.New("the answer is lost"))
			}
			return faultengine.Pass()
		}), r.now}
		failing, other := r.start(0), r.start(0)
		beat := func() {
			for _, m := range []*clockMachine{failing, other} {
				require.NoError(t, m.member.SendHeartbeat(t.Context()))
			}
		}
		beat()
		fails = true
		_, err := failing.member.Filling.Begin(t.Context())
		require.Error(t, err, "it has the turn, and doesn't know")
		fails = false
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = other.member.Filling.Begin(hasty)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		beat()
		end, err := other.member.Filling.Begin(t.Context())
		require.NoError(t, err)
		end()
	})
}
