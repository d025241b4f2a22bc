package storage

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// cpuSeconds returns the CPU time that this process has used.
func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// benchSeries returns n series of 50 metrics, with labels like a node exporter's, and their aliases.
func benchSeries(n int) (all []labels.Labels, aliases [][]byte) {
	for i := range n {
		ls := labels.FromStrings(labels.MetricName, fmt.Sprintf("node_metric_number_%d_total", i%50),
			"instance", fmt.Sprintf("host-%d:9100", i/50), "job", "node", "device", "nvme0n1p1",
			"datacenter", "north-1", "rack", fmt.Sprintf("r%d", i/500))
		all, aliases = append(all, ls), append(aliases, []byte(ls.String()))
	}
	return all, aliases
}

// BenchmarkWrite writes 20,000 series for a slot of two hours, and then seals it. Four senders send one sample per
// series and round, with 2,000 samples per request. It reports the CPU time per sample, including synced commits.
func BenchmarkWrite(b *testing.B) {
	const series, request, senders = 20_000, 2_000, 4
	all, aliases := benchSeries(series)
	for range b.N {
		ts := openTestStore(b, nil)
		base := ts.now.Truncate(2 * time.Hour).Add(-4 * time.Hour).UnixMilli()
		rounds := 480
		begin := cpuSeconds()
		var wg sync.WaitGroup
		for k := range senders {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for r := range rounds {
					for from := k * request; from < series; from += request * senders {
						batch := ts.NewBatch("default")
						for i := from; i < from+request; i++ {
							s, ok := batch.Lookup(aliases[i])
							if !ok {
								var err error
								if s, err = batch.Define(aliases[i], all[i]); err != nil {
									panic(err)
								}
							}
							v := float64(i%1000) + float64(r*(i%7))
							if err := batch.Float(s, base+int64(r+1)*15_000, 0, v); err != nil {
								panic(err)
							}
						}
						if err := batch.Commit(context.Background()); err != nil {
							panic(err)
						}
					}
				}
			}()
		}
		wg.Wait()
		written := cpuSeconds()
		million := float64(series*rounds) / 1e6
		b.ReportMetric((written-begin)/million, "write-cpu-s/Msample")
		b.ReportMetric(float64(ts.head.Bytes())/series, "head-B/series")
		require.NoError(b, ts.SealAll(b.Context()))
		b.ReportMetric((cpuSeconds()-written)/million, "seal-cpu-s/Msample")
		stats := ts.check()
		b.ReportMetric(float64(stats.Bytes)/float64(stats.Samples), "chunk-B/sample")
		b.ReportMetric(float64(stats.RollupBytes)/float64(stats.Samples), "rollup-B/sample")
	}
}

// BenchmarkSealShortLived seals series with 20 samples each: 400 metrics of 200 targets. It reports the CPU time per
// series, including rollups.
func BenchmarkSealShortLived(b *testing.B) {
	const metrics, targets, rounds = 400, 200, 20
	for range b.N {
		ts := openTestStore(b, func(o *Options) { o.seams.pageSeries = 0 })
		base := ts.now.Truncate(2 * time.Hour).Add(-4 * time.Hour).UnixMilli()
		for t := range targets {
			batch := ts.NewBatch("default")
			for m := range metrics {
				s, err := batch.Define(fmt.Appendf(nil, "%d/%d", m, t), labels.FromStrings(
					labels.MetricName, fmt.Sprintf("metric_%d", m), "instance", fmt.Sprintf("10.1.%d.%d:9100", t/50, t),
					"job", "node", "pod", fmt.Sprintf("api-%x", t*7919),
				))
				require.NoError(b, err)
				for r := range rounds {
					require.NoError(
						b, batch.Float(s, base+int64(r+1)*15_000+int64(t*71), 0, float64(m%7*r)+float64(t%11)/100),
					)
				}
			}
			require.NoError(b, batch.Commit(b.Context()))
		}
		begin := cpuSeconds()
		require.NoError(b, ts.SealAll(b.Context()))
		b.ReportMetric((cpuSeconds()-begin)*1e6/metrics/targets, "seal-cpu-µs/series")
	}
}
