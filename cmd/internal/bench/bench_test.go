package bench

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
)

func smallWorkload() Workload {
	return Workload{
		Series: 1300, Steps: 20, IntervalMs: 15000, StartMs: 1_700_000_000_000, Histograms: 6, Odd: 3, ExtraLabels: 2,
	}
}

func newGenerator(t *testing.T, w Workload) *Generator {
	g, err := NewGenerator(w)
	require.NoError(t, err)
	return g
}

func TestEverySampleArrives(t *testing.T) {
	churning, late := smallWorkload(), smallWorkload()
	churning.ChurnPerHour = 20
	late.LatePercent, late.LateSteps = 10, 7
	for name, w := range map[string]Workload{"plain": smallWorkload(), "churn": churning, "late": late} {
		for _, protocol := range []Protocol{V1, V2} {
			t.Run(fmt.Sprintf("%s %s", name, protocol), func(t *testing.T) {
				m, server := newMemory(t)
				g, acks := newGenerator(t, w), NewAcks(w)
				report, err := Run(t.Context(), g, acks, Options{
					URL: server.URL + "/api/v1/write", Protocol: protocol, Senders: 3, RequestSamples: 777,
					Tenant: "mine",
				})
				require.NoError(t, err)
				require.Equal(t, w.Samples(), report.Samples)
				require.Equal(t, int64(m.requests), report.Requests)
				require.Positive(t, report.AckP50)
				require.GreaterOrEqual(t, report.AckMax, report.AckP99)
				require.Equal(t, map[string]bool{"mine": true}, m.tenants)
				found, err := Verify(t.Context(), g, acks, Reader{URL: server.URL + "/api/v1/read"})
				require.NoError(t, err)
				require.True(t, found.IsOK(), found.String())
				require.Equal(t, w.Samples(), found.Acknowledged)
				require.Equal(t, w.Samples(), found.Seen)
				if protocol == V2 {
					require.Equal(t, writev2.Metadata_METRIC_TYPE_COUNTER, m.types["node_cpu_seconds_total"])
				}
				if name == "churn" {
					require.Greater(t, len(m.series), w.Series)
				} else {
					require.Len(t, m.series, w.Series)
				}
			})
		}
	}
}

func TestFailedRequestsAreSentAgain(t *testing.T) {
	m, server := newMemory(t)
	m.fail = func(request int) (int, bool) {
		switch request % 5 {
		case 1:
			return http.StatusServiceUnavailable, false
		case 2:
			return http.StatusTooManyRequests, true // The samples are stored, but the response reports an error.
		}
		return 0, true
	}
	w := smallWorkload()
	g, acks := newGenerator(t, w), NewAcks(w)
	report, err := Run(t.Context(), g, acks, Options{URL: server.URL + "/api/v1/write", Senders: 2})
	require.NoError(t, err)
	require.Positive(t, report.Errors)
	require.Equal(t, w.Samples(), report.Samples)
	found, err := Verify(t.Context(), g, acks, Reader{URL: server.URL + "/api/v1/read"})
	require.NoError(t, err)
	require.True(t, found.IsOK(), found.String())
}

func TestARefusalEndsTheRun(t *testing.T) {
	m, server := newMemory(t)
	m.fail = func(request int) (int, bool) {
		if request > 3 {
			return http.StatusBadRequest, false
		}
		return 0, true
	}
	w := smallWorkload()
	acks := NewAcks(w)
	report, err := Run(t.Context(), newGenerator(t, w), acks, Options{URL: server.URL + "/api/v1/write", Senders: 1})
	require.ErrorIs(t, err, errRefused)
	require.ErrorContains(t, err, "as the test wants")
	require.Equal(t, int64(3*2000), report.Samples)
}

func TestVerifyFindsWhatIsWrong(t *testing.T) {
	key := func(g *Generator, i int) string { return g.Labels(i, 0).String() }
	for name, c := range map[string]struct {
		damage         func(m *memory, g *Generator)
		missing, wrong int64
		says           string
	}{
		"nothing": {func(*memory, *Generator) {}, 0, 0, ""},
		"a sample is gone": {func(m *memory, g *Generator) {
			s := m.series[key(g, 20)]
			s.Samples = s.Samples[1:]
		}, 1, 0, "missing"},
		"a series is gone": {func(m *memory, g *Generator) { delete(m.series, key(g, 1200)) }, 20, 0, "missing"},
		"another value": {func(m *memory, g *Generator) {
			s := m.series[key(g, 30)]
			s.Samples[2].Value = math.Nextafter(s.Samples[2].Value, math.Inf(1))
		}, 0, 1, "wrong"},
		"another histogram": {func(m *memory, g *Generator) { m.series[key(g, 0)].Histograms[5].PositiveDeltas[0]++ }, 0, 1, "wrong"},
		"another time":      {func(m *memory, g *Generator) { m.series[key(g, 30)].Samples[2].Timestamp++ }, 1, 1, "never sent"},
		"another series": {func(m *memory, g *Generator) {
			s := m.seriesOf(labels.FromStrings("__name__", "stranger", "instance", instanceLabel(0, 0)))
			s.Samples = m.series[key(g, 30)].Samples
		}, 0, 1, "never sent"},
	} {
		t.Run(name, func(t *testing.T) {
			m, server := newMemory(t)
			w := smallWorkload()
			g, acks := newGenerator(t, w), NewAcks(w)
			_, err := Run(t.Context(), g, acks, Options{URL: server.URL + "/api/v1/write"})
			require.NoError(t, err)
			c.damage(m, g)
			found, err := Verify(t.Context(), g, acks, Reader{URL: server.URL + "/api/v1/read"})
			require.NoError(t, err)
			require.Equal(t, [2]int64{c.missing, c.wrong}, [2]int64{found.Missing, found.Wrong}, found.String())
			require.Contains(t, found.String(), c.says)
		})
	}
}

