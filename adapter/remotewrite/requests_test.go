package remotewrite

import (
	"bytes"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
)

func bitsOf(v float64) uint64 { return math.Float64bits(v) }

// protoLabels returns labels from names and values in turn, in the given order.
func protoLabels(pairs ...string) []prompb.Label {
	var out []prompb.Label
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, prompb.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return out
}

func floatsV1(name string, samples ...prompb.Sample) prompb.TimeSeries {
	return prompb.TimeSeries{Labels: protoLabels(labels.MetricName, name), Samples: samples}
}

func marshalV1(t testing.TB, req *prompb.WriteRequest) []byte {
	b, err := req.Marshal()
	require.NoError(t, err)
	return b
}

func marshalV2(t testing.TB, req *writev2.Request) []byte {
	b, err := req.Marshal()
	require.NoError(t, err)
	return b
}

// v2From converts a request of 1.0 to 2.0.
func v2From(req *prompb.WriteRequest) *writev2.Request {
	symbols := writev2.NewSymbolTable()
	out := &writev2.Request{}
	for _, ts := range req.Timeseries {
		var series writev2.TimeSeries
		for _, l := range ts.Labels {
			series.LabelsRefs = append(series.LabelsRefs, symbols.Symbolize(l.Name), symbols.Symbolize(l.Value))
		}
		for _, s := range ts.Samples {
			series.Samples = append(series.Samples, writev2.Sample{Value: s.Value, Timestamp: s.Timestamp})
		}
		for _, h := range ts.Histograms {
			if h.IsFloatHistogram() {
				series.Histograms = append(
					series.Histograms, writev2.FromFloatHistogram(0, h.Timestamp, h.ToFloatHistogram()),
				)
			} else {
				series.Histograms = append(
					series.Histograms, writev2.FromIntHistogram(0, h.Timestamp, h.ToIntHistogram()),
				)
			}
		}
		for _, e := range ts.Exemplars {
			x := writev2.Exemplar{Value: e.Value, Timestamp: e.Timestamp}
			for _, l := range e.Labels {
				x.LabelsRefs = append(x.LabelsRefs, symbols.Symbolize(l.Name), symbols.Symbolize(l.Value))
			}
			series.Exemplars = append(series.Exemplars, x)
		}
		out.Timeseries = append(out.Timeseries, series)
	}
	out.Symbols = symbols.Symbols()
	return out
}

const (
	contentV1 = "application/x-protobuf"
	contentV2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
)

// post sends a compressed body as a sender would.
func post(h http.Handler, contentType string, body []byte) *httptest.ResponseRecorder {
	return postRaw(h, contentType, "snappy", snappy.Encode(nil, body))
}

func postRaw(h http.Handler, contentType, encoding string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/write", bytes.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
