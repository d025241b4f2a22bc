package storage

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/head"
)

func TestCardinality(t *testing.T) {
	o := DefaultOptions()
	o.Retention = 0
	s := openReady(t, memory.New(), o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for _, tenant := range []string{"a", "b"} {
		b := s.NewBatch(tenant)
		for i := range 6 {
			series, err := b.Define(
				nil, labels.FromStrings("__name__", fmt.Sprint("m", i%3), "i", fmt.Sprint(i), "of", tenant),
			)
			require.NoError(t, err)
			require.NoError(t, b.Float(series, int64(1000+i), 0, 1))
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	c, err := s.Counts().Cardinality(t.Context(), "a", 2)
	require.NoError(t, err)
	require.Equal(t, counts.Cardinality{
		Stats: head.Stats{Series: 6, Chunks: 6, MinT: 1000, MaxT: 1005}, LabelPairs: 3 + 6 + 1,
		SeriesOfMetrics: []counts.Count{{Name: "m0", Count: 2}, {Name: "m1", Count: 2}},
		ValuesOfLabels:  []counts.Count{{Name: "i", Count: 6}, {Name: "__name__", Count: 3}},
		BytesOfLabels:   []counts.Count{{Name: "__name__", Count: 6 * 12}, {Name: "of", Count: 6 * 5}},
		SeriesOfPairs:   []counts.Count{{Name: "of=a", Count: 6}, {Name: "__name__=m0", Count: 2}},
	}, c)
	c, err = s.Counts().Cardinality(t.Context(), "nobody", 2)
	require.NoError(t, err)
	require.Equal(t, counts.Cardinality{}, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Counts().Cardinality(ctx, "a", 2)
	require.ErrorIs(t, err, context.Canceled)
}

// TestCountsOfManyUnsealedSeriesAreReused checks that two requests share the counts of many unsealed series. The counts
// are computed again once some time has passed or the number of series has grown by some percent.
func TestCountsOfManyUnsealedSeriesAreReused(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 1 })
	written := 0
	write := func(n int) {
		b := ts.NewBatch("ann")
		for range n {
			series, err := b.Define(nil, labels.FromStrings(labels.MetricName, "m", "i", fmt.Sprint(written)))
			require.NoError(t, err)
			require.NoError(t, b.Float(series, ts.now.UnixMilli(), 0, 1))
			written++
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	counted := func() int64 {
		c, err := ts.Counts().Cardinality(t.Context(), "ann", 5)
		require.NoError(t, err)
		s, err := ts.Counts().CountSeries(t.Context(), counts.SeriesQuery{Tenant: "ann", Unsealed: true, Limit: 5})
		require.NoError(t, err)
		require.Equal(t, c.Series, s.Series)
		require.EqualValues(t, s.Series, s.Metrics[0].Count)
		return c.Series
	}
	write(100)
	require.EqualValues(t, 100, counted())
	write(1)
	require.EqualValues(t, 101, counted(), "few series are counted each time")

	write(12_000 - written)
	before := ts.cache.Tally().Misses
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c, err := ts.Counts().Cardinality(t.Context(), "ann", 5)
			assert.NoError(t, err)
			assert.EqualValues(t, 12_000, c.Series)
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, ts.cache.Tally().Misses-before)
	require.EqualValues(t, 12_000, counted())
	write(1)
	require.EqualValues(t, 12_000, counted())
	ts.now = ts.now.Add(30 * time.Second)
	require.EqualValues(t, 12_001, counted())
	write(400)
	require.EqualValues(t, 12_401, counted())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := ts.Counts().Cardinality(ended, "ann", 6)
	require.ErrorIs(t, err, context.Canceled)
}