func TestAckLogReadsBack(t *testing.T) {
	w := smallWorkload()
	acks := NewAcks(w)
	for i := range w.Series {
		for k := range w.Steps {
			if i < 700 || mixHash(3, uint64(i*w.Steps+k))%3 > 0 {
				acks.markAcked([]sampleRef{{i, k}})
			}
		}
	}
	var log bytes.Buffer
	require.NoError(t, acks.Write(&log))
	back, err := ReadAcks(&log)
	require.NoError(t, err)
	require.Equal(t, acks.w, back.w)
	require.Equal(t, acks.count, back.count)
	for i := range w.Series {
		for k := range w.Steps {
			require.Equal(t, acks.isAcked(i, k), back.isAcked(i, k))
		}
	}
	for _, bad := range []string{"", "{}", `{"series":1,"steps":1,"interval_ms":1}{"from_series":0,"to_series":1}`,
		`{"series":1,"steps":1,"interval_ms":1}{"to_series":0,"steps":[[0,1]]}`} {
		_, err := ReadAcks(bytes.NewBufferString(bad))
		require.ErrorIs(t, err, errAckLog, bad)
	}
}

func TestLateSamplesComeOnceAndLate(t *testing.T) {
	w := smallWorkload()
	w.LatePercent, w.LateSteps = 25, 5
	for _, most := range []int{1, 7, 100000} {
		seen, late := NewAcks(w), 0
		for number := range 3 {
			s := newShard(w, number, 3)
			newest := map[int]int{}
			for refs := s.next(nil, most, false); len(refs) > 0; refs = s.next(nil, most, false) {
				require.LessOrEqual(t, len(refs), most)
				for _, r := range refs {
					require.False(t, seen.isAcked(r.series, r.step), "series %d step %d twice", r.series, r.step)
					seen.markOne(r)
					if r.step < newest[r.series] {
						late++
					}
					newest[r.series] = max(newest[r.series], r.step)
				}
			}
		}
		require.Equal(t, w.Samples(), seen.count)
		require.InDelta(t, float64(w.Samples())/4, float64(late), float64(w.Samples())/20)
	}
}

func TestHistogramsAreValidAndCountersGrow(t *testing.T) {
	w := smallWorkload()
	w.Steps = 5000
	g := newGenerator(t, w)
	for i := range w.Histograms {
		for k := range w.Steps {
			if integer, float := g.Histogram(i, k); integer != nil {
				require.NoError(t, integer.Validate())
			} else {
				require.NoError(t, float.Validate())
			}
		}
	}
	resets := 0
	for i := w.Histograms + w.Odd; i < seriesPerTarget; i += 7 {
		if kind := g.shape(i).kind; kind != kindCounter && kind != kindSeconds && kind != kindIdle {
			continue
		}
		for k := 1; k < w.Steps; k++ {
			if g.Value(i, k) < g.Value(i, k-1) {
				resets++
			}
		}
	}
	require.Positive(t, resets)
	require.Less(t, resets, 3*seriesPerTarget/7)
}

func TestSpeedAndRateHoldTheRunBack(t *testing.T) {
	r := &run{Options: Options{Speed: 10, Rate: 1000, Senders: 2}, g: newGenerator(t, smallWorkload())}
	require.Equal(t, 3*time.Second, r.dueTime(1, 0).Sub(r.began))
	require.Equal(t, 20*time.Second, r.dueTime(1, 10000).Sub(r.began))
}

func TestLatencies(t *testing.T) {
	var a, b latencyHistogram
	for i := range 1000 {
		a.add(time.Duration(i+1) * time.Millisecond)
	}
	b.addAll(&a)
	require.InEpsilon(t, 500*time.Millisecond, b.quantile(0.5), 0.023)
	require.InEpsilon(t, 990*time.Millisecond, b.quantile(0.99), 0.023)
	require.Equal(t, time.Second, b.quantile(1))
	require.Zero(t, new(latencyHistogram).quantile(0.5))
}

func TestUsageOfThisProcess(t *testing.T) {
	u, err := ProcessUsage(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, u.RSS)
	require.GreaterOrEqual(t, u.PeakRSS, u.RSS)
	_, err = ProcessUsage(-1)
	require.Error(t, err)

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), make([]byte, 100_000), 0o600))
	size, err := DirBytes(dir)
	require.NoError(t, err)
	require.GreaterOrEqual(t, size, int64(100_000))
}

func TestAnEndedContextEndsTheRun(t *testing.T) {
	_, server := newMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := Options{URL: server.URL + "/api/v1/write"}
	_, err := Run(ctx, newGenerator(t, smallWorkload()), NewAcks(smallWorkload()), o)
	require.ErrorIs(t, err, context.Canceled)
}

func BenchmarkEncode(b *testing.B) {
	w := Workload{Series: 20000, Steps: 1000, IntervalMs: 15000, StartMs: 1_700_000_000_000}
	g, err := NewGenerator(w)
	require.NoError(b, err)
	for _, protocol := range []Protocol{V1, V2} {
		b.Run(string(protocol), func(b *testing.B) {
			enc, err := newEncoder(protocol, g)
			require.NoError(b, err)
			s := newShard(w, 0, 1)
			var refs []sampleRef
			for range 20 {
				refs = s.next(refs[:0], 2000, false)
				_, err = enc.encode(refs)
				require.NoError(b, err)
			}
			b.ResetTimer()
			for b.Loop() {
				if refs = s.next(refs[:0], 2000, false); len(refs) == 0 {
					s = newShard(w, 0, 1)
				}
				_, err = enc.encode(refs)
			}
			require.NoError(b, err)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "ns/sample")
		})
	}
}
