package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/soak"
)

// readModel is the expected content of a store: the samples of every series by timestamp.
type readModel struct {
	labels  []labels.Labels
	samples []map[int64]float64
}

func (m *readModel) add(i int, t int64, v float64) {
	if old, ok := m.samples[i][t]; !ok || v > old { // the higher of two numbers wins
		m.samples[i][t] = v
	}
}

// answer returns the matching series, ordered by labels, and their samples in the range of the query.
func (m *readModel) answer(q query.Query) (names []string, samples map[string][]sample) {
	samples = map[string][]sample{}
	for i, ls := range m.labels {
		if !format.MatchesAll(ls, q.Matchers) {
			continue
		}
		var list []sample
		for t, v := range m.samples[i] {
			if t >= q.MinT && t <= q.MaxT {
				list = append(list, sample{t, v})
			}
		}
		if list != nil {
			slices.SortFunc(list, func(a, b sample) int { return int(a.t - b.t) })
			names = append(names, ls.String())
			samples[ls.String()] = list
		}
	}
	slices.Sort(names)
	return names, samples
}

// newReadModel fills a store with three days of random samples: sealed, sealed again, and unsealed.
func newReadModel(t *testing.T, ts *testStore, shards int64, r *rand.Rand) *readModel {
	m := &readModel{}
	for i := range 120 {
		b := labels.NewBuilder(labels.EmptyLabels())
		b.Set(labels.MetricName, fmt.Sprintf("metric_%d", i%4)).Set("instance", fmt.Sprint("host-", i))
		if i%3 > 0 {
			b.Set("job", []string{"api", "web"}[i%2])
		}
		m.labels = append(m.labels, b.Labels())
		m.samples = append(m.samples, map[int64]float64{})
	}
	p := ts.period
	w := newRowFixture(t, ts.Store, "default")
	w.shards = shards
	newest := p.SlotOf(ts.now.UnixMilli())
	for slot := newest - 40; slot <= newest-2; slot++ {
		if r.IntN(5) == 0 {
			continue
		}
		for range 1 + r.IntN(2) { // a second time: late samples, some of them known
			for i, ls := range m.labels {
				if r.IntN(3) == 0 || (p.RawWindowOfSlot(slot)+int64(i/4))%3 == 0 { // on some days a series is missing
					continue
				}
				var samples chunk.Samples
				for range 1 + r.IntN(20) {
					samples.AppendFloat(p.SlotStart(slot)+1+60_000*r.Int64N(120), 0, float64(r.IntN(100)))
				}
				samples.AppendFloat(p.SlotEnd(slot), 0, float64(r.IntN(100)))
				samples.Normalize()
				for k, at := range samples.T {
					m.add(i, at, samples.V[k])
				}
				w.chunk(slot, ls, &samples)
			}
			w.mark(slot)
		}
	}
	for i, ls := range m.labels {
		var list []sample
		for range 1 + r.IntN(10) {
			x := sample{p.SlotStart(newest-4) + 1 + 60_000*r.Int64N(4*120), float64(r.IntN(100))}
			list = append(list, x)
			m.add(i, x.t, x.v)
		}
		if i%5 > 0 {
			ts.write("default", ls, list...)
			continue
		}
		for _, x := range list { // some series have no unsealed samples
			samples := chunk.Samples{T: []int64{x.t}, V: []float64{x.v}}
			w.chunk(p.SlotOf(x.t), ls, &samples)
			w.mark(p.SlotOf(x.t))
		}
	}
	w.flush()
	return m
}

