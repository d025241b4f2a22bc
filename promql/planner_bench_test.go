package promql

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// benchStore contains 1,000 counters, 1,000 gauges and 100 native histograms, with sealed samples of 6 hours every 15
// s.
func benchStore(b *testing.B) *storage.Store {
	store := storagetest.Open(b, memory.New(), storagetest.KeepForever)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		batch := store.NewBatch("default")
		ls := labels.FromStrings(model.MetricNameLabel, "bench_requests_total", "instance",
			fmt.Sprintf("host-%d:9100", i/10),
			"job", []string{"api", "web", "db", "cache"}[i%4], "path", fmt.Sprintf("/v1/items/%d", i%10))
		counter, err := batch.Define(nil, ls)
		require.NoError(b, err)
		gauge, err := batch.Define(nil, labels.NewBuilder(ls).Set(model.MetricNameLabel, "bench_temperature").Labels())
		require.NoError(b, err)
		v := 0.0
		for t := benchFrom + 1 + int64(i%15_000); t <= benchTo; t += 15_000 {
			v += float64(rnd.IntN(20))
			require.NoError(b, batch.Float(counter, t, 0, v))
			require.NoError(b, batch.Float(gauge, t, 0, float64(rnd.IntN(400))/10))
		}
		require.NoError(b, batch.Commit(b.Context()))
	}
	for i := range 100 {
		batch := store.NewBatch("default")
		series, err := batch.Define(nil, labels.FromStrings(model.MetricNameLabel, "bench_latency", "instance",
			fmt.Sprint(i)))
		require.NoError(b, err)
		for t, n := benchFrom+1+int64(i%15_000), int64(0); t <= benchTo; t, n = t+15_000, n+1 {
			require.NoError(b, batch.Histogram(series, t, 0, tsdbutil.GenerateTestHistogram(n), nil))
		}
		require.NoError(b, batch.Commit(b.Context()))
	}
	require.NoError(b, store.SealAll(b.Context()))
	return store
}

const (
	benchFrom int64 = 36_000_000
	benchTo         = benchFrom + 6*3_600_000
)

// BenchmarkPlanner runs queries of dashboards, with and without the planner. Compare the CPU time instead of the
// elapsed time, because the planner uses all processors.
func BenchmarkPlanner(b *testing.B) {
	q := NewQueryable(benchStore(b))
	for _, text := range []string{
		"sum by (job) (rate(bench_requests_total[5m]))",
		"rate(bench_requests_total[5m])",
		"bench_temperature",
		"sum by (instance) (bench_temperature)",
		"max_over_time(bench_temperature[5m])",
		"quantile by (job) (0.9, bench_temperature)",
		"topk(5, rate(bench_requests_total[5m]))",
		"histogram_quantile(0.9, sum(rate(bench_latency[5m])))",
		"histogram_count(sum(increase(bench_latency[5m])))",
	} {
		for _, planner := range []bool{false, true} {
			o := DefaultOptions()
			o.NoPlanner = !planner
			e := NewEngine(o)
			for _, step := range []time.Duration{15 * time.Second, time.Minute, 6 * time.Hour} {
				a := asked{text: text, start: benchFrom + 3_600_000, end: benchTo, step: step}
				if step > time.Hour {
					a.start, a.end = benchTo, 0
				}
				b.Run(fmt.Sprintf("%s/step=%s/planner=%v", text, step, planner), func(b *testing.B) {
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
}

func benchAsk(b *testing.B, e *Engine, q *Queryable, a asked) {
	query, err := a.query(b.Context(), e, q)
	require.NoError(b, err)
	defer query.Close()
	require.NoError(b, query.Exec(b.Context()).Err)
}

// cpuTime returns the CPU time used by the process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
