package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestHistogramsTooLargeForARowAreLeftToSamples computes buckets whose histograms don't fit into a row. Queries must
// read the samples instead.
func TestHistogramsTooLargeForARowAreLeftToSamples(t *testing.T) {
	var samples chunk.Samples
	const width = 5 * 60_000
	for i := range int64(24) {
		h := &histogram.FloatHistogram{
			Count: 1, PositiveSpans: []histogram.Span{{Length: 4000}}, PositiveBuckets: make([]float64, 4000),
		}
		for k := range h.PositiveBuckets {
			h.PositiveBuckets[k] = 1/float64(k+int(i)+3) + 0.1
			h.Count += h.PositiveBuckets[k]
		}
		for k := range int64(2) {
			samples.AppendHistogram(chunk.Histogram{T: i*width + 1 + k*60_000, Float: h})
		}
	}
	var b, back rollup.Buckets
	rollup.AppendEvery(&b, &samples, width)
	require.Greater(t, len(rollup.AppendChunk(nil, &b, width, 1)), engine.MaxValue/2, "else the test tests nothing")
	value := appendRollup(&b, rollup.FiveMinutes, 7)
	require.Less(t, len(value), 1000)
	require.NoError(t, rollup.Decode(value, rollup.AllColumns, &back))
	require.Len(t, back.End, 24)
	for i := range back.End {
		require.Equal(t, rollup.NotSimple, back.Flags[i])
		require.Zero(t, back.Count[i], "a count would promise floats")
	}
}

// TestRollupsOfLateSamplesBesideOthers seals late samples while other processes may write chunks. The chunks of a
// series must be listed once its late samples are stored, and its rollups must include all of them.
func TestRollupsOfLateSamplesBesideOthers(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.seams.still = true })
	ts.closeUnchecked()
	ts.memory = struct{ engine.Engine }{unclosed{memory.New()}} // without versions, as a shared engine
	ts.open()
	at, want := ts.now.Add(-8*time.Hour).Truncate(2*time.Hour), map[string]int{}
	for range 2 {
		for i := range 8 { // The order of a series' two chunks depends on their content.
			job := fmt.Sprint("job", i)
			ts.write("default", jobLabels(job), every(at.Add(time.Minute), time.Minute, 60)...)
			want[job] += 60
		}
		require.NoError(t, ts.SealAll(t.Context()))
		at = at.Add(time.Hour)
	}
	for _, res := range rollup.Resolutions {
		require.Equal(t, want, ts.bucketsOf("default", res), res)
	}
}
