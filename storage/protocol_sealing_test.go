package storage

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// metricNamesOf returns the names of a tenant's metrics in the catalog and in the head.
func (ts *testStore) metricNamesOf(tenant string) []string {
	ts.t.Helper()
	names, err := ts.LabelValues(
		ts.t.Context(), labels.MetricName, query.Query{Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime},
	)
	require.NoError(ts.t, err)
	return names
}

// TestSealIsDoneAgainWhole fails the writes to one table during a seal of late samples. A repeated seal finds that its
// chunks are already stored. It must still write the catalog, and labels that are in another batch.
func TestSealIsDoneAgainWhole(t *testing.T) {
	for _, table := range []*engine.Table{engine.Catalog, engine.RawPages, engine.Sealed} {
		for _, fate := range []faultengine.Action{
			faultengine.Fail(nil), faultengine.Lose(nil), faultengine.Withhold(nil),
		} {
			failing := false
			ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
				if failing && op.Kind == faultengine.Write && op.Table == table {
					return fate
				}
				return faultengine.Pass()
			}, nil)
			at := ts.now.Add(-time.Minute).UnixMilli()
			ts.write("ann", upLabels, sample{at, 1})
			require.NoError(t, ts.SealAll(t.Context()))
			late := labels.FromStrings(labels.MetricName, "late", "host", "b")
			ts.write("ann", late, sample{at, 2})
			failing = true
			require.Error(t, ts.SealAll(t.Context()))
			failing = false
			require.NoError(t, ts.SealAll(t.Context()))
			require.Equal(t, []string{"late", "up"}, ts.metricNamesOf("ann"), "catalog, after %s failed", table)
			require.Equal(t, map[string][]sample{upLabels.String(): {{at, 1}}, late.String(): {{at, 2}}}, ts.all("ann"))
		}
	}
}

// TestNamesAreWrittenAfterASealThatReadInVain fails a seal after it has collected names, and before it has written any.
// The next seal must write the names.
func TestNamesAreWrittenAfterASealThatReadInVain(t *testing.T) {
	failing := 0
	ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.Raw && failing > 0 {
			if failing--; failing == 0 {
				return faultengine.Fail(nil)
			}
		}
		return faultengine.Pass()
	}, nil)
	at := ts.now.Add(-time.Minute).UnixMilli()
	ts.write("ann", upLabels, sample{at, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	for i := range 3 {
		ts.write("ann", labels.FromStrings(labels.MetricName, fmt.Sprintf("late_%d", i)), sample{at, 2})
	}
	failing = 3
	require.Error(t, ts.SealAll(t.Context()))
	require.NoError(t, ts.SealAll(t.Context()))
	require.Equal(t, []string{"late_0", "late_1", "late_2", "up"}, ts.metricNamesOf("ann"))
}

// TestNamesDoNotWaitForAnotherPartition seals two partitions concurrently whose series have the same names. The seal of
// one partition fails before it has written the names. The other seal must have written the names itself.
func TestNamesDoNotWaitForAnotherPartition(t *testing.T) {
	const (
		idle = iota
		armed
		waiting
		failing
	)
	var state atomic.Int32
	var other func() <-chan struct{}
	ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
		if op.Kind != faultengine.Write || op.Table != engine.RawPages && op.Table != engine.Catalog {
			return faultengine.Pass()
		}
		if state.CompareAndSwap(armed, waiting) {
			return faultengine.Fail(nil).After(other())
		}
		if state.Load() == failing {
			return faultengine.Fail(nil)
		}
		return faultengine.Pass()
	}, func(o *Options) { o.Partitions = 2 })
	at := ts.now.Add(-time.Minute).UnixMilli()
	want := map[string][]sample{}
	for i := range 20 {
		ls := labels.FromStrings(labels.MetricName, "up", "host", fmt.Sprint(i))
		ts.write("ann", ls, sample{at, 1})
		want[ls.String()] = []sample{{at, 1}}
	}
	slot := ts.period.SlotOf(at)
	var sealed error
	other = func() <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, sealed = ts.Seal(t.Context(), Work{Partition: 1, Slot: slot})
			state.Store(failing)
		}()
		return done
	}
	state.Store(armed)
	_, err := ts.Seal(t.Context(), Work{Partition: 0, Slot: slot})
	state.Store(idle)
	require.Error(t, err)
	require.NoError(t, sealed)
	require.Equal(t, want, ts.all("ann"))
	require.Equal(t, []string{"up"}, ts.metricNamesOf("ann"))
}

// TestTenantsAreListed fails one of the writes that list a tenant. A repeated seal must list the tenant.
func TestTenantsAreListed(t *testing.T) {
	for n := 1; n <= 3; n++ {
		failing := 0
		ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write && (op.Table == engine.Windows || op.Table == engine.Tenants) &&
				failing > 0 {
				if failing--; failing == 0 {
					return faultengine.Fail(nil)
				}
			}
			return faultengine.Pass()
		}, nil)
		ts.write("ann", upLabels, sample{ts.now.UnixMilli(), 1})
		failing = n
		_ = ts.SealAll(t.Context())
		failing = 0
		require.NoError(t, ts.SealAll(t.Context()))
		tenants, err := ts.Tenants(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"ann"}, tenants, "the %dth write failed", n)
	}
}

