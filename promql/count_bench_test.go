package promql

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// benchChurn writes n series of 20 samples each, which start one after the other. At any time, about one in 25 of them
// is active.
func benchChurn(b *testing.B, n int, sealed bool) (*storage.Store, int64) {
	const life, every = 20, int64(15_000)
	end := someDay + 10*hour + 30*minute
	store := storagetest.Open(
		b, storagetest.Pebble(b), storagetest.KeepForever, storagetest.FixedClock(time.UnixMilli(end)),
	)
	span := 128 * minute
	batch := store.NewBatch("default")
	for i := range n {
		ls := labels.FromStrings(model.MetricNameLabel, fmt.Sprintf("pod_metric_%d", i%10), "container",
			fmt.Sprintf("c-%d", i%7), "job", "pods",
			"namespace", fmt.Sprintf("ns-%d", i%50), "node", fmt.Sprintf("node-%d", i%200), "pod",
			fmt.Sprintf("pod-%08x", i))
		ref, err := batch.Define(fmt.Append(nil, i), ls)
		require.NoError(b, err)
		from := end - span + (span+life*every)*int64(i)/int64(n) - life*every
		for k := range int64(life) {
			if t := from + k*every; t <= end {
				require.NoError(b, batch.Float(ref, t, 0, float64(k)))
			}
		}
		if i%5000 == 4999 {
			require.NoError(b, batch.Commit(b.Context()))
			batch = store.NewBatch("default")
		}
	}
	require.NoError(b, batch.Commit(b.Context()))
	if sealed {
		require.NoError(b, store.SealAll(b.Context()))
	}
	return store, end
}

// BenchmarkCountOverChurn runs queries that count series, most of which have ended.
func BenchmarkCountOverChurn(b *testing.B) {
	for _, sealed := range []bool{false, true} {
		store, end := benchChurn(b, 512_000, sealed)
		q, e := NewQueryable(store), NewEngine(DefaultOptions())
		for _, text := range []string{`count({job="pods"})`, `count by (namespace) ({job="pods"})`,
			`group by (node) ({job="pods"})`, `sum({job="pods"})`, `{job="pods",namespace="ns-1"}`, `pod_metric_1`} {
			b.Run(fmt.Sprintf("sealed=%v/%s", sealed, text), func(b *testing.B) {
				a := asked{text: text, start: end}
				benchAsk(b, e, q, a)
				b.ReportAllocs()
				before := cpuTime()
				for b.Loop() {
					benchAsk(b, e, q, a)
				}
				b.ReportMetric(float64(cpuTime()-before)/float64(b.N)/1e6, "cpu-ms/op")
			})
		}
		require.NoError(b, e.Close())
	}
}
