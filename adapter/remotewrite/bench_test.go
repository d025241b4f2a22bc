package remotewrite

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
)

// benchSeries is the number of series, with one sample each, in a benchmark's request: Prometheus' default batch.
const benchSeries = 2000

// benchRequest resembles a request with samples of a node exporter.
func benchRequest() *prompb.WriteRequest {
	req := &prompb.WriteRequest{}
	for i := range benchSeries {
		req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
			Labels: protoLabels("__name__", fmt.Sprintf("node_cpu_seconds_total_%d", i%40), "cluster", "eu-west-1",
				"cpu", fmt.Sprint(i/40), "instance", fmt.Sprintf("host-%d.example.com:9100", i%100), "job", "node",
				"mode", "user"),
			Samples: []prompb.Sample{{Timestamp: 1_780_000_000_000 + int64(i%15000), Value: float64(i) * 1.25}},
		})
	}
	return req
}

// mapBatch finds series by alias in a map and keeps samples in a slice. It measures the decoder plus one map lookup.
type mapBatch struct {
	series  map[string]*storage.Series
	samples []struct {
		series *storage.Series
		t, st  int64
		v      float64
	}
}

func (b *mapBatch) Lookup(alias []byte) (*storage.Series, bool) {
	s, ok := b.series[string(alias)]
	return s, ok
}

func (b *mapBatch) Define(alias []byte, _ labels.Labels) (*storage.Series, error) {
	s := new(storage.Series)
	b.series[string(alias)] = s
	return s, nil
}

func (b *mapBatch) Float(ref *storage.Series, t, st int64, v float64) error {
	b.samples = append(b.samples, struct {
		series *storage.Series
		t, st  int64
		v      float64
	}{ref, t, st, v})
	return nil
}

func (b *mapBatch) Histogram(*storage.Series, int64, int64, *histogram.Histogram, *histogram.FloatHistogram) error {
	return nil
}
func (b *mapBatch) Exemplar(*storage.Series, exemplar.Exemplar) error { return nil }
func (b *mapBatch) Commit(context.Context) error                      { b.samples = b.samples[:0]; return nil }
func (b *mapBatch) Release()                                          { b.samples = b.samples[:0] }

// decodeLoop returns a function that decodes body into a batch that contains all of its series.
func decodeLoop(t testing.TB, v version, body []byte) func() {
	batches := &mapBatch{series: map[string]*storage.Series{}}
	d := &decoder{}
	return func() {
		d.ctx, d.newBatch = context.Background(), func(string) adapter.Batch { return batches }
		var err error
		if v == version2 {
			err = d.decodeV2(body)
		} else {
			err = d.decodeV1(body)
		}
		if err != nil || d.commit() != nil || d.written.floats != benchSeries {
			t.Fatal(err, d.written)
		}
		d.reset()
	}
}

// TestNothingAllocated checks that decoding samples of known series doesn't allocate.
func TestNothingAllocated(t *testing.T) {
	req := benchRequest()
	for v, body := range map[version][]byte{version1: marshalV1(t, req), version2: marshalV2(t, v2From(req))} {
		loop := decodeLoop(t, v, body)
		loop()
		require.LessOrEqual(t, testing.AllocsPerRun(10, loop), 1.0,
			"version %s, %d samples: one for the test's own closure", v, benchSeries)
	}
}

func BenchmarkDecode(b *testing.B) {
	req := benchRequest()
	for v, body := range map[version][]byte{version1: marshalV1(b, req), version2: marshalV2(b, v2From(req))} {
		b.Run(v.String(), func(b *testing.B) {
			loop := decodeLoop(b, v, body)
			loop()
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				loop()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchSeries, "ns/sample")
		})
	}
}

// BenchmarkUnknownSeries decodes a request with series that don't exist yet.
func BenchmarkUnknownSeries(b *testing.B) {
	body := marshalV1(b, benchRequest())
	d := &decoder{}
	b.ReportAllocs()
	for b.Loop() {
		batches := &mapBatch{series: map[string]*storage.Series{}}
		d.ctx, d.newBatch = context.Background(), func(string) adapter.Batch { return batches }
		require.NoError(b, d.decodeV1(body))
		d.reset()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchSeries, "ns/sample")
}

// BenchmarkRequest measures a request without the store and the network: reading, snappy, decoding, responding.
func BenchmarkRequest(b *testing.B) {
	req := benchRequest()
	for contentType, body := range map[string][]byte{
		contentV1: marshalV1(b, req), contentV2: marshalV2(b, v2From(req)),
	} {
		b.Run(contentType, func(b *testing.B) {
			batches := &mapBatch{series: map[string]*storage.Series{}}
			h, err := newHandler(func(string) adapter.Batch { return batches }, DefaultOptions())
			require.NoError(b, err)
			compressed := snappy.Encode(nil, body)
			r := httptest.NewRequest(http.MethodPost, "/api/v1/write", nil)
			r.Header.Set("Content-Type", contentType)
			r.Header.Set("Content-Encoding", "snappy")
			r.ContentLength = int64(len(compressed))
			b.ReportAllocs()
			for b.Loop() {
				r.Body = readCloser{bytes.NewReader(compressed)}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusNoContent {
					b.Fatal(w.Code, w.Body)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchSeries, "ns/sample")
		})
	}
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }
