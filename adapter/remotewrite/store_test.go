package remotewrite

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// testNow is the current time of the stores in these tests.
var testNow = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const testMS = int64(1_777_636_800_000) // testNow

// server is a handler with a real store on Pebble.
type server struct {
	http.Handler
	store *storage.Store
}

func newServer(t testing.TB, rule func(faultengine.Op) faultengine.Action, change ...func(*storage.Options)) *server {
	var eng engine.Engine = storagetest.Pebble(t)
	if rule != nil {
		eng = faultengine.Wrap(eng, rule)
	}
	store := storagetest.Open(t, eng, append([]func(*storage.Options){storagetest.FixedClock(testNow)}, change...)...)
	h, err := Handler(store, DefaultOptions())
	require.NoError(t, err)
	return &server{Handler: h, store: store}
}

// stored returns all samples of a tenant as lines that compare bit by bit.
func (s *server) stored(t testing.TB, tenantName string) []string {
	matcher := labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")
	found, err := s.store.Select(t.Context(), query.Query{
		Tenant: tenantName, MinT: math.MinInt64, MaxT: math.MaxInt64, Matchers: []*labels.Matcher{matcher},
		Sorted: true,
	})
	require.NoError(t, err)
	var lines []string
	for _, series := range found {
		var samples chunk.Samples
		require.NoError(t, series.Samples(&samples))
		lines = append(lines, linesOf(series.Labels, &samples)...)
	}
	slices.Sort(lines)
	return lines
}

func linesOf(ls labels.Labels, s *chunk.Samples) (lines []string) {
	for i, at := range s.T {
		st := int64(0)
		if len(s.ST) > 0 {
			st = s.ST[i]
		}
		lines = append(lines, fmt.Sprintf("%s %d %d %016x", ls, at, st, math.Float64bits(s.V[i])))
	}
	for _, h := range s.H {
		lines = append(lines, fmt.Sprintf("%s %d %d %x", ls, h.T, h.ST, chunk.AppendHistogramBytes(nil, h)))
	}
	return lines
}

// linesOfV2 returns the lines that a store must contain after a request.
func linesOfV2(t testing.TB, req *writev2.Request) (lines []string) {
	for _, s := range wantV2(t, req) {
		if s.hist != "" {
			lines = append(lines, fmt.Sprintf("%s %d %d %x", s.series, s.t, s.st, s.hist))
		} else {
			lines = append(lines, fmt.Sprintf("%s %d %d %016x", s.series, s.t, s.st, s.bits))
		}
	}
	slices.Sort(lines)
	return lines
}

// TestBadSamplesOfMany checks that bad series and samples of every kind are rejected with the reason, and that the
// valid series of the same request are stored.
func TestBadSamplesOfMany(t *testing.T) {
	now := []prompb.Sample{{Timestamp: testMS, Value: 1}}
	many := []string{"__name__", "m"}
	for i := range 100 {
		many = append(many, fmt.Sprintf("l%03d", i), "v")
	}
	bad := map[string]prompb.TimeSeries{
		"duplicate_label":      {Labels: protoLabels("__name__", "m", "a", "1", "a", "2"), Samples: now},
		"empty_label_name":     {Labels: protoLabels("", "x", "__name__", "m"), Samples: now},
		"missing_metric_name":  {Labels: protoLabels("job", "x"), Samples: now},
		"invalid_utf8":         {Labels: protoLabels("__name__", "m", "a", "\xff"), Samples: now},
		"too_many_labels":      {Labels: protoLabels(many...), Samples: now},
		"label_name_too_long":  {Labels: protoLabels("__name__", "m", strings.Repeat("n", 1025), "x"), Samples: now},
		"label_value_too_long": {Labels: protoLabels("__name__", "m", "x", strings.Repeat("v", 4097)), Samples: now},
		"too_old":              {Labels: protoLabels("__name__", "m"), Samples: []prompb.Sample{{Timestamp: testMS - 31*24*3600_000}}},
		"too_far_ahead":        {Labels: protoLabels("__name__", "m"), Samples: []prompb.Sample{{Timestamp: testMS + 601_000}}},
		"invalid_histogram": {Labels: protoLabels("__name__", "m"), Histograms: []prompb.Histogram{
			prompb.FromFloatHistogram(testMS, &histogram.FloatHistogram{ZeroThreshold: math.NaN()}),
		}},
	}
	good := prompb.TimeSeries{Labels: protoLabels("__name__", "good"), Samples: now}
	for reason, series := range bad {
		t.Run(reason, func(t *testing.T) {
			s := newServer(t, nil, storagetest.RejectAhead)
			for contentType, encode := range map[string]func(*prompb.WriteRequest) []byte{
				contentV1: func(r *prompb.WriteRequest) []byte { return marshalV1(t, r) },
				contentV2: func(r *prompb.WriteRequest) []byte { return marshalV2(t, v2From(r)) },
			} {
				req := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series, good, series}}
				w := post(s, contentType, encode(req))
				require.Equal(t, 400, w.Code)
				require.Contains(t, w.Body.String(), "2 of 3 samples rejected: "+reason+" (2 samples), such as: ")
				require.Less(t, w.Body.Len(), 1024)
			}
			require.Equal(t, linesOfV2(t, v2From(&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{good}})),
				s.stored(t, tenant.Default))
		})
	}
}