// wideHistogram returns a histogram with n buckets of incompressible values.
func wideHistogram(rng *rand.Rand, n int) *histogram.FloatHistogram {
	h := &histogram.FloatHistogram{
		Schema: 3, ZeroThreshold: 0.001, PositiveSpans: []histogram.Span{{Offset: -100, Length: uint32(n)}},
	}
	for range n {
		v := rng.Float64()
		h.PositiveBuckets = append(h.PositiveBuckets, v)
		h.Count += v
	}
	h.Sum = rng.Float64()
	return h
}

// TestGreatHistogramsAreSealed writes histograms that are so large that only a few fit into a row. All of them must be
// sealed and found.
func TestGreatHistogramsAreSealed(t *testing.T) {
	ts := openTestStore(t, nil)
	rng := rand.New(rand.NewPCG(1, 1))
	at := ts.now.Add(-time.Hour).UnixMilli()
	const n = 120
	for i := range n {
		b := ts.NewBatch("ann")
		s, err := b.Define(nil, upLabels)
		require.NoError(t, err)
		require.NoError(t, b.Histogram(s, at+int64(i), 0, nil, wideHistogram(rng, 11_000)))
		require.NoError(t, b.Commit(t.Context()))
	}
	count := func() int {
		found, err := ts.Select(t.Context(), query.Query{
			Tenant: "ann", MinT: -format.MaxTime, MaxT: format.MaxTime, Matchers: []*labels.Matcher{
				labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up")},
		})
		require.NoError(t, err)
		require.Len(t, found, 1)
		var samples chunk.Samples
		require.NoError(t, found[0].Samples(&samples))
		return samples.Len()
	}
	require.Equal(t, n, count())
	require.NoError(t, ts.SealAll(t.Context()))
	ts.requireEmptyHead()
	require.Equal(t, n, count())
}

// TestGreatestRecordsFit writes the largest labels and large histograms at the end of blobs that are filled to
// different sizes. The blobs must be accepted, read after a restart, and sealed.
func TestGreatestRecordsFit(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 1 })
	rng := rand.New(rand.NewPCG(1, 1))
	at := ts.now.Add(-time.Hour).UnixMilli()
	b := ts.NewBatch("ann")
	wide := func(i int) labels.Labels {
		list := []string{labels.MetricName, "up", "host", fmt.Sprint(i)}
		for j := range 15 {
			list = append(list, fmt.Sprintf("label_%d", j), strings.Repeat("x", 4096))
		}
		return labels.FromStrings(list...)
	}
	plain, err := b.Define(nil, upLabels)
	require.NoError(t, err)
	for i := range 40 {
		s, err := b.Define(nil, wide(i))
		require.NoError(t, err)
		// A full blob is closed, so blobs are filled to different sizes before.
		for j := range i * 100 {
			require.NoError(t, b.Float(plain, at+int64(j), 0, math.Pi*float64(j)))
		}
		require.NoError(t, b.Histogram(s, at, 0, nil, wideHistogram(rng, 10_000)))
	}
	require.NoError(t, b.Commit(t.Context()))
	ts.reopen()
	require.NoError(t, ts.SealAll(t.Context()))
}

// TestLetGoWaitsForTheHead calls ReleaseSeries while the head is being rebuilt, when series don't have their samples
// yet. It must release no series.
func TestLetGoWaitsForTheHead(t *testing.T) {
	wait := make(chan struct{})
	holding := false
	ts, eng := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
		if holding && op.Kind == faultengine.Scan && op.Table == engine.Stage {
			return faultengine.Pass().After(wait)
		}
		return faultengine.Pass()
	}, nil)
	at := ts.now.UnixMilli()
	ts.write("ann", upLabels, sample{at, 1})
	require.NoError(t, ts.Store.Close())
	holding = true
	var err error
	ts.Store, err = Open(t.Context(), eng, ts.opts)
	require.NoError(t, err)
	b := ts.NewBatch("ann")
	s, err := b.Define(nil, upLabels)
	require.NoError(t, err)
	assert.Zero(t, ts.ReleaseSeries(), "nothing is let go of before the head is complete")
	close(wait)
	require.NoError(t, ts.WaitReady(t.Context()))
	require.NoError(t, b.Float(s, at+1, 0, 2))
	require.NoError(t, b.Commit(t.Context()))
	require.Equal(t, map[string][]sample{upLabels.String(): {{at, 1}, {at + 1, 2}}}, ts.all("ann"))
}

// hasNothing reports whether a seal would find nothing to do.
func (s *Store) hasNothing(ctx context.Context, w Work) (bool, error) {
	return s.isEmptyPartition(ctx, stageTable, w.stagePartition())
}
