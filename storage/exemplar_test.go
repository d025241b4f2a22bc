package storage

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/meter"
)

// TestKeptExemplarsConverge splits a set of exemplars in different ways. The same exemplars must be kept each time.
func TestKeptExemplarsConverge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []format.Exemplar
	for range 3 * format.MaxSlotExemplars {
		all = append(all, format.Exemplar{T: rng.Int64N(5000), Data: []byte{byte(rng.IntN(3))}})
	}
	want := format.SelectExemplars(slices.Clone(all))
	require.Len(t, want, format.MaxSlotExemplars)
	for range 20 {
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var rows []format.Exemplar
		for rest := all; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(2*format.MaxSlotExemplars))
			rows = append(rows, missingExemplars(format.SelectExemplars(slices.Clone(rest[:n])), slices.Clone(rows))...)
			rest = rest[n:]
		}
		require.Equal(t, want, format.SelectExemplars(rows))
	}
}

// exemplarsOf writes exemplars of a series, without samples.
func (ts *testStore) exemplarsOf(tenant string, ls labels.Labels, list ...exemplar.Exemplar) {
	ts.t.Helper()
	b := ts.NewBatch(tenant)
	s, err := b.Define([]byte(ls.String()), ls)
	require.NoError(ts.t, err)
	for _, e := range list {
		require.NoError(ts.t, b.Exemplar(s, e))
	}
	require.NoError(ts.t, b.Commit(context.Background()))
}

func traced(t int64, v float64, trace string) exemplar.Exemplar {
	return exemplar.Exemplar{Labels: labels.FromStrings("trace_id", trace), Value: v, Ts: t, HasTs: true}
}

func matchName(name string) []*labels.Matcher {
	return []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, name)}
}

func TestExemplarsStagedAndSealed(t *testing.T) {
	ts := openTestStore(t, nil)
	at := ts.now.Add(-5 * time.Hour).UnixMilli()
	counter := labels.FromStrings(labels.MetricName, "requests_total", "job", "a")
	alone := labels.FromStrings(labels.MetricName, "requests_bucket", "le", "1")
	slot := ts.opts.Slot.Milliseconds()
	ts.write("ann", counter, sample{at, 1}, sample{at + 15_000, 2})
	ts.exemplarsOf("ann", counter, traced(at+15_000, 2, "b"), traced(at, 1, "a"), traced(at, 1, "a"))
	ts.exemplarsOf("ann", alone, traced(at+slot, 0.5, "c"))
	ts.exemplarsOf("bob", counter, traced(at, 1, "bob's"))
	ts.exemplarsOf("ann", counter, traced(at, 1, "a")) // sent again
	want := []exemplar.QueryResult{
		{SeriesLabels: alone, Exemplars: []exemplar.Exemplar{traced(at+slot, 0.5, "c")}},
		{SeriesLabels: counter, Exemplars: []exemplar.Exemplar{traced(at, 1, "a"), traced(at+15_000, 2, "b")}},
	}
	ask := func(from, to int64, ms ...[]*labels.Matcher) []exemplar.QueryResult {
		t.Helper()
		got, err := ts.Exemplars(t.Context(), "ann", from, to, ms...)
		require.NoError(t, err)
		require.NotNil(t, got)
		return got
	}
	for _, when := range []string{
		"staged", "after a restart", "sealed", "sealed, after a restart", "late", "late, sealed",
	} {
		switch when {
		case "after a restart", "sealed, after a restart":
			ts.reopen()
		case "sealed", "late, sealed":
			require.NoError(t, ts.SealAll(t.Context()))
			require.Zero(t, ts.head.Bytes(), "the head's account is balanced")
			require.Zero(t, ts.head.SeriesCount())
		case "late":
			ts.exemplarsOf("ann", counter, traced(at+7, 3, "late"), traced(at, 1, "a"))
			want[1].Exemplars = slices.Insert(want[1].Exemplars, 1, traced(at+7, 3, "late"))
		}
		require.Equal(t, want, ask(math.MinInt64, math.MaxInt64, matchName("requests_.*")), when)
		require.Equal(t, want, ask(at, ts.now.UnixMilli(), matchName("requests_total"), matchName("requests_.*")), when)
		require.Equal(t, want[:1], ask(at+15_001, ts.now.UnixMilli(), matchName("requests_.*")), when)
		require.Len(t, ask(at+15_000, at+15_000, matchName("requests_total"))[0].Exemplars, 1, when)
		require.Empty(t, ask(at, at+slot, matchName("nothing")), when)
		require.Empty(t, ask(at, at+slot), when)
		require.Len(t, ts.all("ann"), 1, "%s: a series without samples has none", when)
	}
	require.Equal(t, 5, ts.check().Exemplars, "what was sealed isn't sealed again")
}

