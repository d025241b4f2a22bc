package storage

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
)

// BenchmarkImport imports days of 2,000 series with one sample per minute. One operation is one sample.
func BenchmarkImport(b *testing.B) {
	const series, perDay = 2000, 1440
	ts := openTestStore(b, func(o *Options) { o.Retention = 0 })
	defer b.StopTimer()
	from := ts.period.SlotOf(ts.now.AddDate(-10, 0, 0).UnixMilli())
	base := ts.period.DayOf(from)
	made := 0
	for day := 0; made < b.N; day++ {
		b.StopTimer()
		list := make([]ImportedSeries, series)
		for i := range list {
			var samples chunk.Samples
			r := rand.New(rand.NewPCG(uint64(i), uint64(day)))
			v := float64(day * perDay * 10)
			for k := range perDay {
				switch i % 4 {
				case 0: // never changes
				case 1:
					v += float64(r.IntN(20))
				case 2:
					v = float64(4096 * r.IntN(1000))
				default:
					v = r.Float64()
				}
				samples.AppendFloat(base+int64(day)*format.DayMS+int64(k)*60_000+int64(i/1000)*777+1, 0, v)
			}
			list[i] = ImportedSeries{labels.FromStrings(
				labels.MetricName, fmt.Sprintf("metric_%d", i%300), "instance", fmt.Sprintf("host-%d", i),
			), &samples}
		}
		b.StartTimer()
		stats, err := ts.Import(b.Context(), "default", list)
		require.NoError(b, err)
		require.Equal(b, series*perDay, stats.Samples)
		made += stats.Samples
	}
}
