package paged

import (
	"context"
	"fmt"
	"iter"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/pebble"
)

// BenchmarkScan reads rows of a metric with 10,000 series as queries do: as rows, directly from the engine and through
// this package; and in pages.
func BenchmarkScan(b *testing.B) {
	series := seriesOf("up", 10_000)
	id := func(i int) engine.Value { return engine.Text(series[i].id) }
	chunk := engine.Int(format.KindChunk)
	lacking := format.RollupKey(bucketFirst(series[9].id, 16), 0)
	ranges := map[string]engine.Range{
		"raw, a slot of 1":    {Table: engine.Raw, From: engine.Key{chunk, engine.Int(startOf(1)), id(5000)}, To: engine.Key{chunk, engine.Int(startOf(1)), id(5000)}},
		"raw, a slot of 256":  {Table: engine.Raw, From: engine.Key{chunk, engine.Int(startOf(1)), id(5000)}, To: engine.Key{chunk, engine.Int(startOf(1)), id(5255)}},
		"raw, everything":     {Table: engine.Raw},
		"r5m, a series":       {Table: engine.R5m, From: format.RollupKey(series[5000].id, startOf(0)), To: format.RollupKey(series[5000].id, startOf(5))},
		"r5m, 256 series":     {Table: engine.R5m, From: format.RollupKey(series[5000].id, startOf(0)), To: format.RollupKey(series[5255].id, startOf(5))},
		"r5m, labels of all":  {Table: engine.R5m, From: engine.Key{engine.Int(0)}, To: engine.Key{engine.Int(0)}},
		"r5m, a lacking one":  {Table: engine.R5m, From: lacking, To: lacking},
		"raw, one is limited": {Table: engine.Raw, From: engine.Key{chunk}, Limit: 1},
	}
	for name, open := range map[string]func(testing.TB) engine.Engine{
		"memory": engines["memory"], "pebble": openDefault,
	} {
		for _, layout := range []string{"engine", "rows", "pages"} {
			eng := open(b)
			least := 0
			if layout != "pages" {
				least = math.MaxInt
			}
			r := New(eng, Options{Least: least})
			for _, table := range rowTables {
				require.NoError(b, r.Write(b.Context(), splitBatch(newSeriesBatch(table, series, 1, 2))))
			}
			scan := r.Scan
			if layout == "engine" {
				scan = eng.Scan
			}
			for about, rg := range ranges {
				rg.Partition = partitionOf("up")
				b.Run(fmt.Sprintf("%s/%s/%s", name, about, layout), func(b *testing.B) { benchmarkScan(b, scan, rg) })
			}
			require.NoError(b, eng.Close())
		}
	}
}

func openDefault(t testing.TB) engine.Engine {
	o := pebble.DefaultOptions()
	o.FS = pebble.NewCrashableFS()
	e, err := pebble.Open("data", o)
	require.NoError(t, err)
	return e
}

func benchmarkScan(
	b *testing.B, scan func(context.Context, engine.Range) iter.Seq2[engine.Row, error], rg engine.Range,
) {
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n = 0
		for _, err := range scan(context.Background(), rg) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
	}
	b.ReportMetric(float64(n), "rows")
}

// BenchmarkWrite writes new series as sealing does.
func BenchmarkWrite(b *testing.B) {
	series := seriesOf("up", 10_000)
	for layout, least := range map[string]int{"rows": math.MaxInt, "pages": 0} {
		b.Run(layout, func(b *testing.B) {
			b.ReportAllocs()
			eng := openDefault(b)
			r := New(eng, Options{Least: least})
			batches := splitBatch(newSeriesBatch(engine.Raw, series, 1))
			for b.Loop() {
				require.NoError(b, r.Write(b.Context(), batches))
			}
			require.NoError(b, eng.Close())
		})
	}
}
