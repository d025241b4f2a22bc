package api

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promapi "github.com/prometheus/prometheus/web/api/v1"
	"github.com/stretchr/testify/require"
)

// TestAnswersInPieces checks that large answers are written in pieces and have the same bytes as if they were encoded
// as a whole.
func TestAnswersInPieces(t *testing.T) {
	const n = 5000
	var vector promengine.Vector
	var matrix promengine.Matrix
	var series []labels.Labels
	var texts []string
	h := &histogram.FloatHistogram{Count: 3, Sum: 1, PositiveSpans: []histogram.Span{{Offset: 0, Length: 1}},
		PositiveBuckets: []float64{3}}
	for i := range n {
		ls := labels.FromStrings("__name__", "m", "i", fmt.Sprint(i), "text", "<a&b> \"quoted\" \u2028 []")
		s := promengine.Sample{Metric: ls, T: int64(i), F: math.Inf(i % 3)}
		points := promengine.Series{Metric: ls, Floats: []promengine.FPoint{{T: 1, F: 0.1}, {T: 2, F: math.NaN()}}}
		if i%7 == 0 {
			s.H = h
			points.Histograms = []promengine.HPoint{{T: 3, H: h}}
		}
		vector, matrix, series, texts = append(vector, s), append(matrix, points), append(series, ls),
			append(texts, ls.Get("i")+ls.Get("text"))
	}
	a := &api{}
	a.codec.pending = &a.pending
	for name, data := range map[string]any{
		"vector":  &promapi.QueryData{ResultType: parser.ValueTypeVector, Result: vector},
		"matrix":  &promapi.QueryData{ResultType: parser.ValueTypeMatrix, Result: matrix},
		"series":  series,
		"texts":   texts,
		"small":   &promapi.QueryData{ResultType: parser.ValueTypeVector, Result: vector[:3]},
		"scalar":  &promapi.QueryData{ResultType: parser.ValueTypeScalar, Result: promengine.Scalar{V: 1}},
		"none":    []string{},
		"another": map[string]int{"a": 1},
	} {
		answer := &promapi.Response{Status: "success", Data: data, Warnings: []string{"a [] warning"}}
		want, err := promapi.JSONCodec{}.Encode(answer)
		require.NoError(t, err)
		got := &pieces{ResponseRecorder: httptest.NewRecorder()}
		a.withStreaming(func(w http.ResponseWriter, _ *http.Request) {
			text, err := a.codec.Encode(answer)
			require.NoError(t, err)
			_, err = w.Write(text)
			require.NoError(t, err)
		})(got, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, string(want), got.Body.String(), name)
		require.LessOrEqual(t, got.longest, 2*textPiece, name)
	}
	_, left := a.pending.Load(nil)
	require.False(t, left)
}

// pieces records the length of the longest text that is written at once.
type pieces struct {
	*httptest.ResponseRecorder
	longest int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.longest = max(p.longest, len(b))
	return p.ResponseRecorder.Write(b)
}

// BenchmarkEncodeLarge encodes answers whose series are far apart in memory.
func BenchmarkEncodeLarge(b *testing.B) {
	const n = 200_000
	var vector promengine.Vector
	var matrix promengine.Matrix
	for i := range n {
		ls := labels.FromStrings("__name__", "big", "host", fmt.Sprintf("host-%d.eu-central-1.example.com:9100", i%500),
			"id", fmt.Sprintf("%08x-%012d", uint32(i)*2654435761, i), "job", "pods")
		vector = append(vector, promengine.Sample{Metric: ls, T: 1_700_000_000_123, F: float64(i)})
		matrix = append(matrix, promengine.Series{Metric: ls,
			Floats: []promengine.FPoint{{T: 1_700_000_000_123, F: float64(i)}, {T: 1_700_000_060_123, F: float64(i)}}})
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, k int) {
		vector[i], vector[k], matrix[i], matrix[k] = vector[k], vector[i], matrix[k], matrix[i]
	})
	a := &api{}
	a.codec.pending = &a.pending
	for name, data := range map[string]any{
		"vector": &promapi.QueryData{ResultType: parser.ValueTypeVector, Result: vector},
		"matrix": &promapi.QueryData{ResultType: parser.ValueTypeMatrix, Result: matrix},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.withStreaming(func(w http.ResponseWriter, _ *http.Request) {
					text, err := a.codec.Encode(&promapi.Response{Status: "success", Data: data})
					require.NoError(b, err)
					_, err = w.Write(text)
					require.NoError(b, err)
				})(nowhere{}, httptest.NewRequest(http.MethodGet, "/", nil))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/series")
		})
	}
}

// nowhere is a response writer that discards the answer.
type nowhere struct{ http.ResponseWriter }

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
