package storage

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/check"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/soak"
)

// testStore is a store on a real engine in a temporary directory, with a clock that the test sets.
type testStore struct {
	*Store
	t    testing.TB
	dir  string
	eng  engine.Engine
	opts Options
	now  time.Time
	// memory, if set, is used as the engine instead of Pebble.
	memory engine.Engine
	// heavy skips Check under the race detector, where Check would take half a minute because of the number of series.
	heavy bool
	// damaged is true if Check is expected to report problems.
	damaged bool
}

func openTestStore(t testing.TB, change func(*Options)) *testStore {
	ts := &testStore{t: t, dir: t.TempDir(), opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	ts.opts.Now = func() time.Time { return ts.now }
	if change != nil {
		change(&ts.opts)
	}
	ts.open()
	t.Cleanup(ts.close)
	return ts
}

// rowsOnly disables pages, for tests that read or change rows.
func rowsOnly(o *Options) { o.seams.pageSeries = math.MaxInt }

func (ts *testStore) open() {
	var err error
	if ts.eng = ts.memory; ts.eng == nil {
		ts.eng, err = pebble.Open(ts.dir, pebble.DefaultOptions())
		require.NoError(ts.t, err)
	}
	ts.Store = openReady(ts.t, ts.eng, ts.opts)
}

// openReady opens a store and waits until it is ready for queries. Tests of other packages use package storagetest.
func openReady(t testing.TB, eng engine.Engine, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), eng, o)
	require.NoError(t, err)
	require.NoError(t, s.WaitReady(t.Context()))
	return s
}

func (ts *testStore) close() {
	if !ts.damaged && (!ts.heavy || !soak.UnderRace) {
		ts.check()
	}
	require.NoError(ts.t, ts.Store.Close())
	require.NoError(ts.t, ts.eng.Close())
}

// check verifies all stored rows.
func (ts *testStore) check() check.Totals {
	stats, err := ts.Check(context.Background(), func(problem string) { ts.t.Error(problem) })
	require.NoError(ts.t, err)
	return stats
}

// reopen runs Check, closes the open store, and opens it again on the same files. Under the race detector it doesn't
// run Check, because Pebble then records a stack for every iterator. Only close runs Check there.
func (ts *testStore) reopen() {
	require.NoError(ts.t, ts.clock.StoreUptime(ts.t.Context()))
	if !ts.damaged && !soak.UnderRace {
		ts.check()
	}
	ts.closeUnchecked()
	ts.open()
}

// passes advances the time to until, and calls Expire twice a day. It returns the number of dropped windows and parts
// of windows.
func (ts *testStore) passes(until time.Time) (dropped int) {
	ts.t.Helper()
	for {
		n, err := ts.Expire(ts.t.Context())
		require.NoError(ts.t, err)
		dropped += n
		if !ts.now.Before(until) {
			return dropped
		}
		ts.now = ts.now.Add(min(12*time.Hour, until.Sub(ts.now)))
	}
}

type sample struct {
	t int64
	v float64
}

// write writes samples of one series in a request of their own.
func (ts *testStore) write(tenant string, ls labels.Labels, samples ...sample) {
	ts.t.Helper()
	b := ts.NewBatch(tenant)
	s, err := b.Define([]byte(ls.String()), ls)
	require.NoError(ts.t, err)
	for _, x := range samples {
		require.NoError(ts.t, b.Float(s, x.t, 0, x.v))
	}
	require.NoError(ts.t, b.Commit(context.Background()))
}

// all reads all samples of a tenant.
func (ts *testStore) all(tenant string) map[string][]sample {
	ts.t.Helper()
	found, err := ts.Select(counted(ts.t.Context()), query.Query{
		Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
		Warn:     func(err error) { require.NoError(ts.t, err) },
	})
	require.NoError(ts.t, err)
	out := map[string][]sample{}
	for _, s := range found {
		var samples chunk.Samples
		require.NoError(ts.t, s.Samples(&samples))
		var list []sample
		for i, t := range samples.T {
			list = append(list, sample{t, samples.V[i]})
		}
		if list != nil {
			out[s.Labels.String()] = list
		}
	}
	return out
}

