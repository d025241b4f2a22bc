package promql

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"
)

// TestEmptyBucketsAreKept checks that empty buckets of native histograms are kept, unsealed and sealed: whether
// positive or negative buckets exist changes how a quantile within the zero bucket is interpolated. Readers get the
// spans that were sent.
func TestEmptyBucketsAreKept(t *testing.T) {
	sent := []*histogram.Histogram{
		{ // Only positive buckets, all of them empty.
			Schema: 1, ZeroThreshold: 0.001, ZeroCount: 10, Count: 10, Sum: 0.001,
			PositiveSpans: []histogram.Span{{Offset: 2, Length: 2}}, PositiveBuckets: []int64{0, 0},
		},
		{ // Gaps of two and more empty buckets, an empty span, and two adjacent spans.
			Schema: 1, ZeroThreshold: 0.001, ZeroCount: 10, Count: 16, Sum: 30,
			PositiveSpans: []histogram.Span{{Offset: -1, Length: 0}, {Offset: 3, Length: 6}, {Offset: 0, Length: 2},
				{Offset: 5, Length: 1}},
			PositiveBuckets: []int64{1, -1, 0, 2, -2, 0, 3, -3, 0},
			NegativeSpans:   []histogram.Span{{Offset: 0, Length: 3}}, NegativeBuckets: []int64{0, 0, 0},
		},
	}
	store := readyStore(t)
	b := store.NewBatch("default")
	for i, h := range sent {
		ref, err := b.Define(nil, labels.FromStrings(labels.MetricName, "h", "i", string(rune('0'+i)), "kind",
			"integers"))
		require.NoError(t, err)
		require.NoError(t, b.Histogram(ref, sampledFrom, 0, h.Copy(), nil))
		ref, err = b.Define(nil, labels.FromStrings(labels.MetricName, "h", "i", string(rune('0'+i)), "kind", "floats"))
		require.NoError(t, err)
		require.NoError(t, b.Histogram(ref, sampledFrom, 0, nil, h.ToFloat(nil)))
	}
	require.NoError(t, b.Commit(t.Context()))
	q := NewQueryable(store)
	r := newRivals(t, q, nil)
	check := func(about string) {
		querier, err := q.Querier(sampledFrom, sampledFrom)
		require.NoError(t, err)
		set, n := querier.Select(t.Context(), true, nil, name("h")), 0
		for ; set.Next(); n++ {
			h, it := sent[n/2], set.At().Iterator(nil)
			if n%2 == 0 {
				require.Equal(t, chunkenc.ValFloatHistogram, it.Next(), about)
				_, got := it.AtFloatHistogram(nil)
				require.Equal(t, h.ToFloat(nil), got, "%s: %s", about, set.At().Labels())
			} else {
				require.Equal(t, chunkenc.ValHistogram, it.Next(), about)
				_, got := it.AtHistogram(nil)
				require.Equal(t, h, got, "%s: %s", about, set.At().Labels())
			}
		}
		require.NoError(t, set.Err())
		require.Equal(t, 4, n, about)
		got, _ := r.answerOf(asked{text: "histogram_quantile(0.5, h{i='0'})",
			start: sampledFrom + time.Second.Milliseconds()})
		require.Len(t, got.rows, 2, about)
		for _, row := range got.rows {
			require.InDelta(t, 0.0005, row.Floats[0].F, 1e-9,
				"%s: half of the zero bucket, which begins at 0 as all buckets are positive", about)
		}
	}
	check("unsealed")
	require.NoError(t, store.SealAll(t.Context()))
	check("sealed")
}
