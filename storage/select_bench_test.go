package storage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
)

// benchWindow writes one day of n series of some metrics, with a sample every 15 s. It returns the first timestamp - 1.
func benchWindow(b *testing.B, ts *testStore, metrics, n int) int64 {
	p := ts.period
	day := p.RawWindowAt(ts.now.UnixMilli()) - 1
	start := day * p.All()[0].RawWindowMS
	w := newRowFixture(b, ts.Store, "default")
	series := make([]labels.Labels, n)
	values := make([]float64, n)
	for i := range series {
		series[i] = labels.FromStrings(labels.MetricName, fmt.Sprintf("bench_requests_%d_total", i%metrics),
			"instance", fmt.Sprintf("host-%d.example.com:9100", i/metrics%1000), "job", []string{"api", "web"}[i%2],
			"path", fmt.Sprintf("/v1/items/%d", i/metrics/1000), "region", "eu-central-1", "unique", fmt.Sprint(i))
	}
	r := rand.New(rand.NewPCG(1, 2))
	var samples chunk.Samples
	for slot := p.SlotOf(start + 1); slot <= p.SlotOf(start+p.All()[0].RawWindowMS); slot++ {
		for i, ls := range series {
			samples.Reset()
			for t := p.SlotStart(slot) + 1 + int64(i%15_000); t <= p.SlotEnd(slot); t += 15_000 {
				if r.IntN(4) > 0 {
					values[i] += float64(r.IntN(20))
				}
				samples.AppendFloat(t, 0, values[i])
			}
			w.chunk(slot, ls, &samples)
		}
		w.mark(slot)
	}
	return start
}

// BenchmarkSelectSealed reads sealed series of one day. An instant query looks back 5 minutes.
func BenchmarkSelectSealed(b *testing.B) {
	const n = 20_000
	equal := func(name, value string) *labels.Matcher {
		return labels.MustNewMatcher(labels.MatchEqual, name, value)
	}
	for _, data := range []struct {
		metrics int
		queries map[string][]*labels.Matcher
	}{
		{1, map[string][]*labels.Matcher{
			"all of 20000":   {equal(labels.MetricName, "bench_requests_0_total")},
			"100 of 20000":   {equal(labels.MetricName, "bench_requests_0_total"), labels.MustNewMatcher(labels.MatchRegexp, "instance", "host-(1|2|3|4|5)\\.example.*")},
			"1 of 20000":     {equal(labels.MetricName, "bench_requests_0_total"), equal("unique", "777")},
			"half by regexp": {equal(labels.MetricName, "bench_requests_0_total"), labels.MustNewMatcher(labels.MatchRegexp, "unique", ".*[02468]")},
		}},
		{500, map[string][]*labels.Matcher{
			"1 of each of 500 metrics": {equal("instance", "host-3.example.com:9100")},
			"all of 500 metrics":       {labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, "bench_.*")},
		}},
	} {
		ts := openUncheckedStore(b)
		start := benchWindow(b, ts, data.metrics, n)
		ts.closeUnchecked()
		ts.open()
		for name, ms := range data.queries {
			for _, span := range []time.Duration{0, 5 * time.Minute, 2 * time.Hour, 24 * time.Hour} {
				q := query.Query{
					Tenant: "default", Matchers: ms, MinT: start + 10*time.Hour.Milliseconds(),
					MaxT: start + 10*time.Hour.Milliseconds() + span.Milliseconds(),
				}
				if span == 24*time.Hour {
					q.MinT, q.MaxT = start+1, start+span.Milliseconds()
				}
				label := span.String()
				if span == 0 {
					q.MaxT, label = start+24*time.Hour.Milliseconds(), "list"
				}
				b.Run(name+"/"+label, func(b *testing.B) {
					benchSelect(b, ts, q, span == 0) // The caches are warm then.
					b.ReportAllocs()
					before := cpuTime()
					for b.Loop() {
						benchSelect(b, ts, q, span == 0)
					}
					b.ReportMetric(float64(cpuTime()-before)/float64(b.N)/1e6, "cpu-ms/op")
				})
			}
		}
	}
}

// BenchmarkSelectShortLived reads series of 20 samples each that are sealed as rows or in pages.
func BenchmarkSelectShortLived(b *testing.B) {
	const n, rounds = 20_000, 20
	equal := func(name, value string) *labels.Matcher {
		return labels.MustNewMatcher(labels.MatchEqual, name, value)
	}
	metric := equal(labels.MetricName, "bench_requests_0_total")
	for form, least := range map[string]int{"rows": math.MaxInt, "pages": 0} {
		ts := openUncheckedStore(b)
		ts.opts.seams.pageSeries = least
		ts.closeUnchecked()
		ts.open()
		base := ts.now.Truncate(2 * time.Hour).Add(-4 * time.Hour).UnixMilli()
		batch := ts.NewBatch("default")
		for i := range n {
			s, err := batch.Define(fmt.Appendf(nil, "%d", i), labels.FromStrings(
				labels.MetricName, "bench_requests_0_total", "instance", fmt.Sprintf("host-%d.example.com:9100", i%200),
				"path", fmt.Sprintf("/v1/items/%d", i/200), "unique", fmt.Sprint(i),
			))
			require.NoError(b, err)
			for r := range rounds {
				require.NoError(b, batch.Float(s, base+int64(r+1)*15_000+int64(i%15_000), 0, float64(r*(i%100))))
			}
		}
		require.NoError(b, batch.Commit(b.Context()))
		require.NoError(b, ts.SealAll(b.Context()))
		ts.closeUnchecked()
		ts.open()
		for name, ms := range map[string][]*labels.Matcher{
			"all of 20000": {metric}, "100 of 20000": {metric, equal("instance", "host-7.example.com:9100")},
			"1 of 20000": {metric, equal("unique", "777")},
		} {
			b.Run(form+"/"+name, func(b *testing.B) {
				q := query.Query{Tenant: "default", Matchers: ms, MinT: base, MaxT: base + 2*time.Hour.Milliseconds()}
				benchSelect(b, ts, q, false) // The caches are warm then.
				b.ReportAllocs()
				before := cpuTime()
				for b.Loop() {
					benchSelect(b, ts, q, false)
				}
				b.ReportMetric(float64(cpuTime()-before)/float64(b.N)/1e6, "cpu-ms/op")
			})
		}
	}
}

// cpuTime returns the process' CPU time, which is more exact than wall-clock time on a busy machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchSelect(b *testing.B, ts *testStore, q query.Query, list bool) {
	found, err := ts.Select(b.Context(), q)
	require.NoError(b, err)
	var samples chunk.Samples
	total := 0
	for _, s := range found {
		if list {
			break
		}
		samples.Reset()
		if err := s.Samples(&samples); err != nil {
			b.Fatal(err)
		}
		total += samples.Len()
	}
	b.ReportMetric(float64(len(found)), "series")
	b.ReportMetric(float64(total), "samples")
}
