package storage

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// churnModel is a store of short-lived series, with a plain list of the samples that it must contain. The list contains
// the bits of their values by series and time.
type churnModel struct {
	*testStore
	rng    *rand.Rand
	series []labels.Labels
	want   map[string]map[int64]uint64
	from   int64 // the start of the first slot
	spent  int   // queries that skipped series by their spans
}

// churnSlots is the number of slots in which a churnModel has samples.
const churnSlots = 4

func newChurnModel(ts *testStore, seed uint64) *churnModel {
	m := &churnModel{testStore: ts, rng: rand.New(rand.NewPCG(seed, 40)), want: map[string]map[int64]uint64{}}
	m.from = ts.now.Truncate(2*time.Hour).UnixMilli() - (churnSlots+1)*2*format.HourMS
	for i := range 60 {
		m.series = append(m.series, labels.FromStrings(
			labels.MetricName, fmt.Sprintf("pods_%d", i%2), "job", []string{"a", "b"}[i/2%2], "pod", fmt.Sprint(i),
		))
	}
	return m
}

// any returns a random time within the time range of the samples.
func (m *churnModel) any() int64 { return m.from + 1 + m.rng.Int64N(churnSlots*2*format.HourMS) }

// run writes samples of some series for a random time, with gaps and stale markers.
func (m *churnModel) run() {
	b := m.NewBatch("default")
	for range 12 {
		ls := m.series[m.rng.IntN(len(m.series))]
		ref, err := b.Define([]byte(ls.String()), ls)
		require.NoError(m.t, err)
		if m.want[ls.String()] == nil {
			m.want[ls.String()] = map[int64]uint64{}
		}
		until := m.from + churnSlots*2*format.HourMS
		for t, n := m.any(), m.rng.IntN(40); t <= until && n > 0; t, n = t+1+m.rng.Int64N(120_000), n-1 {
			if _, ok := m.want[ls.String()][t]; ok {
				continue
			}
			v := float64(n)
			switch {
			case m.rng.IntN(10) == 0:
				t += m.rng.Int64N(2 * format.HourMS)
				continue
			case m.rng.IntN(15) == 0 || n == 1:
				v = math.Float64frombits(value.StaleNaN)
			}
			require.NoError(m.t, b.Float(ref, t, 0, v))
			m.want[ls.String()][t] = math.Float64bits(v)
		}
	}
	require.NoError(m.t, b.Commit(context.Background()))
}

// delete deletes the samples of some series in a random time range.
func (m *churnModel) delete() {
	from := m.any()
	to := from + m.rng.Int64N(3*format.HourMS)
	by := []*labels.Matcher{equal(labels.MetricName, "pods_1"), equal("job", []string{"a", "b"}[m.rng.IntN(2)])}
	require.NoError(m.t, m.Delete(m.t.Context(), "default", from, to, by...))
	for _, ls := range m.series {
		if format.MatchesAll(ls, by) {
			maps.DeleteFunc(m.want[ls.String()], func(t int64, _ uint64) bool { return from <= t && t <= to })
		}
	}
}

// compare queries random ranges, most of them short, and requires exactly the samples of the model.
func (m *churnModel) compare(when string) {
	m.t.Helper()
	for range soak.Fewer(30) {
		q := query.Query{
			Tenant: "default", MinT: m.any(),
			Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, "pods_.*")},
		}
		q.MaxT = q.MinT + []int64{0, 300_000, format.HourMS, 3 * format.HourMS}[m.rng.IntN(4)]
		if m.rng.IntN(2) == 0 {
			q.Matchers = append(q.Matchers, equal("job", "a"))
		}
		q.Sorted = m.rng.IntN(3) == 0
		q.Warn = func(err error) { require.NoError(m.t, err) }
		found, err := m.Select(counted(m.t.Context()), q)
		require.NoError(m.t, err)
		got, matching := map[string]map[int64]uint64{}, 0
		for _, s := range found {
			var all chunk.Samples
			require.NoError(m.t, s.Samples(&all))
			for i, t := range all.T {
				if got[s.Labels.String()] == nil {
					got[s.Labels.String()] = map[int64]uint64{}
				}
				got[s.Labels.String()][t] = math.Float64bits(all.V[i])
			}
		}
		want := map[string]map[int64]uint64{}
		for _, ls := range m.series {
			samples := maps.Clone(m.want[ls.String()])
			if !format.MatchesAll(ls, q.Matchers) || len(samples) == 0 {
				continue
			}
			matching++
			if maps.DeleteFunc(
				samples, func(t int64, _ uint64) bool { return t < q.MinT || t > q.MaxT },
			); len(samples) > 0 {
				want[ls.String()] = samples
			}
		}
		require.Equal(m.t, want, got, "%s: from %d to %d, %v", when, q.MinT, q.MaxT, q.Matchers)
		if len(found) < matching {
			m.spent++
		}
	}
}

// history writes, seals, deletes, cleans and reopens at random. It compares the answers with the model after each step.
func (m *churnModel) history(steps int, reopen func()) {
	for i := range steps {
		when := "written"
		switch m.rng.IntN(8) {
		case 0, 1, 2, 3:
			m.run()
		case 4, 5:
			when = "sealed"
			require.NoError(m.t, m.SealAll(m.t.Context()))
		case 6:
			when = "deleted"
			m.delete()
		default:
			when = "cleaned, opened again"
			require.NoError(m.t, m.CleanTombstones(m.t.Context(), "default"))
			reopen()
		}
		m.compare(fmt.Sprint("step ", i, ": ", when))
	}
	require.NoError(m.t, m.SealAll(m.t.Context()))
	m.compare("all sealed")
	require.Positive(m.t, m.spent, "no query left series out")
}

