package storage

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// soughtSeries writes a sample of each series of metric up with a number in [from, to), at each of the given times, and
// seals them.
func (ts *testStore) soughtSeries(from, to int, at ...time.Time) {
	ts.t.Helper()
	ts.heavy = true
	b := ts.NewBatch("default")
	for i := from; i < to; i++ {
		ls := labels.FromStrings(
			labels.MetricName, "up", "host", fmt.Sprint("h", i%500), "pod", fmt.Sprint("p", i), "mode",
			[]string{"user", "idle", ""}[i%3],
		)
		s, err := b.Define([]byte(ls.String()), ls)
		require.NoError(ts.t, err)
		for _, t := range at {
			require.NoError(ts.t, b.Float(s, t.UnixMilli(), 0, float64(i)))
		}
	}
	require.NoError(ts.t, b.Commit(context.Background()))
	require.NoError(ts.t, ts.SealAll(context.Background()))
}

// found returns the result of a query, with samples or buckets, as text.
func (ts *testStore) found(q query.Query) (lines []string, warnings []error) {
	ts.t.Helper()
	q.Tenant, q.Sorted, q.Warn = "default", true, func(err error) { warnings = append(warnings, err) }
	found, err := ts.Select(context.Background(), q)
	require.NoError(ts.t, err)
	for _, s := range found {
		line := s.Labels.String()
		if q.Resolution == rollup.Raw {
			var samples chunk.Samples
			require.NoError(ts.t, s.Samples(&samples))
			line += fmt.Sprint(samples.T, samples.V)
		} else {
			var b rollup.Buckets
			require.NoError(ts.t, s.Buckets(&b, &query.BucketBuffers{}))
			line += fmt.Sprint(b.End, b.Count, b.Sum)
		}
		lines = append(lines, line)
	}
	return lines, warnings
}

// byFilters returns the number of look-ups by filters whose results are in the cache.
func (ts *testStore) byFilters() int { return len(ts.cache.EntriesOf(cache.KindSought)) }

// TestSoughtIsFound compares the results of random selectors with filters and without. They must be equal, also from
// the cache and during writes.
func TestSoughtIsFound(t *testing.T) {
	first := soak.FirstSeed(t)
	for i := range soak.Histories(t, 2) {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 13))
			ts := openTestStore(t, usualPages)
			slot := ts.now.Truncate(2 * time.Hour).Add(-4 * time.Hour)
			ts.soughtSeries(0, 4000, slot.Add(time.Minute), slot.Add(time.Hour))
			used := 0
			for round := range 3 {
				queries := soughtQueries(t, rng, slot)
				ts.reopen()
				with := map[int][]string{}
				for k, q := range queries {
					lines, warnings := ts.found(q)
					require.Empty(t, warnings)
					again, _ := ts.found(q)
					require.Equal(t, lines, again)
					with[k] = lines
				}
				used += ts.byFilters()
				ts.reopen()
				for k, q := range queries {
					require.Equal(t, ts.withoutFilters(q), with[k], "round %d: %v", round, q.Matchers)
				}
				// Write new series, and samples of existing series. Some of the samples are late.
				ts.soughtSeries(3900, 4300+300*round, slot.Add(time.Duration(61+round)*time.Minute))
				ts.soughtSeries(0, 100, slot.Add(2*time.Hour+time.Duration(1+round)*time.Minute))
			}
			require.Greater(t, used, soak.Fewer(10))
		})
	}
}

// soughtQueries returns queries with random selectors of the series of soughtSeries.
func soughtQueries(t testing.TB, rng *rand.Rand, slot time.Time) (all []query.Query) {
	matcher := func(kind labels.MatchType, name, value string) *labels.Matcher {
		m, err := labels.NewMatcher(kind, name, value)
		require.NoError(t, err)
		return m
	}
	for range soak.Fewer(15) {
		q := query.Query{
			MinT: slot.UnixMilli(), MaxT: slot.Add(4 * time.Hour).UnixMilli(),
			Matchers: []*labels.Matcher{matcher(labels.MatchEqual, labels.MetricName, "up")},
		}
		pod, host := fmt.Sprint("p", rng.IntN(4500)), fmt.Sprint("h", rng.IntN(510))
		switch rng.IntN(5) {
		case 0:
			q.Matchers = append(q.Matchers, matcher(labels.MatchEqual, "pod", pod))
		case 1:
			q.Matchers = append(
				q.Matchers, matcher(labels.MatchEqual, "host", host), matcher(labels.MatchNotEqual, "mode", "user"),
			)
		case 2:
			q.Matchers = append(
				q.Matchers, matcher(labels.MatchRegexp, "host", host+"|h7|h8"), matcher(labels.MatchEqual, "mode", ""),
			)
		case 3:
			q.Matchers = append(
				q.Matchers, matcher(labels.MatchRegexp, "pod", pod+"|p7"), matcher(labels.MatchRegexp, "host", "h.*"),
			)
		case 4:
			q.Matchers = append(
				q.Matchers, matcher(labels.MatchNotRegexp, "pod", "p[0-7].*"), matcher(labels.MatchEqual, "host", host),
			)
		}
		if rng.IntN(3) == 0 {
			q.Resolution, q.Columns = rollup.FiveMinutes, rollup.AllColumns
			for at := q.MinT; at <= q.MaxT; at += rollup.FiveMinutes.Width() {
				q.Edges = append(q.Edges, at)
			}
		}
		all = append(all, q)
	}
	return all
}

