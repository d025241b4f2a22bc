package storage

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// TestStagedIsFoundUnderAnyClock checks that the next process finds acknowledged samples, regardless of the errors of
// the clock when they were accepted and now.
func TestStagedIsFoundUnderAnyClock(t *testing.T) {
	const day = 24 * time.Hour
	offs := []time.Duration{0, -228 * day, 228 * day, -8 * day, 30 * 365 * day}
	for _, taken := range offs {
		for _, looked := range offs {
			for _, wait := range []time.Duration{0, 12 * day} { // The clock is first untrusted, and then trusted again.
				r := alone(t)
				keepAll := func(o *Options) { o.Retention = 0 }
				m := r.start(0, keepAll)
				r.pass(time.Hour)
				want := 0
				take := func(at time.Time) {
					require.NoError(t, m.write(at, 1))
					want++
				}
				take(r.now())
				m.set(taken)
				r.pass(time.Minute)
				_ = m.clock.MayRemove()
				take(m.opts.Now())
				take(r.now().Add(-time.Minute / 2))
				take(r.now().Add(-90 * day))
				r.pass(wait)
				_ = m.clock.MayRemove()
				m.set(looked)
				_ = m.clock.MayRemove()
				m.stop()
				m = r.start(looked, keepAll)
				require.Equal(t, want, m.samples(), "taken %v off, looked for %v off, after %v", taken, looked, wait)
				m.stop()
			}
		}
	}
}

// samples returns the number of samples in the head. The head has at most one series.
func (m *clockMachine) samples() int {
	m.r.t.Helper()
	var all chunk.Samples
	for _, tenant := range m.head.Tenants() {
		for _, unsealed := range m.head.Select(m.r.t.Context(), tenant, nil, -format.MaxTime, format.MaxTime, false) {
			require.NoError(m.r.t, unsealed.Read(-format.MaxTime, format.MaxTime, &all))
		}
	}
	return all.Len()
}

// TestClockFarAheadLooksNoFurther starts a process of a shared store with a clock that is years fast. To find the
// staged samples of other processes, it must read no more partitions of the engine than a process with a right clock.
func TestClockFarAheadLooksNoFurther(t *testing.T) {
	var scans atomic.Int64
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && (op.Table == engine.Stage || op.Table == engine.Staged) {
			scans.Add(1)
		}
		return faultengine.Pass()
	})
	r := &clockRig{t: t, shared: true}
	r.eng = &clockedEngine{eng, r.now}
	first := r.start(0)
	require.NoError(t, first.write(r.now().Add(-time.Minute), 1))
	require.NoError(t, first.write(r.now().Add(-50*time.Hour), 2))

	scans.Store(0)
	require.Equal(t, 2, r.start(0).visible())
	right := scans.Swap(0)
	for _, off := range []time.Duration{40 * day, 73 * 365 * day} {
		wrong := r.start(off)
		require.Equal(t, 2, wrong.visible())
		require.LessOrEqual(t, scans.Swap(0), 2*right, "scans with a clock that is %v ahead", off)
		wrong.stop()
	}
}
