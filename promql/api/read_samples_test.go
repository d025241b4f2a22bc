package api

import (
	"bytes"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"
)

// TestReadsAreAsByPrometheus checks that answers of remote read have the same bytes as the answers of Prometheus'
// handler, for different numbers of queries and lengths of series and pieces.
func TestReadsAreAsByPrometheus(t *testing.T) {
	data := teststorage.New(t)
	t.Cleanup(func() { require.NoError(t, data.Close()) })
	app := data.Appender(t.Context())
	for i := range 3000 {
		ls := labels.FromStrings("__name__", "many", "i", string(rune('a'+i%26)), "long",
			string(bytes.Repeat([]byte{byte('a' + i%26)}, i)))
		for at, v := range []float64{float64(i), math.NaN(), math.Float64frombits(value.StaleNaN), math.Inf(1)} {
			_, err := app.Append(0, ls, int64(at), v)
			require.NoError(t, err)
		}
	}
	for i := range int64(300_000) { // Its chunks don't fit into one frame.
		_, err := app.Append(0, labels.FromStrings("__name__", "long"), i-100, math.Sqrt(float64(i)))
		require.NoError(t, err)
	}
	for i := range int64(10) {
		_, err := app.AppendHistogram(0, labels.FromStrings("__name__", "ints"), i, tsdbutil.GenerateTestHistogram(i),
			nil)
		require.NoError(t, err)
		_, err = app.AppendHistogram(0, labels.FromStrings("__name__", "floats"), i, nil,
			tsdbutil.GenerateTestFloatHistogram(i))
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())

	theirs := remote.NewReadHandler(slog.New(slog.DiscardHandler), nil, data,
		func() config.Config { return config.Config{} }, maxReadSamples, 1, maxFrameBytes)
	a := &api{Options: Options{Queryable: data, Logger: slog.New(slog.DiscardHandler)}}
	ours := http.HandlerFunc(a.serveRead)
	ask := func(h http.Handler, request *prompb.ReadRequest) *httptest.ResponseRecorder {
		text, err := request.Marshal()
		require.NoError(t, err)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, Prefix+"/read", bytes.NewReader(snappy.Encode(nil, text))))
		return w
	}
	of := func(names ...string) *prompb.ReadRequest {
		request := &prompb.ReadRequest{}
		for _, name := range names {
			request.Queries = append(request.Queries, &prompb.Query{StartTimestampMs: -100, EndTimestampMs: 300_000,
				Matchers: []*prompb.LabelMatcher{{Name: "__name__", Value: name}}})
		}
		return request
	}
	for _, request := range []*prompb.ReadRequest{of(), of("none"), of("many"), of("long"), of("ints"),
		of("none", "floats", "many", "none", "long", "ints")} {
		want, got := ask(theirs, request), ask(ours, request)
		require.Equal(t, want.Code, got.Code)
		require.Equal(t, want.Header(), got.Header())
		wantText, err := snappy.Decode(nil, want.Body.Bytes())
		require.NoError(t, err)
		gotText, err := snappy.Decode(nil, got.Body.Bytes())
		require.NoError(t, err)
		require.True(t, bytes.Equal(wantText, gotText), request)

		request.AcceptedResponseTypes = []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS,
			prompb.ReadRequest_SAMPLES}
		want, got = ask(theirs, request), ask(ours, request)
		require.Equal(t, want.Code, got.Code)
		require.Equal(t, want.Header(), got.Header())
		require.True(t, bytes.Equal(want.Body.Bytes(), got.Body.Bytes()), request)
	}
	unknown := of("many")
	unknown.AcceptedResponseTypes = []prompb.ReadRequest_ResponseType{9}
	want, got := ask(theirs, unknown), ask(ours, unknown)
	require.Equal(t, want.Code, got.Code)
	require.Equal(t, want.Body.String(), got.Body.String())
	bad := of("many")
	bad.Queries[0].Matchers[0].Type = 9
	require.Equal(t, http.StatusBadRequest, ask(ours, bad).Code)
}