// TestSpansLeaveOutNoSamples checks that queries of random ranges find exactly the samples of short-lived series, after
// any sequence of seals, late samples and deletes.
func TestSpansLeaveOutNoSamples(t *testing.T) {
	first := soak.FirstSeed(t)
	for i := range soak.Histories(t, 4) {
		seed := first + uint64(i)
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprint(strconv.FormatUint(seed, 10), "/shared=", shared), func(t *testing.T) {
				t.Parallel()
				ts := &testStore{
					t: t, dir: t.TempDir(), opts: DefaultOptions(), now: time.Date(2026, 5, 1, 17, 0, 0, 0, time.UTC),
				}
				if shared {
					ts.memory = memory.New()
				}
				ts.opts.Now = func() time.Time { return ts.now }
				ts.opts.Partitions, ts.opts.Shared, ts.opts.seams.still = 2, shared, true
				ts.open()
				t.Cleanup(ts.close)
				reopen := ts.reopen
				if shared { // The memory engine is lost when it is closed.
					reopen = func() {}
				}
				newChurnModel(ts, seed).history(25, reopen)
			})
		}
	}
}

// TestSpansOnCassandra is TestSpansLeaveOutNoSamples on Cassandra.
func TestSpansOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra: leave -short out")
	}
	t.Parallel() // It waits for the commit log.
	hosts := cassandratest.Hosts(t)
	co := cassandra.DefaultOptions()
	co.Hosts, co.Keyspace = hosts, cassandratest.OwnKeyspace(t, hosts)
	co.Timeout, co.ConnectTimeout = time.Minute, time.Minute
	eng, err := cassandra.Open(t.Context(), co)
	require.NoError(t, err)
	// The time must be close to the cluster's clock.
	ts := &testStore{t: t, eng: eng, opts: DefaultOptions(), now: time.Now()}
	ts.opts.Partitions, ts.opts.Shared = 2, true
	ts.Store = openReady(t, eng, ts.opts)
	t.Cleanup(ts.close)
	newChurnModel(ts, soak.Seed(t)).history(12, func() {})
}

// TestSpansOfLastingSeriesAreNotKept checks that no spans are cached for a metric whose series have samples at all
// times. Spans of another metric must be read once, and again only after the window was sealed again.
func TestSpansOfLastingSeriesAreNotKept(t *testing.T) {
	counter := countScans(memory.New())
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: counter}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions = 1
	ts.open()
	t.Cleanup(ts.close)
	at := ts.now.UnixMilli() - 4*format.HourMS
	for i := range 20 {
		lasting, short := labels.FromStrings(
			labels.MetricName, "lasting", "i", fmt.Sprint(i),
		), labels.FromStrings(labels.MetricName, "short", "i", fmt.Sprint(i))
		ts.write("default", lasting, sample{at + 60_000, 1}, sample{at + 119*60_000, 1})
		ts.write("default", short, sample{at + int64(i+1)*300_000, 1})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	ask := func(metric string) int {
		found, err := ts.Select(t.Context(), query.Query{
			Tenant: "default", MinT: at + 600_000, MaxT: at + 600_001,
			Matchers: []*labels.Matcher{equal(labels.MetricName, metric)},
		})
		require.NoError(t, err)
		return len(found)
	}
	require.Equal(t, 20, ask("lasting"))
	require.Equal(t, 1, ask("short"))
	counter.rawScans()
	require.Equal(t, 20, ask("lasting"))
	require.Equal(t, 1, ask("short"))
	require.Zero(t, counter.rawScans())
	ts.write("default", labels.FromStrings(labels.MetricName, "short", "i", "3"), sample{at + 600_001, 2})
	require.NoError(t, ts.SealAll(t.Context()))
	require.Equal(t, 2, ask("short"), "samples came late")
	kinds := map[string]bool{}
	for key, spans := range ts.cache.EntriesOf(cache.KindSpans) {
		kinds[key.Text] = spans.Bytes() == 0
	}
	require.Equal(t, map[string]bool{"lasting": true, "short": false}, kinds)
}

// TestDamagedSpansLeaveOutNothing makes a page of a slot unreadable. All series must be read, and the damage must be
// reported.
func TestDamagedSpansLeaveOutNothing(t *testing.T) {
	ts := openTestStore(t, usualPages)
	ts.damaged = true
	slot := ts.now.Truncate(2 * time.Hour).Add(-4 * time.Hour)
	ts.soughtSeries(0, 600, slot.Add(time.Minute))
	var chunks []storedPage
	for _, p := range ts.pagesIn(ts.pagedPartitions("default")) {
		if p.res == rollup.Raw && p.clustering[0].Int == format.KindChunk {
			chunks = append(chunks, p)
		}
	}
	require.NotEmpty(t, chunks)
	value := slices.Clone(chunks[0].value)
	value[len(value)/2] ^= 1
	ts.putPage(chunks[0], value)
	ts.reopen()
	var warned []error
	found, err := ts.Select(t.Context(), query.Query{
		Tenant: "default", MinT: slot.Add(time.Hour).UnixMilli(), MaxT: slot.Add(61 * time.Minute).UnixMilli(),
		Matchers: []*labels.Matcher{equal(labels.MetricName, "up")},
		Warn:     func(err error) { warned = append(warned, err) },
	})
	require.NoError(t, err)
	require.Len(t, found, 600)
	for _, s := range found {
		var samples chunk.Samples
		require.NoError(t, s.Samples(&samples))
		require.Zero(t, samples.Len())
	}
	require.NotEmpty(t, warned)
}
