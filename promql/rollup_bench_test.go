package promql

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// BenchmarkRollups queries 90 days of 50 counters and 50 gauges with one sample per minute. It queries windows that
// start and end at bucket edges, windows that are slightly longer, as with Grafana's $__rate_interval, and functions of
// moments. Raw samples are kept.
func BenchmarkRollups(b *testing.B) {
	const days = 90
	now := time.Date(2026, 5, 11, 0, 0, 0, 0, time.UTC)
	begin := now.Add(-days * 24 * time.Hour)
	clock := begin.Add(time.Hour)
	store := storagetest.Open(
		b, memory.New(), storagetest.Clock(func() time.Time { return clock }), storagetest.KeepForever,
	)
	clock = now
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		var counter, gauge chunk.Samples
		v := 0.0
		for k := range days * 24 * 60 {
			at := begin.Add(time.Duration(k)*time.Minute + time.Duration(i)*time.Second).UnixMilli()
			v += float64(rnd.IntN(50))
			counter.AppendFloat(at, begin.UnixMilli(), v)
			gauge.AppendFloat(at, 0, float64(rnd.IntN(1000))/10)
		}
		_, err := store.Import(b.Context(), "default", []storage.ImportedSeries{
			{Labels: labels.FromStrings("__name__", "bench_requests_total", "instance", fmt.Sprint(i)),
				Samples: &counter},
			{Labels: labels.FromStrings("__name__", "bench_temperature", "instance", fmt.Sprint(i)), Samples: &gauge},
		})
		require.NoError(b, err)
	}
	o := DefaultOptions()
	e := NewEngine(o)
	defer func() { require.NoError(b, e.Close()) }()
	o.StartTimestamps = true
	starts := NewEngine(o)
	defer func() { require.NoError(b, starts.Close()) }()
	for _, q := range []struct {
		text   string
		step   time.Duration
		engine *Engine
	}{
		{"sum(rate(bench_requests_total[1h]))", time.Hour, e},
		{"sum(rate(bench_requests_total[1h]))", time.Hour, starts},
		{"sum(rate(bench_requests_total[1h15s]))", time.Hour, e},
		{"increase(bench_requests_total[1d])", 24 * time.Hour, e},
		{"avg(avg_over_time(bench_temperature[1h15s]))", time.Hour, e},
		{"max(stddev_over_time(bench_temperature[6h]))", time.Hour, e},
	} {
		a := asked{text: q.text, start: begin.Add(48 * time.Hour).UnixMilli(), end: now.Add(-time.Hour).UnixMilli(),
			step: q.step}
		b.Run(fmt.Sprintf("%s/step=%s/starts=%t", q.text, q.step, q.engine == starts), func(b *testing.B) {
			before, queryable := cpuTime(), NewQueryable(store)
			for b.Loop() {
				benchAsk(b, q.engine, queryable, a)
			}
			b.ReportMetric(float64(cpuTime()-before)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}
