package storage

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// passRig is a store with three slots of a day to seal in one pass. One of the slots was sealed before. The rig
// interrupts the writes of the pass.
type passRig struct {
	*testStore
	eng *faultengine.Engine
	// sealing is true while writes are counted in n. Before each of these writes, all samples are read. Write number
	// breakAt gets the fault fate.
	sealing    bool
	n, breakAt int
	fate       faultengine.Action
	want       map[string][]sample
}

func newPassRig(t *testing.T, breakAt int, fate faultengine.Action) *passRig {
	r := &passRig{breakAt: breakAt, fate: fate, want: map[string][]sample{}}
	r.eng = faultengine.Wrap(memory.New(), r.decide)
	r.testStore = &testStore{
		t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
		memory: &readsBetween{r.eng, r},
	}
	r.opts.Now, r.opts.Partitions = func() time.Time { return r.now }, 2
	r.open()
	t.Cleanup(r.close)
	r.fill(5*time.Hour, 0)
	require.NoError(t, r.SealAll(t.Context()))
	for i, ago := range []time.Duration{9 * time.Hour, 7 * time.Hour, 5*time.Hour - 10*time.Minute} {
		r.fill(ago, i+1)
	}
	r.reads()
	return r
}

// fill writes samples of eight series of two metrics.
func (r *passRig) fill(ago time.Duration, v int) {
	for i := range 8 {
		ls := labels.FromStrings(labels.MetricName, fmt.Sprint("m", i%2), "i", fmt.Sprint(i))
		s := sample{r.now.Add(-ago).UnixMilli(), float64(v)}
		r.write("ann", ls, s)
		r.want[ls.String()] = append(r.want[ls.String()], s)
	}
}

// reads compares all samples with the model.
func (r *passRig) reads() {
	r.t.Helper()
	got := r.all("ann")
	require.Len(r.t, got, len(r.want))
	for series, list := range r.want {
		require.ElementsMatch(r.t, list, got[series], series)
	}
}

// decide counts writes and injects the fault.
func (r *passRig) decide(op faultengine.Op) faultengine.Action {
	if !r.sealing || op.Kind != faultengine.Write {
		return faultengine.Pass()
	}
	if r.n++; r.n-1 == r.breakAt {
		return r.fate
	}
	return faultengine.Pass()
}

// readsBetween is an engine that reads all samples before each write of a pass.
type readsBetween struct {
	engine.Engine
	r *passRig
}

// Write implements engine.Engine.
func (e *readsBetween) Write(ctx context.Context, batches []engine.Batch) error {
	if e.r.sealing {
		e.r.sealing = false // Calls by the reads aren't counted.
		e.r.reads()
		e.r.sealing = true
	}
	return e.Engine.Write(ctx, batches)
}

// pass seals all waiting slots at once, and reports whether it completed.
func (r *passRig) pass() bool {
	var works []Work
	for p := range r.Partitions() {
		list, err := r.WaitingWork(r.t.Context(), p)
		require.NoError(r.t, err)
		works = append(works, list...)
	}
	r.sealing, r.n = true, 0
	_, err := r.SealTogether(r.t.Context(), works)
	r.sealing = false
	return err == nil
}

// TestPassBreaksOffAnywhere fails each write of a pass in turn: the write isn't applied, is applied with an error, is
// applied later, or is the last one before a crash. All samples must be found before each write, through the caches,
// and afterwards.
func TestPassBreaksOffAnywhere(t *testing.T) {
	fates := map[string]faultengine.Action{
		"fails": faultengine.Fail(nil), "arrives": faultengine.Lose(nil), "arrives later": faultengine.Withhold(nil),
	}
	for name, fate := range fates {
		for crash := range 2 {
			for at := 0; ; at++ {
				r := newPassRig(t, at, fate)
				whole := r.pass()
				if whole && r.n <= at {
					require.Greater(t, at, 4, "rows, three marks and deletes are written one after the other")
					break
				}
				r.reads()
				if crash == 1 {
					r.opensAgain()
				}
				r.reads()
				require.NoError(t, r.SealAll(t.Context()), "%s at %d", name, at)
				r.reads()
				require.NoError(t, r.eng.ApplyWithheld(t.Context()))
				r.reads()
				require.NoError(t, r.SealAll(t.Context()))
				r.reads()
				require.Equal(t, 4*8, r.check().Samples)
			}
		}
	}
}

// TestTogetherCutsUnknownOnly plans the passes of slots, of which some have no samples in the head. Each slot without
// samples must get its own pass, and the other slots must share one pass.
func TestTogetherCutsUnknownOnly(t *testing.T) {
	r := newPassRig(t, -1, faultengine.Fail(nil))
	unknown := r.period.SlotOf(r.now.Add(-11 * time.Hour).UnixMilli())
	var works []Work
	want := [][]int{{}}
	for p := range r.Partitions() {
		works = append(works, Work{Partition: p, Slot: unknown})
		want = append(want, []int{len(works) - 1})
		for _, ago := range []time.Duration{9 * time.Hour, 7 * time.Hour} {
			want[0] = append(want[0], len(works))
			works = append(works, Work{Partition: p, Slot: r.period.SlotOf(r.now.Add(-ago).UnixMilli())})
		}
	}
	require.ElementsMatch(t, want, r.PlanPasses(works, 1))
}

// TestAPassLetsGo checks that a large pass releases the series that it has sealed, except series with newer samples,
// and that a small pass releases none.
func TestAPassLetsGo(t *testing.T) {
	for least, want := range map[int]int{4: 1, 5: 4} {
		ts := openTestStore(t, func(o *Options) { o.seams.releaseSeries = least })
		at := ts.now.Truncate(2 * time.Hour)
		for i := range 4 {
			ts.write(
				"ann", labels.FromStrings(labels.MetricName, "up", "i", fmt.Sprint(i)),
				sample{at.Add(-3 * time.Hour).UnixMilli(), 1},
			)
		}
		ts.write(
			"ann", labels.FromStrings(labels.MetricName, "up", "i", "0"), sample{at.Add(-time.Minute).UnixMilli(), 2},
		)
		var list []Work
		for p := range ts.period.Partitions() {
			work, err := ts.WaitingWork(t.Context(), p)
			require.NoError(t, err)
			for _, w := range work {
				if w.Slot == ts.period.SlotOf(at.Add(-3*time.Hour).UnixMilli()) {
					list = append(list, w)
				}
			}
		}
		stats, err := ts.SealTogether(t.Context(), list)
		require.NoError(t, err)
		series := 0
		for _, st := range stats {
			series += st.Series
		}
		require.Equal(t, 4, series)
		require.EqualValues(t, want, ts.HeadStats().Series)
		require.Len(t, ts.all("ann"), 4)
	}
}