func TestExemplarsAreChecked(t *testing.T) {
	ts := openTestStore(t, rejectAhead)
	b := ts.NewBatch("ann")
	s, err := b.Define(nil, labels.FromStrings(labels.MetricName, "m"))
	require.NoError(t, err)
	now := ts.now.UnixMilli()
	var invalid *InvalidExemplarError
	for reason, ls := range map[string]labels.Labels{
		"labels_too_long": labels.FromStrings("trace_id", strings.Repeat("ä", 121)),
		"invalid_utf8":    labels.FromStrings("trace_id", "\xff"),
		"duplicate_label": labels.New(labels.Label{Name: "a", Value: "1"}, labels.Label{Name: "a", Value: "2"}),
	} {
		require.ErrorAs(t, b.Exemplar(s, exemplar.Exemplar{Labels: ls, Ts: now}), &invalid)
		require.Equal(t, reason, invalid.Reason)
	}
	require.NoError(
		t, b.Exemplar(s, exemplar.Exemplar{Labels: labels.FromStrings("trace_id", strings.Repeat("ä", 120)), Ts: now}),
	)
	require.ErrorIs(t, b.Exemplar(s, traced(ts.now.Add(MaxAhead).UnixMilli()+1, 1, "a")), ErrTooFarAhead)
	require.ErrorIs(t, b.Exemplar(s, traced(ts.now.Add(-ts.opts.Retention).UnixMilli(), 1, "a")), ErrTooOld)
	require.NoError(t, b.Commit(t.Context()))
}

// TestExemplarsAreBounded sends more exemplars than are kept per slot, in any order, with seals in between. The newest
// exemplars must be kept, and a selection of the older exemplars that is spread evenly over the time. A query must not
// exceed its limit of bytes.
func TestExemplarsAreBounded(t *testing.T) {
	ts := openTestStore(t, nil)
	ls := labels.FromStrings(labels.MetricName, "m")
	start := ts.period.SlotStart(ts.period.SlotOf(ts.now.Add(-5 * time.Hour).UnixMilli()))
	const sent = 3 * format.MaxSlotExemplars
	var all []exemplar.Exemplar
	for i := range sent {
		all = append(all, traced(start+1+int64(i), float64(i), strings.Repeat("x", 100)))
	}
	newest := slices.Clone(all[sent-format.NewestExemplars:])
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, part := range [][]exemplar.Exemplar{all[:1000], all[1000:2500], all[2500:]} {
		ts.exemplarsOf("ann", ls, part...)
		if i < 2 {
			require.NoError(t, ts.SealAll(t.Context()))
		}
	}
	for range 2 {
		got, err := ts.Exemplars(t.Context(), "ann", start, start+sent, matchName("m"))
		require.NoError(t, err)
		require.Len(t, got, 1)
		kept := got[0].Exemplars
		require.Len(t, kept, format.MaxSlotExemplars)
		older := kept[:format.MaxSlotExemplars-format.NewestExemplars]
		require.Equal(t, newest, kept[len(older):])
		// The kept exemplars must be evenly distributed: about a tenth of them in each tenth of the time.
		tenths := make([]int, 10)
		for _, e := range older {
			tenths[(e.Ts-start-1)*10/(sent-format.NewestExemplars)]++
		}
		require.Greater(t, slices.Min(tenths), len(older)/20, "%v", tenths)
		require.Less(t, slices.Max(tenths), len(older)/5, "%v", tenths)
		got, err = ts.Exemplars(t.Context(), "ann", start, older[10].Ts, matchName("m"))
		require.NoError(t, err)
		require.Equal(t, older[:11], got[0].Exemplars, "the same are kept, whatever range is asked for")
		require.NoError(t, ts.SealAll(t.Context()))
	}
	small := openTestStore(t, func(o *Options) { o.QueryBytes = 10_000 })
	small.exemplarsOf("ann", ls, all...)
	_, err := small.Exemplars(t.Context(), "ann", start, start+sent, matchName("m"))
	require.ErrorIs(t, err, meter.ErrQueryTooLarge)
	require.NoError(t, small.SealAll(t.Context()))
	_, err = small.Exemplars(t.Context(), "ann", start, start+sent, matchName("m"))
	require.ErrorIs(t, err, meter.ErrQueryTooLarge)
}