// TestFullHead checks that a full head accepts samples of known series and rejects new series.
func TestFullHead(t *testing.T) {
	s := newServer(t, nil, func(o *storage.Options) { o.HeadBytes = 1100 })
	send := func(at int64, names ...string) *httptest.ResponseRecorder {
		req := &prompb.WriteRequest{}
		for _, name := range names {
			req.Timeseries = append(req.Timeseries, floatsV1(name, prompb.Sample{Timestamp: testMS + at, Value: 1}))
		}
		return post(s, contentV2, marshalV2(t, v2From(req)))
	}
	require.Equal(t, 204, send(0, "known").Code)
	w := send(1, "new", "known")
	require.Equal(t, 429, w.Code)
	require.Equal(t, "30", w.Header().Get("Retry-After"))
	require.Equal(t, "1", w.Header().Get(headerSamplesWritten))
	require.Contains(t, w.Body.String(), "1 of 2 samples rejected: too_many_series (1 sample)")
	require.Len(t, s.stored(t, tenant.Default), 2, "the known series' samples")
}

// TestStoreFails checks that samples are acknowledged only after the engine has confirmed the write.
func TestStoreFails(t *testing.T) {
	s := newServer(t, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.Table == engine.Stage && op.N == 1 {
			return faultengine.Lose(nil)
		}
		return faultengine.Pass()
	}, nil)
	req := v2From(&prompb.WriteRequest{
		Timeseries: []prompb.TimeSeries{floatsV1("m", prompb.Sample{Timestamp: testMS, Value: 1})},
	})
	w := post(s, contentV2, marshalV2(t, req))
	require.Equal(t, 503, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, "0", w.Header().Get(headerSamplesWritten))
	require.Equal(t, 204, post(s, contentV2, marshalV2(t, req)).Code)
	require.Equal(t, linesOfV2(t, req), s.stored(t, tenant.Default), "once, though it was written twice")
}

// TestAnyOrderOfLabels checks that samples with the same labels in different orders are stored in one series, with both
// versions.
func TestAnyOrderOfLabels(t *testing.T) {
	s := newServer(t, nil, nil)
	orders := [][]string{
		{"__name__", "m", "a", "1", "b", "2"}, {"b", "2", "a", "1", "__name__", "m"},
		{"a", "1", "__name__", "m", "b", "2", "empty", ""},
	}
	want := &prompb.WriteRequest{}
	for i, pairs := range orders {
		for v := range int64(2) {
			at := testMS - int64(i)*10 - v
			series := prompb.TimeSeries{
				Labels: protoLabels(pairs...), Samples: []prompb.Sample{{Timestamp: at, Value: 1}},
			}
			req := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series, series}} // duplicates have no effect
			contentType, body := contentV1, marshalV1(t, req)
			if v == 1 {
				contentType, body = contentV2, marshalV2(t, v2From(req))
			}
			require.Equal(t, 204, post(s, contentType, body).Code)
			want.Timeseries = append(want.Timeseries, series)
		}
	}
	require.Equal(t, linesOfV2(t, v2From(want)), s.stored(t, tenant.Default))
	found, err := s.store.Select(t.Context(), query.Query{
		Tenant: tenant.Default, MinT: 0, MaxT: math.MaxInt64,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "m")},
	})
	require.NoError(t, err)
	require.Len(t, found, 1)
}

