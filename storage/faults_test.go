package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// openFaultyStore opens a store with one partition, on an engine in memory with faults by rule.
func openFaultyStore(
	t testing.TB, rule func(faultengine.Op) faultengine.Action, change func(*Options),
) (*testStore, *faultengine.Engine) {
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions = 1
	if change != nil {
		change(&ts.opts)
	}
	eng := faultengine.Wrap(memory.New(), rule)
	ts.eng = eng
	ts.Store = openReady(t, eng, ts.opts)
	t.Cleanup(ts.close)
	return ts, eng
}

// tryWrite writes samples of one series, and returns the error.
func (ts *testStore) tryWrite(tenant string, ls labels.Labels, samples ...sample) error {
	ts.t.Helper()
	b := ts.NewBatch(tenant)
	s, err := b.Define([]byte(ls.String()), ls)
	if err != nil {
		b.Release()
		return err
	}
	for _, x := range samples {
		require.NoError(ts.t, b.Float(s, x.t, 0, x.v))
	}
	return b.Commit(ts.t.Context())
}

// requireEmptyHead removes series without samples from the head, and requires the head to be empty.
func (ts *testStore) requireEmptyHead() {
	ts.t.Helper()
	ts.ReleaseSeries()
	require.Zero(ts.t, ts.head.SeriesCount(), "series")
	require.Zero(ts.t, ts.head.Bytes(), "bytes")
	for p := range ts.period.Partitions() {
		require.Empty(ts.t, ts.head.Slots(p), "slots of partition %d", p)
	}
}

var upLabels = labels.FromStrings(labels.MetricName, "up", "host", "a")

// TestRestartKeepsTenantsApart restarts with unsealed samples of two tenants that have the same series. Each tenant
// must still have its own samples.
func TestRestartKeepsTenantsApart(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 1 })
	at := ts.now.UnixMilli()
	for i := range 3 {
		ls := labels.FromStrings(labels.MetricName, "up", "host", fmt.Sprint(i))
		ts.write("ann", ls, sample{at, 1})
		ts.write("bob", ls, sample{at, 2}, sample{at + 1, 2})
	}
	ann, bob := ts.all("ann"), ts.all("bob")
	ts.reopen()
	require.Equal(t, ann, ts.all("ann"))
	require.Equal(t, bob, ts.all("bob"))
}

func TestHeadIsEmptyOnceAllIsSealed(t *testing.T) {
	ts, _ := openFaultyStore(t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() }, nil)
	for i := range 500 {
		ts.write("ann", upLabels, sample{ts.now.UnixMilli() - int64(i)*60_000, float64(i)})
	}
	require.NotZero(t, ts.head.Bytes())
	require.NoError(t, ts.SealAll(t.Context()))
	ts.requireEmptyHead()
}

// TestFailedCommitsLeaveNothing makes an engine reject all blobs while senders retry. The head must be empty
// afterwards.
func TestFailedCommitsLeaveNothing(t *testing.T) {
	down := true
	ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
		if down && op.Kind == faultengine.Write && op.Table == engine.Stage {
			return faultengine.Fail(nil)
		}
		return faultengine.Pass()
	}, nil)
	at := ts.now.UnixMilli()
	for range 100 {
		require.ErrorIs(t, ts.tryWrite("ann", upLabels, sample{at, 1}), engine.ErrUnavailable)
	}
	ts.requireEmptyHead()
	down = false
	require.NoError(t, ts.tryWrite("ann", upLabels, sample{at, 1}))
	require.Equal(t, map[string][]sample{upLabels.String(): {{at, 1}}}, ts.all("ann"))
}

// TestSealThatDoesNotLearnItsEnd checks that a seal can be repeated if its last write is applied but returns an error.
func TestSealThatDoesNotLearnItsEnd(t *testing.T) {
	ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.Table == engine.Stage && op.Batch.Mutations[0].Op == engine.DeleteRange {
			return faultengine.Lose(nil)
		}
		return faultengine.Pass()
	}, nil)
	at := ts.now.UnixMilli()
	ts.write("ann", upLabels, sample{at, 1})
	require.ErrorIs(t, ts.SealAll(t.Context()), engine.ErrUnavailable)
	ts.now = ts.now.Add(100 * time.Hour)
	require.NoError(t, ts.UnlistSlots(t.Context(), 0), "the mark goes past the slot")
	require.NoError(t, ts.SealAll(t.Context()))
	ts.requireEmptyHead()
	require.Equal(t, map[string][]sample{upLabels.String(): {{at, 1}}}, ts.all("ann"))
}

// TestClockThatGoesBack restarts a store after the clock was set back, so that the stored samples are in the future.
// The samples must be found when their time comes, and can be sealed before.
func TestClockThatGoesBack(t *testing.T) {
	ts := openTestStore(t, nil)
	at := ts.now.Add(MaxAhead).UnixMilli()
	ts.write("ann", upLabels, sample{at, 1})
	ts.now = ts.now.Add(-12 * time.Hour)
	ts.reopen()
	ts.now = ts.now.Add(12 * time.Hour)
	require.Equal(t, map[string][]sample{upLabels.String(): {{at, 1}}}, ts.all("ann"))
	ts.now = ts.now.Add(-12 * time.Hour)
	require.NoError(t, ts.SealAll(t.Context()))
	ts.requireEmptyHead()
}
