package storage

import (
	"math/rand/v2"
	"slices"
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

// Whatever is added to spans is in them, they are in order and apart, and there are few of them.
func TestTimeSpansHoldWhatWasAdded(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var spans timeSpans
		var added []timeSpan
		for range 30 {
			from := rng.Int64N(400*format.DayMS) - 200*format.DayMS
			span := timeSpan{from, from + rng.Int64N(format.DayMS)}
			before := slices.Clone(spans)
			next := spans.with(span)
			require.Equal(t, before, spans, "those that were given stay as they are: they may be being written")
			spans, added = next, append(added, span)
			require.LessOrEqual(t, len(spans), maxStagedSpans)
			for i := range spans {
				require.LessOrEqual(t, spans[i].From, spans[i].To)
				require.True(t, i == 0 || spans[i].From-spans[i-1].To > maxLeap.Milliseconds())
			}
			for _, a := range added {
				require.True(t, spans.cover(a))
				require.Equal(t, spans, spans.with(a))
			}
		}
	}
}

func TestStepsOfTimeSpans(t *testing.T) {
	hour := func(ms int64) int64 { return format.FloorDiv(ms, format.HourMS) }
	spans := timeSpans{{-2 * format.HourMS, -format.HourMS}, {5 * format.HourMS, 7*format.HourMS - 1}, {6 * format.HourMS, 7 * format.HourMS}, {100 * format.HourMS, 100 * format.HourMS}}
	require.Equal(t, []int64{-2, -1, 5, 6, 7, 100}, slices.Collect(spans.steps(-2, hour)))
	require.Equal(t, []int64{1, 5, 6, 7, 100}, slices.Collect(spans.steps(1, hour)))
	require.Equal(t, []int64{6, 7, 100}, slices.Collect(spans.steps(6, hour)))
	require.Equal(t, []int64{200}, slices.Collect(spans.steps(200, hour)), "the mark's own is always among them")
	for n := range spans.steps(-2, hour) {
		require.Equal(t, int64(-2), n)
		break
	}
}

// What was acknowledged is found by the next process, however far the clock was off when it was taken, and however far it is now.
func TestStagedIsFoundUnderAnyClock(t *testing.T) {
	const day = 24 * time.Hour
	offs := []time.Duration{0, -228 * day, 228 * day, -8 * day, 30 * 365 * day}
	for _, taken := range offs {
		for _, looked := range offs {
			for _, wait := range []time.Duration{0, 12 * day} { // In doubt, and believed again.
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
				_ = m.believed()
				take(m.opts.Now())
				take(r.now().Add(-time.Minute / 2))
				take(r.now().Add(-90 * day))
				r.pass(wait)
				_ = m.believed()
				m.set(looked)
				_ = m.believed()
				m.stop()
				m = r.start(looked, keepAll)
				require.Equal(t, want, m.samples(), "taken %v off, looked for %v off, after %v", taken, looked, wait)
				m.stop()
			}
		}
	}
}

// samples returns how many samples the head holds of the only series.
func (m *clockMachine) samples() int {
	m.r.t.Helper()
	var all chunk.Samples
	for _, tenant := range m.head.Tenants() {
		for _, unsealed := range m.head.Select(tenant, nil, -format.MaxTime, format.MaxTime) {
			require.NoError(m.r.t, unsealed.Read(-format.MaxTime, format.MaxTime, &all))
		}
	}
	return all.Len()
}

// TestClockFarAheadLooksNoFurther is about a process of several whose clock is years ahead: it reads what the others stage
// from no more partitions of the engine than a process whose clock is right.
func TestClockFarAheadLooksNoFurther(t *testing.T) {
	var scans atomic.Int64
	eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && (op.Table == engine.Stage || op.Table == engine.Pending) {
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