func randomQuery(ts *testStore, r *rand.Rand) query.Query {
	span := int64(4 * 24 * time.Hour / time.Millisecond)
	a := ts.now.UnixMilli() - r.Int64N(span)
	q := query.Query{Tenant: "default", MinT: a, MaxT: a + r.Int64N(span), Sorted: r.IntN(2) == 0}
	if r.IntN(4) == 0 {
		q.MaxT = a + 300_000
	}
	pick := func(kind labels.MatchType, name string, values ...string) {
		q.Matchers = append(q.Matchers, labels.MustNewMatcher(kind, name, values[r.IntN(len(values))]))
	}
	switch r.IntN(6) {
	case 0:
		pick(labels.MatchEqual, labels.MetricName, "metric_0", "metric_1", "metric_none", "")
	case 1:
		pick(labels.MatchRegexp, labels.MetricName, "metric_1|metric_2|other", "metric_.+", ".*_3", "met.*|nothing")
	case 2:
		pick(labels.MatchNotEqual, labels.MetricName, "metric_0", "")
	case 3:
		pick(labels.MatchEqual, labels.MetricName, "metric_0")
		pick(labels.MatchRegexp, labels.MetricName, "metric_0", "metric_1", "m.*")
	}
	switch r.IntN(5) {
	case 0:
		pick(labels.MatchEqual, "job", "api", "", "none")
	case 1:
		pick(labels.MatchNotRegexp, "job", "api", "a.*|", ".+")
	case 2:
		pick(labels.MatchRegexp, "instance", "host-1.*", "host-(3|44|105)", ".*7", "host-1|host-2|host-9")
	}
	return q
}

func TestSelectAgreesWithAModel(t *testing.T) {
	t.Parallel()
	for _, shards := range []int64{1, 3} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, uint64(shards)))
			ts := openTestStore(t, nil)
			m := newReadModel(t, ts, shards, r)
			check := func() {
				for range soak.Fewer(60) {
					requireModel(t, ts, m, randomQuery(ts, r))
				}
				requireModel(t, ts, m, query.Query{Tenant: "default", MinT: -1 << 63, MaxT: 1<<63 - 1, Sorted: true})
			}
			check()
			if shards == 1 { // the sealer writes all series to one shard
				require.NoError(t, ts.SealAll(t.Context()))
				check()
				ts.reopen()
				check()
			}
		})
	}
}

func requireModel(t *testing.T, ts *testStore, m *readModel, q query.Query) {
	t.Helper()
	q.Warn = func(err error) { require.NoError(t, err) }
	found, err := ts.Select(t.Context(), q)
	require.NoError(t, err)
	wantNames, want := m.answer(q)
	got := map[string][]sample{}
	seen := map[string]bool{}
	var last labels.Labels
	for i, s := range found {
		require.False(t, seen[s.Labels.String()], "%s comes twice", s.Labels)
		require.True(t, format.MatchesAll(s.Labels, q.Matchers), "%s doesn't match", s.Labels)
		require.True(t, !q.Sorted || i == 0 || labels.Compare(last, s.Labels) < 0, "out of order")
		seen[s.Labels.String()], last = true, s.Labels
		var samples chunk.Samples
		require.NoError(t, s.Samples(&samples))
		for k, at := range samples.T {
			got[s.Labels.String()] = append(got[s.Labels.String()], sample{at, samples.V[k]})
		}
	}
	for _, name := range wantNames {
		require.Equal(t, want[name], got[name], "%s in %d to %d", name, q.MinT, q.MaxT)
	}
	require.Len(t, got, len(wantNames), "%v", q.Matchers)

	if len(found) > 1 {
		all := found
		q.Limit = 1 + len(found)/2
		found, err = ts.Select(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, found, q.Limit)
		for i := range found {
			require.True(t, !q.Sorted || labels.Equal(all[i].Labels, found[i].Labels), "a limit cuts the end")
		}
	}
}

// manySeries writes one sealed slot of n series. Series number i has 1+i%7 samples.
func manySeries(t testing.TB, ts *testStore, n int) (slot int64, ls []labels.Labels) {
	slot = ts.period.SlotOf(ts.now.UnixMilli()) - 3
	w := newRowFixture(t, ts.Store, "default")
	for i := range n {
		ls = append(ls, labels.FromStrings(labels.MetricName, "many", "n", fmt.Sprint(i)))
		var samples chunk.Samples
		for k := range 1 + i%7 {
			samples.AppendFloat(ts.period.SlotStart(slot)+1+int64(k)*1000, 0, float64(i))
		}
		w.chunk(slot, ls[i], &samples)
	}
	w.mark(slot)
	return slot, ls
}

