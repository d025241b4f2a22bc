package storage

import (
	"context"
	"errors"
	"iter"
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

// heldEngine calls a function once, before chunks of 5m rollups are written, and counts looks at leases.
type heldEngine struct {
	engine.Engine
	before atomic.Pointer[func()]
	looks  atomic.Int64
}

// Write implements engine.Engine.
func (e *heldEngine) Write(ctx context.Context, batches []engine.Batch) error {
	for _, b := range batches {
		if b.Table == engine.R5m && b.Mutations[len(b.Mutations)-1].Clustering[0].Int == format.KindChunk {
			if f := e.before.Swap(nil); f != nil {
				(*f)()
			}
		}
	}
	return e.Engine.Write(ctx, batches)
}

// Scan implements engine.Engine.
func (e *heldEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	if r.Table == engine.Lease {
		e.looks.Add(1)
	}
	return e.Engine.Scan(ctx, r)
}

// TestImportsOfTwoProcessesIntoOneSlot has two processes import history of which only rollups are made into one slot of a series: the other
// begins when the one has read the stored rows, and is about to write. Both have reported that they stored their samples.
func TestImportsOfTwoProcessesIntoOneSlot(t *testing.T) {
	t.Parallel()
	eng := &heldEngine{Engine: memory.New()}
	r := &clockRig{t: t, shared: true}
	r.eng = &clockedEngine{eng, r.now}
	keep := func(o *Options) { o.Retention = 2 * day }
	one, other := r.start(0, keep), r.start(0, keep)
	for _, m := range []*clockMachine{one, other} {
		require.NoError(t, m.member.Beat(t.Context()))
	}
	at := r.now().Add(-40 * day).Truncate(2 * time.Hour)
	bring := func(m *clockMachine, from time.Time) (stats ImportStats, err error) {
		var samples chunk.Samples
		for i := range 60 {
			samples.AppendFloat(from.Add(time.Duration(i+1)*time.Minute).UnixMilli(), 0, float64(i))
		}
		return m.Import(t.Context(), "t", []ImportedSeries{{labels.FromStrings(labels.MetricName, "m"), &samples}})
	}
	done := make(chan error, 1)
	begin := func() {
		looks := eng.looks.Load()
		go func() {
			_, err := bring(other, at.Add(time.Hour))
			done <- err
		}()
		require.Eventually(t, func() bool { return len(done) > 0 || eng.looks.Load() > looks+1 }, time.Minute, time.Millisecond, "it has ended, or waits")
	}
	eng.before.Store(&begin)
	stats, err := bring(one, at)
	require.NoError(t, err)
	require.Equal(t, 60, stats.RollupsOnly)
	require.NoError(t, <-done)
	for _, m := range []*clockMachine{one, other} {
		require.Equal(t, 120, m.counted())
	}
}

// TestFillingAfterAnotherProcessDied has a process vanish in its turn: the next one waits until it isn't heard of any more.
func TestFillingAfterAnotherProcessDied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &clockRig{t: t, shared: true}
		r.eng = &clockedEngine{memory.New(), r.now}
		gone, next := r.start(0), r.start(0)
		for _, m := range []*clockMachine{gone, next} {
			require.NoError(t, m.member.Beat(t.Context()))
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

// TestFillingThatIsNotGivenBack has the engine fail when a turn ends, or is asked for: the next beat gives it back, and nobody waits for good.
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
				require.NoError(t, m.member.Beat(t.Context()))
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
