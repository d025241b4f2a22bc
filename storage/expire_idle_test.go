package storage

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// openCountingStore opens a store with an engine in memory. n counts the operations for which matches returns true.
func openCountingStore(
	t *testing.T, n *atomic.Int64, matches func(faultengine.Op) bool, change func(*Options),
) *testStore {
	ts := openTestStore(t, change)
	ts.closeUnchecked()
	ts.memory = unclosed{faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if matches(op) {
			n.Add(1)
		}
		return faultengine.Pass()
	})}
	ts.open()
	return ts
}

// askedToExpire runs Expire, and returns the number of counted operations in it.
func (ts *testStore) askedToExpire(n *atomic.Int64) (asked int64) {
	ts.t.Helper()
	n.Store(0)
	_, err := ts.Expire(ts.t.Context())
	require.NoError(ts.t, err)
	return n.Load()
}

// TestClassesAreDroppedOnce checks that a process drops the rows of a class only once from windows that another class
// keeps. The process may cache one time per tenant and class for this, whatever the number of windows.
func TestClassesAreDroppedOnce(t *testing.T) {
	t.Parallel()
	var drops atomic.Int64
	ts := openCountingStore(
		t, &drops, func(op faultengine.Op) bool { return op.Kind == faultengine.Drop }, func(o *Options) {
			o.Partitions, o.Retention, o.Classes, o.AddClasses = 1, 0, []retention.Class{
				classOfJob("ci", "ci", retention.Durations{Raw: 2 * day}),
			}, true
		},
	)
	for range 30 {
		for _, tenant := range []string{"ann", "bob"} {
			ts.writeSeries(tenant, 0, 3, time.Hour)
		}
		ts.now = ts.now.Add(day)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.askedToExpire(&drops)
	ts.now = ts.now.Add(retention.Grace + day)
	require.Greater(t, ts.askedToExpire(&drops), int64(20))
	require.Zero(t, ts.askedToExpire(&drops), "once")
	require.LessOrEqual(t, len(ts.gone.to), 2, "the raw rows of one class of two tenants")

	ts.now = ts.now.Add(retention.Grace + day)
	ts.askedToExpire(&drops)
	require.Zero(t, ts.askedToExpire(&drops))
	ts.reopen()
	require.Positive(t, ts.askedToExpire(&drops), "another process doesn't know")
	require.Zero(t, ts.askedToExpire(&drops))
}

// TestHiddenWindowsAreRolledUpOnce checks that Expire reads hidden windows once to find missing rollups, and again only
// after samples were written to them, even while a delete isn't cleaned.
func TestHiddenWindowsAreRolledUpOnce(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	ts := openCountingStore(
		t, &reads, func(op faultengine.Op) bool { return op.Kind == faultengine.Scan && op.Table == engine.Sealed },
		func(o *Options) { o.Partitions, o.Retention = 1, 0 },
	)
	start := ts.now
	for range 30 {
		ts.writeSeries("ann", 0, 3, time.Hour)
		ts.now = ts.now.Add(day)
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ts.opts.Retention = 2 * day
	ts.reopen()
	ts.askedToExpire(&reads)
	require.Less(t, ts.askedToExpire(&reads), int64(10), "there are no deletes")
	first := labels.MustNewMatcher(labels.MatchEqual, "i", "1")
	require.NoError(
		t,
		ts.Delete(t.Context(), "ann", start.Add(-2*day).UnixMilli(), start.Add(9*day+12*time.Hour).UnixMilli(), first),
	)
	require.Greater(t, ts.askedToExpire(&reads), int64(60))
	ts.askedToExpire(&reads) // It reads the windows of the commit records written just now.
	require.Less(t, ts.askedToExpire(&reads), int64(10))

	// The rollups of a late seal in a hidden window must be computed.
	late := format.CommitKey{Slot: ts.period.SlotOf(start.Add(15*day - time.Hour).UnixMilli()), ID: "0123456789abcdef"}
	require.NoError(
		t, ts.writeCommitRecords(t.Context(), "ann", rollup.Raw, format.CommitSeal, []format.CommitKey{late}),
	)
	require.Positive(t, ts.askedToExpire(&reads))
	list, err := listed(ts.Unrolled(t.Context(), -1<<60, 1<<60, func() {}))
	require.NoError(t, err)
	require.Empty(t, list)
	require.NoError(t, ts.CleanTombstones(t.Context(), "ann"))
	ts.askedToExpire(&reads)
	require.Zero(t, ts.rolled.Len())
}
