package storage

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
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
			series, err := b.Define(nil, labels.FromStrings("__name__", fmt.Sprint("m", i%3), "i", fmt.Sprint(i), "of", tenant))
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
