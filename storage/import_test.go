package storage

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// TestImport imports a week of series that cross slots and days, twice, the second time in other pieces.
func TestImport(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 4 })
	base := ts.now.AddDate(0, 0, -7).UnixMilli()
	want := map[string][]sample{}
	series := func(i, from, to int) ImportedSeries {
		ls := labels.FromStrings(labels.MetricName, fmt.Sprintf("metric_%d", i%3), "instance", fmt.Sprintf("host-%d", i))
		var samples chunk.Samples
		for j := from; j < to; j++ {
			samples.AppendFloat(base+int64(j)*300_000, 0, float64(i*j))
		}
		return ImportedSeries{Labels: ls, Samples: &samples}
	}
	var list []ImportedSeries
	for i := range 20 {
		list = append(list, series(i, 0, 2000))
		for j, at := range list[i].Samples.T {
			want[list[i].Labels.String()] = append(want[list[i].Labels.String()], sample{at, list[i].Samples.V[j]})
		}
	}
	stats, err := ts.Import(t.Context(), "default", list)
	require.NoError(t, err)
	require.Equal(t, 20*2000, stats.Samples)
	require.Equal(t, want, ts.all("default"))
	chunks := ts.check()
	require.Equal(t, 20*2000, chunks.Samples)
	require.Zero(t, ts.head.series.Load(), "the head must not grow")
	for from := 0; from < 2000; from += 700 {
		var list []ImportedSeries
		for i := range 20 {
			list = append(list, series(i, from, min(from+700, 2000)))
		}
		stats, err := ts.Import(t.Context(), "default", list)
		require.NoError(t, err)
		require.Zero(t, stats.Samples)
	}
	require.Equal(t, chunks.Chunks, ts.check().Chunks)
	require.Equal(t, want, ts.all("default"))
}
