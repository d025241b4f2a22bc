package storage

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/soak"
)

// exploded returns a store with n unsealed series of one metric, each with a different label value.
func exploded(t *testing.T, n int) *Store {
	o := DefaultOptions()
	o.Retention = 0
	s := openReady(t, memory.New(), o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	b := s.NewBatch("a")
	for i := range n {
		series, err := b.Define(nil, labels.FromStrings("__name__", "big", "id", fmt.Sprint("value", i), "job", "j"))
		require.NoError(t, err)
		require.NoError(t, b.Float(series, int64(1000+i), 0, 1))
		if b.Len() == 10_000 {
			require.NoError(t, b.Commit(t.Context()))
			b = s.NewBatch("a")
		}
	}
	require.NoError(t, b.Commit(t.Context()))
	return s
}

// allocated returns the number of bytes that f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestLimitBoundsTheWork checks that a limit bounds the allocations of a request, regardless of the number of matching
// unsealed series.
func TestLimitBoundsTheWork(t *testing.T) {
	const series, limit = 200_000, 10
	most := int64(512 << 10)
	if soak.UnderRace { // The race detector drops memory that regular expressions would reuse.
		most = 1 << 30
	}
	s := exploded(t, series)
	big := labels.MustNewMatcher(labels.MatchEqual, "__name__", "big")
	any := labels.MustNewMatcher(labels.MatchRegexp, "id", "value.*9")
	all := query.Query{Tenant: "a", MinT: 0, MaxT: 1 << 40, Limit: limit}
	for _, ms := range [][]*labels.Matcher{nil, {big}, {big, any}, {any}} {
		q := all
		q.Matchers = ms
		for about, f := range map[string]func() (int, error){
			"series": func() (int, error) {
				q := q
				q.LabelsOnly = true
				list, err := s.Select(t.Context(), q)
				return len(list), err
			},
			"sorted series": func() (int, error) {
				q := q
				q.LabelsOnly, q.Sorted = true, true
				list, err := s.Select(t.Context(), q)
				return len(list), err
			},
			"values": func() (int, error) {
				list, err := s.LabelValues(t.Context(), "id", q)
				return len(list), err
			},
		} {
			n := 0
			bytes := allocated(func() {
				var err error
				n, err = f()
				require.NoError(t, err)
			})
			require.Equal(t, limit, n, "%s of %v", about, ms)
			require.Less(t, bytes, most, "%s of %v", about, ms)
		}
		var names []string
		bytes := allocated(func() {
			var err error
			names, err = s.LabelNames(t.Context(), q)
			require.NoError(t, err)
		})
		require.Equal(t, []string{"__name__", "id", "job"}, names)
		require.Less(t, bytes, most, "names of %v: all series have the same", ms)
	}
}

// TestUnsealedSeriesAreCountedAndLeft checks that a loop over all unsealed series ends when its context is canceled,
// and that its allocations count towards the limit of a query's memory.
func TestUnsealedSeriesAreCountedAndLeft(t *testing.T) {
	s := exploded(t, 50_000)
	q := query.Query{Tenant: "a", MinT: 0, MaxT: 1 << 40}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for about, f := range map[string]func(context.Context) error{
		"series":      func(ctx context.Context) error { _, err := s.Select(ctx, q); return err },
		"names":       func(ctx context.Context) error { _, err := s.LabelNames(ctx, q); return err },
		"values":      func(ctx context.Context) error { _, err := s.LabelValues(ctx, "id", q); return err },
		"cardinality": func(ctx context.Context) error { _, err := s.Counts().Cardinality(ctx, "a", 10); return err },
		"counts": func(ctx context.Context) error {
			_, err := s.Counts().CountSeries(ctx, counts.SeriesQuery{Tenant: "a", Unsealed: true, Limit: 10})
			return err
		},
	} {
		bytes := allocated(func() { require.ErrorIs(t, f(gone), context.Canceled, about) })
		require.Less(t, bytes, int64(2<<20), about)
	}
	s.opts.QueryBytes = 1 << 20
	s.openQuerier()
	_, err := s.Select(t.Context(), q)
	require.ErrorIs(t, err, meter.ErrQueryTooLarge)
	_, err = s.LabelValues(t.Context(), "id", q)
	require.ErrorIs(t, err, meter.ErrQueryTooLarge)
}

// TestCardinalityOfAnExplodedMetric checks that the cardinality of a metric with very many unsealed series is
// available, in bounded memory.
func TestCardinalityOfAnExplodedMetric(t *testing.T) {
	const series = 100_000
	s := exploded(t, series)
	s.opts.QueryBytes = 1 << 20
	s.openQuerier()
	found, err := s.Counts().CountSeries(
		t.Context(), counts.SeriesQuery{Tenant: "a", Unsealed: true, Label: "job", Limit: 2},
	)
	require.NoError(t, err)
	require.Equal(t, counts.SeriesCounts{
		Series: series, AllMetrics: 1, AllLabels: 3, Metrics: []counts.Count{{Name: "big", Count: series}},
		Labels: []counts.Count{{Name: "id", Count: series}, {Name: "__name__", Count: 1}},
		Values: []counts.Count{{Name: "j", Count: series}},
	}, found)
	c, err := s.Counts().Cardinality(t.Context(), "a", 1)
	require.NoError(t, err)
	require.Equal(t, []counts.Count{{Name: "id", Count: series}}, c.ValuesOfLabels)
	require.Equal(t, []counts.Count{{Name: "__name__=big", Count: series}}, c.SeriesOfPairs)
	require.EqualValues(t, series+2, c.LabelPairs)
}