func TestGroupsInAnyOrderAndAtOnce(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			groupsInAnyOrderAndAtOnce(
				t, openTestStore(t, func(o *Options) { o.Shared, o.seams.still = shared, shared }),
			)
		})
	}
}

func groupsInAnyOrderAndAtOnce(t *testing.T, ts *testStore) {
	_, _ = manySeries(t, ts, 30*query.GroupSeries+5)
	found, err := ts.Select(t.Context(), query.Query{Tenant: "default", MaxT: 1 << 52})
	require.NoError(t, err)
	require.Len(t, found, 30*query.GroupSeries+5)
	read := func(order []int) error {
		var samples chunk.Samples
		for _, i := range order {
			samples.Reset()
			if err := found[i].Samples(&samples); err != nil {
				return err
			}
			n := int(samples.V[0])
			if samples.Len() != 1+n%7 || found[i].Labels.Get("n") != fmt.Sprint(n) {
				return fmt.Errorf("series %d has %d samples of %v", i, samples.Len(), samples.V[0])
			}
		}
		return nil
	}
	inOrder := make([]int, len(found))
	for i := range inOrder {
		inOrder[i] = i
	}
	require.NoError(t, read(inOrder))
	require.NoError(t, read(inOrder), "it can be read again")

	var wg sync.WaitGroup
	errs := make([]error, 4)
	for g := range errs {
		order := rand.New(rand.NewPCG(1, uint64(g))).Perm(len(found))[:200]
		wg.Go(func() { errs[g] = read(order) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func TestSamplesAppends(t *testing.T) {
	ts := openTestStore(t, nil)
	slot, ls := manySeries(t, ts, 1)
	found, err := ts.Select(t.Context(), query.Query{Tenant: "default", MaxT: 1 << 52})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, ls[0], found[0].Labels)
	var samples chunk.Samples
	samples.AppendFloat(1<<51, 5, 3)
	require.NoError(t, found[0].Samples(&samples))
	require.Equal(t, []int64{1 << 51, ts.period.SlotStart(slot) + 1}, samples.T, "what was there isn't touched")
	require.Equal(t, []int64{5, 0}, samples.ST)
}

func TestQueryBytesAreBounded(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.QueryBytes = 60_000 })
	manySeries(t, ts, 500)
	found, err := ts.Select(t.Context(), query.Query{Tenant: "default", MaxT: 1 << 52, Matchers: []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchRegexp, "n", "1.."),
	}})
	require.NoError(t, err)
	require.Len(t, found, 100)
	var samples chunk.Samples
	require.NoError(t, found[0].Samples(&samples))
	samples.Reset()

	ts.Store.opts.QueryBytes = 40_000
	ts.openQuerier()
	_, err = ts.Select(t.Context(), query.Query{Tenant: "default", MaxT: 1 << 52})
	require.ErrorIs(t, err, meter.ErrQueryTooLarge)
	require.ErrorContains(t, err, "shorter range")

	// The limit is sufficient for labels, but not for samples.
	ts.Store.opts.QueryBytes = 100 + ts.minQueryBytes(func() (err error) {
		found, err = ts.Select(t.Context(), query.Query{Tenant: "default", MaxT: 1 << 52})
		return err
	})
	ts.openQuerier()
	found, err = ts.Select(t.Context(), query.Query{Tenant: "default", MaxT: 1 << 52})
	require.NoError(t, err)
	for range 2 {
		require.ErrorIs(t, found[0].Samples(&samples), meter.ErrQueryTooLarge)
	}
}