func TestWriteSealRead(t *testing.T) {
	ts := openTestStore(t, nil)
	base := ts.now.Add(-5 * time.Hour).UnixMilli()
	want := map[string][]sample{}
	for i := range 20 {
		ls := labels.FromStrings(
			labels.MetricName, fmt.Sprintf("metric_%d", i%3), "instance", fmt.Sprintf("host-%d", i),
		)
		var list []sample
		for j := range 1200 {
			list = append(list, sample{base + int64(j)*15_000, float64(i * j)})
		}
		want[ls.String()] = list
		rand.Shuffle(len(list), func(a, b int) {
			if a/50 == b/50 {
				list[a], list[b] = list[b], list[a]
			}
		})
		for from := 0; from < len(list); from += 100 {
			ts.write("default", ls, list[from:from+100]...)
		}
		sortSamples(list)
	}
	require.Equal(t, want, ts.all("default"), "unsealed")
	require.Empty(t, ts.all("other"), "another tenant sees nothing")
	ts.reopen()
	require.Equal(t, want, ts.all("default"), "unsealed, after a restart")
	require.NoError(t, ts.SealAll(t.Context()))
	require.Zero(t, ts.head.SeriesCount(), "all is sealed")
	require.Zero(t, ts.head.Bytes(), "the head's account is balanced")
	require.Equal(t, want, ts.all("default"), "sealed")
	ts.reopen()
	require.Equal(t, want, ts.all("default"), "sealed, after a restart")

	// Late samples are written as another chunk. Samples that are already stored write nothing.
	ls := labels.FromStrings(labels.MetricName, "metric_0", "instance", "host-0")
	late := sample{base + 7, math.Pi}
	ts.write("default", ls, late)
	ts.write("default", ls, want[ls.String()][:200]...)
	want[ls.String()] = append([]sample{want[ls.String()][0], late}, want[ls.String()][1:]...)
	require.Equal(t, want, ts.all("default"), "late")
	require.NoError(t, ts.SealAll(t.Context()))
	require.Equal(t, want, ts.all("default"), "late, sealed")
}

func sortSamples(list []sample) {
	for i := 1; i < len(list); i++ {
		for j := i; j > 0 && list[j].t < list[j-1].t; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
}

func TestOtherSettingsAreRefused(t *testing.T) {
	ts := openTestStore(t, nil)
	opts := ts.opts
	opts.Slot = time.Hour
	_, err := Open(t.Context(), ts.eng, opts)
	require.ErrorIs(t, err, ErrOtherSettings)
	require.ErrorContains(
		t, err,
		"it has slots of 2h, windows of 24h, 4 partitions, but the flags set slots of 1h, windows of 24h, 4 partitions",
	)
}

func TestTimesAreBounded(t *testing.T) {
	ts := openTestStore(t, rejectAhead)
	ls := labels.FromStrings(labels.MetricName, "up")
	b := ts.NewBatch("default")
	s, err := b.Define(nil, ls)
	require.NoError(t, err)
	require.ErrorIs(t, b.Float(s, ts.now.Add(MaxAhead).UnixMilli()+1, 0, 1), ErrTooFarAhead)
	require.NoError(t, b.Float(s, ts.now.Add(MaxAhead).UnixMilli(), 0, 1))
	require.ErrorIs(t, b.Float(s, ts.now.Add(-ts.opts.Retention).UnixMilli(), 0, 1), ErrTooOld)
	require.NoError(t, b.Float(s, ts.now.Add(-ts.opts.Retention).UnixMilli()+1, 0, 1))
	require.NoError(t, b.Commit(t.Context()))
}

func TestRetentionDropsWindows(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Retention = 48 * time.Hour })
	ls := labels.FromStrings(labels.MetricName, "up")
	ts.write("default", ls, sample{ts.now.Add(-time.Hour).UnixMilli(), 1})
	require.NoError(t, ts.SealAll(t.Context()))
	ts.now = ts.now.Add(30 * time.Hour)
	ts.write("default", ls, sample{ts.now.Add(-time.Hour).UnixMilli(), 2})
	require.NoError(t, ts.SealAll(t.Context()))
	require.Len(t, ts.all("default")[ls.String()], 2)
	ts.now = ts.now.Add(20 * time.Hour)
	require.Len(t, ts.all("default")[ls.String()], 1, "hidden once past the retention")
	n, err := ts.Expire(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "the grace isn't over")
	require.Equal(t, 1, ts.passes(ts.now.Add(retention.Grace+12*time.Hour)))
	n, err = ts.Expire(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "not dropped twice")
}