// withoutFilters returns the result of a query that uses an index of all series instead of filters.
func (ts *testStore) withoutFilters(q query.Query) []string {
	ts.t.Helper()
	any := q
	any.Matchers, any.LabelsOnly = q.Matchers[:1], false
	_, err := ts.Select(context.Background(), query.Query{
		Tenant: "default", Matchers: any.Matchers, MinT: any.MinT, MaxT: any.MaxT, Resolution: any.Resolution,
		Columns: any.Columns, Edges: any.Edges,
	})
	require.NoError(ts.t, err)
	before := ts.byFilters()
	lines, _ := ts.found(q)
	require.Equal(ts.t, before, ts.byFilters(), "the index of all series is in the cache")
	return lines
}

// TestLabelsOfSought checks the names and values of labels of series that are found by filters.
func TestLabelsOfSought(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, usualPages)
	slot := ts.now.Truncate(2 * time.Hour).Add(-4 * time.Hour)
	ts.soughtSeries(0, 4000, slot.Add(time.Minute))
	ts.reopen()
	q := query.Query{
		Tenant: "default", MinT: slot.UnixMilli(), MaxT: slot.Add(time.Hour).UnixMilli(), Matchers: []*labels.Matcher{
			labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up"),
			labels.MustNewMatcher(labels.MatchEqual, "host", "h7"),
		},
	}
	values, err := ts.LabelValues(t.Context(), "pod", q)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"p7", "p507", "p1007", "p1507", "p2007", "p2507", "p3007", "p3507"}, values)
	require.Equal(t, 1, ts.byFilters())
	names, err := ts.LabelNames(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, []string{labels.MetricName, "host", "mode", "pod"}, names)
}

// TestIndexIsMadeWhereItPays checks that the index of all series is built after some look-ups by filters, unless it
// would take too much of the cache.
func TestIndexIsMadeWhereItPays(t *testing.T) {
	t.Parallel()
	for _, cacheBytes := range []int64{256 << 20, 2 << 20} {
		ts := openTestStore(t, func(o *Options) {
			usualPages(o)
			o.CacheBytes = cacheBytes
		})
		slot := ts.now.Truncate(2 * time.Hour).Add(-4 * time.Hour)
		ts.soughtSeries(0, 4000, slot.Add(time.Minute))
		ts.reopen()
		for i := range 400 {
			lines, _ := ts.found(query.Query{
				MinT: slot.UnixMilli(), MaxT: slot.Add(time.Hour).UnixMilli(), Matchers: []*labels.Matcher{
					labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up"),
					labels.MustNewMatcher(labels.MatchEqual, "pod", fmt.Sprint("p", i)),
				},
			})
			require.Len(t, lines, 1)
		}
		if cacheBytes > 100<<20 {
			require.Less(t, ts.byFilters(), 350)
			require.Greater(t, ts.byFilters(), 10)
		} else {
			require.Equal(t, 400, ts.byFilters())
		}
	}
}

// TestFewSeriesHaveAnIndex checks that metrics with few series use an index immediately.
func TestFewSeriesHaveAnIndex(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, usualPages)
	slot := ts.now.Truncate(2 * time.Hour).Add(-4 * time.Hour)
	ts.soughtSeries(0, 300, slot.Add(time.Minute))
	ts.reopen()
	lines, _ := ts.found(query.Query{
		MinT: slot.UnixMilli(), MaxT: slot.Add(time.Hour).UnixMilli(), Matchers: []*labels.Matcher{
			labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up"),
			labels.MustNewMatcher(labels.MatchEqual, "pod", "p1"),
		},
	})
	require.Len(t, lines, 1)
	require.Zero(t, ts.byFilters())
}

// TestDamageUnderFilters damages filters. The damage must be counted, and may only make look-ups slower. Then the test
// damages labels pages, which must cause warnings.
func TestDamageUnderFilters(t *testing.T) {
	t.Parallel()
	ts := openUncheckedStore(t)
	slot := ts.now.Truncate(2 * time.Hour).Add(-4 * time.Hour)
	ts.soughtSeries(0, 4000, slot.Add(time.Minute))
	q := query.Query{MinT: slot.UnixMilli(), MaxT: slot.Add(time.Hour).UnixMilli(), Matchers: []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up"),
		labels.MustNewMatcher(labels.MatchEqual, "host", "h7"),
	}}
	partitions := ts.pagedPartitions("default")
	damage := func(kind int64) (n int) {
		for _, p := range partitions {
			for row, err := range ts.eng.Scan(t.Context(), engine.Range{
				Table: format.PagesOf(p.res), Partition: p.key, From: engine.Key{engine.Int(kind)},
				To: engine.Key{engine.Int(kind)},
			}) {
				require.NoError(t, err)
				if p.res == rollup.Raw && len(row.Value) > 1 {
					key, value := row.Clustering.Clone(), bytes.Clone(row.Value)
					for i := range key {
						key[i].Text = strings.Clone(key[i].Text)
					}
					value[len(value)/2] ^= 0x40
					ts.putPage(storedPage{pagedPartition: p, clustering: key}, value)
					n++
				}
			}
		}
		return n
	}
	filters := damage(format.KindFilter)
	require.Greater(t, filters, 10)
	ts.closeUnchecked()
	ts.open()
	lines, warnings := ts.found(q)
	require.Len(t, lines, 8)
	require.Empty(t, warnings)
	require.Equal(t, filters, ts.Damaged())
	ts.found(q)
	require.Equal(t, filters, ts.Damaged(), "each is counted once")
	problems := 0
	_, err := ts.Check(t.Context(), func(string) { problems++ })
	require.NoError(t, err)
	require.GreaterOrEqual(t, problems, filters)

	damage(format.KindLabels)
	ts.closeUnchecked()
	ts.open()
	lines, warnings = ts.found(q)
	require.Empty(t, lines)
	require.NotEmpty(t, warnings)
	require.ErrorContains(t, warnings[0], "skipped unreadable data of")
}
