package promql

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// largeStore returns a store with n series of a metric, each with one sample, and the time of the samples.
func largeStore(b *testing.B, n int, sealed bool, change ...func(*storage.Options)) (*storage.Store, int64) {
	end := someDay + 10*hour + 30*minute
	store := storagetest.Open(b, storagetest.Pebble(b), append(change, storagetest.KeepForever,
		storagetest.FixedClock(time.UnixMilli(end)))...)
	batch := store.NewBatch("default")
	for i := range n {
		ref, err := batch.Define(fmt.Append(nil, i), labels.FromStrings(model.MetricNameLabel, "big", "host",
			fmt.Sprintf("host-%d.example.com", i%500),
			"id", fmt.Sprintf("%08x-%012d", uint32(i)*2654435761, i), "path", fmt.Sprint("/api/v1/items/", i%1000)))
		require.NoError(b, err)
		require.NoError(b, batch.Float(ref, end-minute, 0, float64(i)))
		if i%5000 == 4999 {
			require.NoError(b, batch.Commit(b.Context()))
			batch = store.NewBatch("default")
		}
	}
	if sealed {
		require.NoError(b, store.SealAll(b.Context()))
	}
	return store, end
}

// BenchmarkLargeRead reads all sealed series of a large metric, each with one sample, as remote read and the evaluator
// do.
func BenchmarkLargeRead(b *testing.B) {
	const n = 240_000
	store, end := largeStore(b, n, true)
	q := NewQueryable(store)
	matcher := labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, "big")
	for _, sorted := range []bool{true, false} {
		b.Run(fmt.Sprint("sorted=", sorted), func(b *testing.B) {
			b.ReportAllocs()
			before := cpuTime()
			for b.Loop() {
				from, err := q.Querier(end-10*minute, end)
				require.NoError(b, err)
				set, read := from.Select(b.Context(), sorted, nil, matcher), 0
				var it chunkenc.Iterator
				for set.Next() {
					for it = set.At().Iterator(it); it.Next() != chunkenc.ValNone; {
						read++
					}
				}
				require.NoError(b, set.Err())
				require.Equal(b, n, read)
			}
			b.ReportMetric(float64(cpuTime()-before)/float64(b.N)/n/1e3, "cpu-µs/series")
		})
	}
}

// BenchmarkLargeQuery queries all series of a large metric: from the head, sealed with the index in the cache, and
// sealed with the index loaded each time.
func BenchmarkLargeQuery(b *testing.B) {
	const n = 240_000
	for _, from := range []struct {
		name   string
		sealed bool
		cache  int64
	}{{"head", false, 1 << 30}, {"sealed", true, 1 << 30}, {"cold", true, 1 << 20}} {
		store, end := largeStore(b, n, from.sealed, func(o *storage.Options) { o.CacheBytes = from.cache })
		q, e := NewQueryable(store), NewEngine(DefaultOptions())
		for _, a := range []asked{{text: `count by (id) (big)`, start: end}, {text: `big`, start: end},
			{text: `big`, start: end - 4*minute, end: end, step: time.Minute}} {
			b.Run(fmt.Sprintf("%s/%s/range=%v", from.name, a.text, a.step > 0), func(b *testing.B) {
				benchAsk(b, e, q, a)
				b.ReportAllocs()
				before := cpuTime()
				for b.Loop() {
					benchAsk(b, e, q, a)
				}
				b.ReportMetric(float64(cpuTime()-before)/float64(b.N)/n/1e3, "cpu-µs/series")
			})
		}
		require.NoError(b, e.Close())
	}
}
