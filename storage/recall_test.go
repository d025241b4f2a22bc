package storage

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/query"
)

// recallStore writes samples of the given numbers of targets and metrics in the slot before the last, and seals the
// slot.
func recallStore(t *testing.T, metrics, targets int) (*testStore, *scanCounter, int64) {
	counter := countScans(memory.New())
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: counter}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions, ts.opts.seams.spannedSeries = 1, math.MaxInt // Without spans, chunks are read.
	ts.open()
	t.Cleanup(ts.close)
	at := ts.now.UnixMilli() - 5*format.HourMS
	for m := range metrics {
		for i := range targets { // Each target exists for a minute, one after the other.
			from := at + int64(i)*60_000
			ts.write("ann", recallSeries(m, i), sample{from, float64(i)}, sample{from + 30_000, float64(m)})
		}
	}
	require.NoError(t, ts.SealAll(t.Context()))
	return ts, counter, at
}

func recallSeries(metric, target int) labels.Labels {
	return labels.FromStrings(labels.MetricName, fmt.Sprintf("m%03d", metric), "instance", fmt.Sprintf("i%d", target))
}

func ofTarget(i int, minT, maxT int64) query.Query {
	return query.Query{
		Tenant: "ann", MinT: minT, MaxT: maxT,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "instance", fmt.Sprintf("i%d", i))},
	}
}

// readBySeries returns the samples that a query finds, by series.
func readBySeries(t *testing.T, ts *testStore, q query.Query) map[string][]sample {
	t.Helper()
	found, err := ts.Select(counted(t.Context()), q)
	require.NoError(t, err)
	out := map[string][]sample{}
	for _, s := range found {
		if list := readSamples(t, s); len(list) > 0 {
			out[s.Labels.String()] = list
		}
	}
	return out
}

// TestChunksOfManyMetricsAreKept queries a target repeatedly. The target has a series in more metrics than are read at
// once. Only series that were written to since the previous query may be read again.
func TestChunksOfManyMetricsAreKept(t *testing.T) {
	t.Parallel()
	const metrics = 300
	ts, counter, at := recallStore(t, metrics, 3)
	q := ofTarget(1, at, at+format.HourMS)
	want := map[string][]sample{}
	for m := range metrics {
		want[recallSeries(m, 1).String()] = []sample{{at + 60_000, 1}, {at + 90_000, float64(m)}}
	}
	counter.rawScans()
	require.Equal(t, want, readBySeries(t, ts, q))
	require.Positive(t, counter.rawScans())
	require.Equal(t, want, readBySeries(t, ts, q))
	require.Zero(t, counter.rawScans(), "all are kept")
	for _, m := range []int{0, 7, 200, metrics - 1} {
		ts.write("ann", recallSeries(m, 1), sample{at + 100_000, 9})
		key := recallSeries(m, 1).String()
		want[key] = append(want[key], sample{at + 100_000, 9})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	counter.rawScans()
	require.Equal(t, want, readBySeries(t, ts, q))
	require.Positive(t, counter.rawScans())
	require.Equal(t, want, readBySeries(t, ts, q))
	require.Zero(t, counter.rawScans())

	ts.Store.opts.QueryBytes = 500 + ts.minQueryBytes(func() error {
		_, err := ts.Select(t.Context(), q)
		return err
	})
	ts.openQuerier()
	for m := range metrics {
		one := q
		one.Matchers = append(slices.Clone(q.Matchers), equal(labels.MetricName, fmt.Sprintf("m%03d", m)))
		require.Len(t, readBySeries(t, ts, one), 1)
	}
	counter.rawScans()
	found, err := ts.Select(t.Context(), q)
	require.NoError(t, err)
	require.ErrorIs(t, found[0].Samples(&chunk.Samples{}), meter.ErrQueryTooLarge, "chunks that are kept count, too")
	require.Zero(t, counter.rawScans())
}

// minQueryBytes returns the smallest Options.QueryBytes with which a read succeeds once its labels are cached.
func (ts *testStore) minQueryBytes(read func() error) int64 {
	ts.Store.opts.QueryBytes = DefaultOptions().QueryBytes
	ts.openQuerier()
	require.NoError(ts.t, read())
	return int64(sort.Search(1<<20, func(n int) bool {
		ts.Store.opts.QueryBytes = int64(n)
		ts.openQuerier()
		err := read()
		if err != nil {
			require.ErrorIs(ts.t, err, meter.ErrQueryTooLarge)
		}
		return err == nil
	}))
}

// TestChunksOfOtherTimesAreNotRead runs a query for one minute of a metric with short-lived series. Series that only
// have samples at other times must not count towards Options.QueryBytes.
func TestChunksOfOtherTimesAreNotRead(t *testing.T) {
	t.Parallel()
	const targets = 100 // more than the number whose chunks are cached
	ts, _, at := recallStore(t, 1, targets)
	all := query.Query{
		Tenant: "ann", Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "m000")},
	}
	all.MinT, all.MaxT = at, at+2*format.HourMS
	read := func(minT, maxT int64) (map[string][]sample, error) {
		q := all
		q.MinT, q.MaxT = minT, maxT
		found, err := ts.Select(t.Context(), q)
		if err != nil {
			return nil, err
		}
		require.Len(t, found, targets)
		got := map[string][]sample{}
		for _, s := range found {
			var samples chunk.Samples
			if err := s.Samples(&samples); err != nil {
				return nil, err
			}
			for i, at := range samples.T {
				got[s.Labels.String()] = append(got[s.Labels.String()], sample{at, samples.V[i]})
			}
		}
		return got, nil
	}
	labelled := ts.minQueryBytes(func() error {
		_, err := ts.Select(t.Context(), all)
		return err
	})
	whole := ts.minQueryBytes(func() error {
		_, err := read(all.MinT, all.MaxT)
		return err
	})
	ts.Store.opts.QueryBytes = labelled + (whole-labelled)/10
	ts.openQuerier()
	for i := range 2 * targets {
		if i == targets {
			ts.openRows(&settings{}) // The new rows have no cached pages.
			ts.openQuerier()
		}
		i %= targets
		from := at + int64(i)*60_000
		series := recallSeries(0, i).String()
		got, err := read(from, from+59_999)
		require.NoError(t, err, "of all bytes, a tenth is enough")
		require.Equal(t, map[string][]sample{series: {{from, float64(i)}, {from + 30_000, 0}}}, got)
		got, err = read(from+30_000, from+30_000)
		require.NoError(t, err)
		require.Equal(t, map[string][]sample{series: {{from + 30_000, 0}}}, got)
		got, err = read(from+31_000, from+59_999)
		require.NoError(t, err)
		require.Empty(t, got)
	}
}