func TestTenantsApart(t *testing.T) {
	s := newServer(t, nil, nil)
	for _, name := range []string{"one", "two"} {
		req := v2From(&prompb.WriteRequest{
			Timeseries: []prompb.TimeSeries{floatsV1("m_"+name, prompb.Sample{Timestamp: testMS, Value: 1})},
		})
		r := httptest.NewRequestWithContext(tenant.NewContext(context.Background(), name), http.MethodPost, "/",
			strings.NewReader(string(snappy.Encode(nil, marshalV2(t, req)))))
		r.Header.Set("Content-Type", contentV2)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		require.Equal(t, 204, w.Code)
		require.Equal(t, linesOfV2(t, req), s.stored(t, name))
	}
}

// TestManySenders sends concurrent requests of both versions and checks every sample. Requests share pooled buffers, so
// the test would detect bytes that leak between requests.
func TestManySenders(t *testing.T) {
	s := newServer(t, nil, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var want []string
	for sender := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(sender)))
			for round := range 20 {
				req := &prompb.WriteRequest{}
				for range 1 + rng.IntN(50) {
					req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
						Labels: protoLabels(
							"__name__", "m", "series", strings.Repeat("x", rng.IntN(200))+fmt.Sprint(rng.IntN(50)),
						),
						Samples: []prompb.Sample{{Timestamp: testMS - int64(sender*1000+round), Value: 7}},
					})
				}
				contentType, body := contentV1, marshalV1(t, req)
				if rng.IntN(2) == 0 {
					contentType, body = contentV2, marshalV2(t, v2From(req))
				}
				if code := post(s, contentType, body).Code; code != 204 {
					t.Errorf("answered with %d", code)
				}
				mu.Lock()
				want = append(want, linesOfV2(t, v2From(req))...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(want)
	require.Equal(t, slices.Compact(want), s.stored(t, tenant.Default))
}

// TestRequestAllocations bounds the allocations of a whole request for known series to a quarter of an allocation per
// sample: samples themselves need none.
func TestRequestAllocations(t *testing.T) {
	for contentType, encode := range map[string]func(*prompb.WriteRequest) []byte{
		contentV1: func(r *prompb.WriteRequest) []byte { return marshalV1(t, r) },
		contentV2: func(r *prompb.WriteRequest) []byte { return marshalV2(t, v2From(r)) },
	} {
		s := newServer(t, nil, nil)
		req := benchRequest()
		for i := range req.Timeseries {
			req.Timeseries[i].Samples[0].Timestamp = testMS
		}
		body := encode(req)
		send := func() { require.Equal(t, 204, post(s, contentType, body).Code) }
		send()
		require.Less(t, testing.AllocsPerRun(5, send), float64(benchSeries)/4, contentType)
	}
}

// BenchmarkStore measures a request with 2,000 known series, including a real store that syncs to disk.
func BenchmarkStore(b *testing.B) {
	for _, v := range []version{version1, version2} {
		b.Run(v.String(), func(b *testing.B) {
			s := newServer(b, nil, nil)
			req := benchRequest()
			at := testMS - 3600_000
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				at += 100
				for i := range req.Timeseries {
					req.Timeseries[i].Samples[0].Timestamp = min(at, testMS)
				}
				contentType, body := contentV1, marshalV1(b, req)
				if v == version2 {
					contentType, body = contentV2, marshalV2(b, v2From(req))
				}
				b.StartTimer()
				if w := post(s, contentType, body); w.Code != 204 {
					b.Fatal(w.Code, w.Body)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchSeries, "ns/sample")
		})
	}
}