// TestFarPast writes at the earliest possible time. Listing windows must not iterate from there to now.
func TestFarPast(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Retention, o.Partitions = 0, 1 })
	ls := labels.FromStrings(labels.MetricName, "up")
	ts.write("default", ls, sample{-format.MaxTime + 1, 1}, sample{0, 2}, sample{ts.now.UnixMilli(), 3})
	require.NoError(t, ts.SealAll(t.Context()))
	require.Equal(
		t, []sample{{-format.MaxTime + 1, 1}, {0, 2}, {ts.now.UnixMilli(), 3}}, ts.all("default")[ls.String()],
	)
}

// TestClockSetBack writes samples after everything was sealed and the clock was set back by days. The samples must be
// found after a restart, and can be sealed.
func TestClockSetBack(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 1 })
	ls := labels.FromStrings(labels.MetricName, "up")
	ts.now = ts.now.Add(10 * 24 * time.Hour)
	require.NoError(t, ts.SealAll(t.Context()))
	require.NoError(t, ts.UnlistSlots(t.Context(), 0))
	ts.now = ts.now.Add(-5 * 24 * time.Hour)
	ts.write("default", ls, sample{ts.now.UnixMilli(), 1})
	ts.reopen()
	require.Len(t, ts.all("default")[ls.String()], 1, "after a restart")
	require.NoError(t, ts.SealAll(t.Context()))
	require.Zero(t, ts.HeadStats().Chunks, "sealed")
	require.Len(t, ts.all("default")[ls.String()], 1)
}

// TestDamagedStageIsTold changes a byte of a blob and restarts. Queries of its slot must have a warning, and others
// must not.
func TestDamagedStageIsTold(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 1 })
	ls := labels.FromStrings(labels.MetricName, "up")
	ts.write("default", ls, sample{ts.now.UnixMilli(), 1})
	slot := ts.period.SlotOf(ts.now.UnixMilli())
	key := format.StageRow{Writer: ts.writer, Seq: 1}.Key()
	put := func(b []byte) {
		require.NoError(t, ts.eng.Write(context.Background(), []engine.Batch{{
			Table: engine.Stage, Partition: format.StagePartition(slot, 0),
			Mutations: []engine.Mutation{{Clustering: key, Timestamp: 2, Value: b}},
		}}))
	}
	var good []byte
	for row, err := range ts.eng.Scan(
		t.Context(), engine.Range{Table: engine.Stage, Partition: format.StagePartition(slot, 0)},
	) {
		require.NoError(t, err)
		good = append(good, row.Value...)
	}
	bad := append([]byte(nil), good...)
	bad[len(bad)-1] ^= 1
	put(bad)
	require.NoError(t, ts.Store.Close())
	require.NoError(t, ts.eng.Close())
	ts.open()
	warnings := func(minT, maxT int64) (n int) {
		_, err := ts.Select(t.Context(), query.Query{Tenant: "default", MinT: minT, MaxT: maxT, Warn: func(err error) {
			require.ErrorIs(t, err, format.ErrMalformedBlob)
			n++
		}})
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 1, warnings(ts.now.UnixMilli()-1000, ts.now.UnixMilli()))
	require.Zero(t, warnings(0, ts.now.Add(-24*time.Hour).UnixMilli()))
	put(good)
	ts.reopen()
	require.Zero(t, warnings(0, ts.now.UnixMilli()))
}