func TestExemplarsExpire(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Retention = 48 * time.Hour })
	ls := labels.FromStrings(labels.MetricName, "m")
	at := ts.now.Add(-time.Hour).UnixMilli()
	ts.exemplarsOf("ann", ls, traced(at, 1, "a"), traced(at+1, 2, "b"))
	count := func() int {
		got, err := ts.Exemplars(t.Context(), "ann", math.MinInt64, math.MaxInt64, matchName("m"))
		require.NoError(t, err)
		if len(got) == 0 {
			return 0
		}
		return len(got[0].Exemplars)
	}
	born := ts.now
	for range 2 {
		ts.now = born
		require.Equal(t, 2, count())
		ts.now = time.UnixMilli(at).Add(48 * time.Hour)
		require.Equal(t, 1, count(), "what is past retention is hidden")
		ts.now = born
		require.NoError(t, ts.SealAll(t.Context()))
	}
	rows := func() (n int) {
		slot := ts.period.SlotOf(at)
		for row, err := range ts.eng.Scan(t.Context(), engine.Range{
			Table: engine.Raw, Partition: format.SeriesPartition(ts.period.RawWindowOfSlot(slot), "ann", "m", 0),
		}) {
			require.NoError(t, err)
			if row.Clustering[0].Int == format.KindExemplars {
				n++
			}
		}
		return n
	}
	require.Equal(t, 1, rows())
	ts.passes(ts.now.Add(11 * 24 * time.Hour))
	require.Zero(t, rows(), "they go with their window")
	require.Zero(t, count())
}

// TestExemplarsOfManySeries checks that the exemplars of single series and of all series are found, before and after
// they are sealed.
func TestExemplarsOfManySeries(t *testing.T) {
	ts := openTestStore(t, nil)
	at := ts.now.Add(-30 * time.Hour).UnixMilli()
	name := func(i int) labels.Labels { return labels.FromStrings(labels.MetricName, "m", "i", fmt.Sprint(i)) }
	const series = 200
	for i := range series {
		ts.exemplarsOf("ann", name(i), traced(at, float64(i), "a"), traced(at+4*3_600_000, float64(i), "b"))
	}
	for range 2 {
		got, err := ts.Exemplars(t.Context(), "ann", at, ts.now.UnixMilli(), matchName("m"))
		require.NoError(t, err)
		require.Len(t, got, series)
		for _, r := range got {
			require.Len(t, r.Exemplars, 2)
		}
		for _, i := range []int{0, 77, series - 1} {
			one := append(matchName("m"), labels.MustNewMatcher(labels.MatchEqual, "i", fmt.Sprint(i)))
			got, err = ts.Exemplars(t.Context(), "ann", at, ts.now.UnixMilli(), one)
			require.NoError(t, err)
			require.Equal(t, []exemplar.QueryResult{{SeriesLabels: name(i), Exemplars: []exemplar.Exemplar{
				traced(at, float64(i), "a"), traced(at+4*3_600_000, float64(i), "b"),
			}}}, got)
		}
		require.NoError(t, ts.SealAll(t.Context()))
	}
}

func TestCorruptExemplarsAreNamed(t *testing.T) {
	ts := openTestStore(t, nil)
	ls := labels.FromStrings(labels.MetricName, "m")
	at := ts.now.Add(-time.Hour).UnixMilli()
	ts.exemplarsOf("ann", ls, traced(at, 1, "a"))
	require.NoError(t, ts.SealAll(t.Context()))
	partition := format.SeriesPartition(ts.period.RawWindowOfSlot(ts.period.SlotOf(at)), "ann", "m", 0)
	var key engine.Key
	var good []byte
	for row, err := range ts.eng.Scan(
		t.Context(),
		engine.Range{Table: engine.Raw, Partition: partition, From: engine.Key{engine.Int(format.KindExemplars)}},
	) {
		require.NoError(t, err)
		key = format.ExemplarsKey(
			format.SeriesIDOf(ls).String(), row.Clustering[1].Int, strings.Clone(row.Clustering[3].Text),
		)
		good = slices.Clone(row.Value)
	}
	put := func(b []byte) {
		require.NoError(t, ts.eng.Write(t.Context(), []engine.Batch{{
			Table: engine.Raw, Partition: partition,
			Mutations: []engine.Mutation{{Clustering: key, Timestamp: 2, Value: b}},
		}}))
	}
	bad := slices.Clone(good)
	bad[3] ^= 1
	put(bad)
	got, err := ts.Exemplars(t.Context(), "ann", at, at, matchName("m"))
	require.NoError(t, err)
	require.Empty(t, got)
	require.Contains(t, strings.Join(ts.problems(), "\n"), "malformed exemplar")
	ts.exemplarsOf("ann", ls, traced(at, 1, "a")) // beside the corrupt row
	put(good)
	require.NoError(t, ts.SealAll(t.Context()))
	got, err = ts.Exemplars(t.Context(), "ann", at, at, matchName("m"))
	require.NoError(t, err)
	require.Len(t, got[0].Exemplars, 1)
}