func TestACanceledQueryStops(t *testing.T) {
	ts := openTestStore(t, nil)
	manySeries(t, ts, 10)
	ctx, cancel := context.WithCancel(t.Context())
	found, err := ts.Select(ctx, query.Query{Tenant: "default", MaxT: 1 << 52})
	require.NoError(t, err)
	cancel()
	var samples chunk.Samples
	require.ErrorIs(t, found[0].Samples(&samples), context.Canceled)
	_, err = ts.Select(ctx, query.Query{Tenant: "default", MaxT: 1 << 52})
	require.ErrorIs(t, err, context.Canceled)
	_, err = ts.LabelNames(ctx, query.Query{Tenant: "default", MaxT: 1 << 52})
	require.ErrorIs(t, err, context.Canceled)
}

func TestOneTenantDoesntSeeAnother(t *testing.T) {
	ts := openTestStore(t, nil)
	manySeries(t, ts, 3)
	ts.write("other", labels.FromStrings(labels.MetricName, "secret"), sample{ts.now.UnixMilli(), 1})
	found, err := ts.Select(t.Context(), query.Query{Tenant: "other", MaxT: 1 << 52})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "secret", found[0].Labels.Get(labels.MetricName))
	found, err = ts.Select(t.Context(), query.Query{Tenant: "nobody", MaxT: 1 << 52})
	require.NoError(t, err)
	require.Empty(t, found)
	names, err := ts.LabelNames(t.Context(), query.Query{Tenant: "other", MaxT: 1 << 52})
	require.NoError(t, err)
	require.Equal(t, []string{labels.MetricName}, names)
}

// TestNothingIsMissedWhileSealing checks invariant I4 for queries during seals.
func TestNothingIsMissedWhileSealing(t *testing.T) {
	ts := openTestStore(t, nil)
	ls := labels.FromStrings(labels.MetricName, "steady", "k", "v")
	base := ts.now.Add(-10 * time.Hour).UnixMilli()
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := ts.SealAll(context.Background()); err != nil {
				done <- err
				return
			}
		}
	}()
	for i := range 300 {
		ts.write("default", ls, sample{base + int64(i)*60_000, float64(i)})
		found, err := ts.Select(t.Context(), query.Query{Tenant: "default", MinT: base, MaxT: 1 << 52})
		require.NoError(t, err)
		require.Len(t, found, 1)
		var samples chunk.Samples
		require.NoError(t, found[0].Samples(&samples))
		require.Len(t, samples.T, i+1)
	}
	close(stop)
	require.NoError(t, <-done)
}

// TestAWindowWithoutMatchesDoesntSplitASeries reads a series with samples in the windows before and after a window
// without matches. It must be returned as one series.
func TestAWindowWithoutMatchesDoesntSplitASeries(t *testing.T) {
	for _, metrics := range [][]string{{"up"}, {"down", "up", "zeta"}} {
		ts := openTestStore(t, nil)
		w := newRowFixture(t, ts.Store, "default")
		newest := ts.period.SlotOf(ts.now.UnixMilli())
		for day, instance := range []string{"a", "b", "a"} {
			slot := newest - int64(3-day)*12
			for _, metric := range metrics {
				ls := labels.FromStrings(labels.MetricName, metric, "instance", instance)
				w.chunk(slot, ls, &chunk.Samples{T: []int64{ts.period.SlotEnd(slot)}, V: []float64{1}})
			}
			w.mark(slot)
		}
		ts.write("default", labels.FromStrings(labels.MetricName, "up", "instance", "a"), sample{ts.now.UnixMilli(), 1})
		a := labels.MustNewMatcher(labels.MatchEqual, "instance", "a")
		for _, ms := range [][]*labels.Matcher{
			{a}, {a, labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up")},
		} {
			found, err := ts.Select(t.Context(), query.Query{Tenant: "default", MaxT: 1 << 52, Matchers: ms})
			require.NoError(t, err)
			want := len(metrics)
			if len(ms) > 1 {
				want = 1
			}
			require.Len(t, found, want)
			for _, s := range found {
				var samples chunk.Samples
				require.NoError(t, s.Samples(&samples))
				n := 2
				if s.Labels.Get(labels.MetricName) == "up" {
					n = 3
				}
				require.Len(t, samples.T, n, "%s", s.Labels)
			}
		}
	}
}
