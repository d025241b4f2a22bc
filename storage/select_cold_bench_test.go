package storage

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/query"
)

// coldSeries is the number of series of the metric of BenchmarkSelectCold in one window.
const coldSeries = 1_000_000

// coldLabels returns the labels of series i. A host has 1,000 series, an instance 100, and a pod 10.
func coldLabels(i int) labels.Labels {
	return labels.FromStrings(labels.MetricName, "bench_requests_total", "cluster", "eu-central-1",
		"code", []string{"200", "404", "500", "503"}[i/100_000%4], "host", fmt.Sprintf("host-%d.example.com", i%1000),
		"instance", fmt.Sprintf("10.0.%d.%d:9100", i%10_000/256, i%10_000%256), "job", []string{"api", "web"}[i%2],
		"path", fmt.Sprintf("/v1/items/%d", i/4000%250),
		"pod", fmt.Sprintf("web-%d-%x", i%1000, uint32(i%100_000)*2654435761))
}

// fillCold writes the samples of n series and seals them. It returns the times of the first and the last sample.
func fillCold(b *testing.B, ts *testStore, n int) (minT, maxT int64) {
	base := ts.now.Truncate(2 * time.Hour).Add(-4 * time.Hour).UnixMilli()
	for from := 0; from < n; from += 50_000 {
		batch := ts.NewBatch("default")
		for i := from; i < from+50_000; i++ {
			s, err := batch.Define(fmt.Appendf(nil, "%d", i), coldLabels(i))
			require.NoError(b, err)
			for k := range int64(2) {
				require.NoError(b, batch.Float(s, base+(k+1)*15_000, 0, float64(i%100)))
			}
		}
		require.NoError(b, batch.Commit(b.Context()))
	}
	before := cpuTime()
	require.NoError(b, ts.SealAll(b.Context()))
	b.Logf("sealing took %.2f µs of CPU a series", float64((cpuTime()-before).Microseconds())/float64(n))
	return base, base + 2*time.Hour.Milliseconds()
}

// BenchmarkSelectCold finds the series of one host, and then reads their samples, in a newly opened store, for a metric
// with a million series in one window. Pebble's blocks are neither cached nor decompressed, but the files are probably
// in the system's cache. read-kB/op is the amount of data that the process has read from files, including indexes and
// the log.
func BenchmarkSelectCold(b *testing.B) {
	ts := openUncheckedStore(b)
	minT, maxT := fillCold(b, ts, coldSeries)
	equal := func(name, value string) *labels.Matcher { return labels.MustNewMatcher(labels.MatchEqual, name, value) }
	metric := equal(labels.MetricName, "bench_requests_total")
	for _, q := range []struct {
		name     string
		matchers []*labels.Matcher
	}{
		{"1000 of a host", []*labels.Matcher{metric, equal("host", "host-7.example.com")}},
		{"100 of an instance", []*labels.Matcher{metric, equal("instance", "10.0.0.7:9100")}},
		{"10 of a pod", []*labels.Matcher{metric, equal("pod", coldLabels(7).Get("pod"))}},
		{"none", []*labels.Matcher{metric, equal("host", "host-7")}},
	} {
		for _, list := range []bool{true, false} {
			b.Run(q.name+map[bool]string{true: "/list", false: "/samples"}[list], func(b *testing.B) {
				var cpu time.Duration
				var read int64
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					ts.closeUnchecked()
					ts.open()
					runtime.GC()
					fromRead, fromCPU := readBytes(b), cpuTime()
					b.StartTimer()
					benchSelect(
						b, ts, query.Query{Tenant: "default", Matchers: q.matchers, MinT: minT, MaxT: maxT}, list,
					)
					b.StopTimer()
					cpu += cpuTime() - fromCPU
					read += readBytes(b) - fromRead
					b.StartTimer()
				}
				b.ReportMetric(float64(cpu)/float64(b.N)/1e6, "cpu-ms/op")
				b.ReportMetric(float64(read)/float64(b.N)/1e3, "read-kB/op")
			})
		}
	}
}

// readBytes returns the number of bytes that the process has read by system calls, or 0 if the system doesn't count
// them.
func readBytes(b *testing.B) (n int64) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	require.NoError(b, err)
	return n
}
