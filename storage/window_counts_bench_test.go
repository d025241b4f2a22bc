package storage

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// countedSeries are how many series the window of BenchmarkCountSeriesCold has.
const countedSeries = 200_000

// BenchmarkCountSeriesCold asks for counts in a store that was just opened, of which the windows were counted or not;
// and counts them. peak-MB are those of the heap that the window's counting takes at most, as far as it is seen between
// pieces.
func BenchmarkCountSeriesCold(b *testing.B) {
	ts := openUncheckedStore(b)
	fillCold(b, ts, countedSeries)
	ts.now = ts.now.Add(2 * day)
	cold := func(b *testing.B, ask func()) {
		var cpu time.Duration
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			ts.closeUnchecked()
			ts.open()
			runtime.GC()
			from := cpuTime()
			b.StartTimer()
			ask()
			b.StopTimer()
			cpu += cpuTime() - from
			b.StartTimer()
		}
		b.ReportMetric(float64(cpu)/float64(b.N)/1e6, "cpu-ms/op")
	}
	asked := counts.SeriesQuery{Tenant: "default", Window: ts.period.RawWindowAt(ts.now.Add(-2 * day).UnixMilli()), Label: "instance", Limit: 50}
	count := func() {
		got, err := ts.Counts().CountSeries(b.Context(), asked)
		require.NoError(b, err)
		require.EqualValues(b, countedSeries, got.Series)
	}
	churn := func() {
		got, _, err := ts.Counts().Churn(b.Context(), "default", 14)
		require.NoError(b, err)
		require.Equal(b, countedSeries, got[0].Series)
	}
	b.Run("labels/counts", func(b *testing.B) { cold(b, count) })
	b.Run("labels/churn", func(b *testing.B) { cold(b, churn) })
	b.Run("counting", func(b *testing.B) {
		var now, before runtime.MemStats
		most := uint64(0)
		cold(b, func() {
			b.StopTimer()
			require.NoError(b, ts.Store.eng.Drop(b.Context(), engine.Catalog, format.CountsPartition(asked.Window, "default")))
			list, err := oldestFirst(ts.Counts().Uncounted(b.Context(), func() {}))
			require.NoError(b, err)
			require.Len(b, list, 1)
			runtime.ReadMemStats(&before)
			b.StartTimer()
			_, err = ts.Counts().CountWindow(b.Context(), list[0], func() {
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
			})
			require.NoError(b, err)
		})
		b.ReportMetric(float64(most)/1e6, "peak-MB")
	})
	b.Run("stored/counts", func(b *testing.B) { cold(b, count) })
	b.Run("stored/churn", func(b *testing.B) { cold(b, churn) })
}
