package remoteread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
)

// now is the end of the requested range, one and a half days after startMS.
const (
	dayMS   = int64(24 * time.Hour / time.Millisecond)
	startMS = 20_000*dayMS + 1
	now     = 20_001*dayMS + dayMS/2
)

// server is a fake server whose responses are written by answer.
type server struct {
	answer  func(w http.ResponseWriter, q *prompb.Query, asked int)
	queries []*prompb.Query
	headers []http.Header
	waits   []time.Duration
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		body, err = snappy.Decode(nil, body)
	}
	var request prompb.ReadRequest
	if err == nil {
		err = request.Unmarshal(body)
	}
	if err != nil || len(request.Queries) != 1 ||
		request.AcceptedResponseTypes[0] != prompb.ReadRequest_STREAMED_XOR_CHUNKS {
		http.Error(w, fmt.Sprint("bad request ", err), http.StatusBadRequest)
		return
	}
	s.queries, s.headers = append(s.queries, request.Queries[0]), append(s.headers, r.Header)
	s.answer(w, request.Queries[0], len(s.queries))
}

// source starts the server and returns a source that reads from it.
func (s *server) source(t *testing.T, sel importer.Selection) *fetch.Days {
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	h := http.Header{"X-Scope-Orgid": {"team-a"}}
	u, err := fetch.ParseURL(strings.Replace(web.URL, "//", "//user:pass@", 1)+"/read", h)
	require.NoError(t, err)
	if sel.MinMS == math.MinInt64 {
		sel.MinMS = startMS
	}
	d := New(Options{
		Client: fetch.Client{HTTP: web.Client(), URL: u, Header: h}, Selection: sel, Width: 24 * time.Hour,
		Now: func() time.Time { return time.UnixMilli(now) },
	})
	d.Wait = func(ctx context.Context, wait time.Duration) error {
		s.waits = append(s.waits, wait)
		return ctx.Err()
	}
	return d
}

func samplesOf(t *testing.T, s importer.Source, after string) (lines, positions []string, err error) {
	for b, err := range s.Batches(t.Context(), after) {
		if err != nil {
			return lines, positions, err
		}
		positions = append(positions, b.Position)
		for _, series := range b.Series {
			for i, at := range series.Samples.T {
				lines = append(
					lines, fmt.Sprintf("%s %d %016x", series.Labels, at, math.Float64bits(series.Samples.V[i])),
				)
			}
			for _, h := range series.Samples.H {
				lines = append(lines, fmt.Sprintf("%s %d %v %v", series.Labels, h.T, h.Int, h.Float))
			}
		}
	}
	slices.Sort(lines)
	return lines, positions, nil
}

// respondSamples responds with samples.
func respondSamples(w http.ResponseWriter, list ...*prompb.TimeSeries) {
	text, err := (&prompb.ReadResponse{Results: []*prompb.QueryResult{{Timeseries: list}}}).Marshal()
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Header().Set("Content-Encoding", "snappy")
	_, _ = w.Write(snappy.Encode(nil, text))
}

func upSeries(job string, times ...int64) *prompb.TimeSeries {
	s := &prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "up"}, {Name: "job", Value: job}}}
	for _, at := range times {
		s.Samples = append(s.Samples, prompb.Sample{Timestamp: at, Value: 1})
	}
	return s
}

const oneBits = "3ff0000000000000"

// TestSampled reads day by day, and keeps the samples of each response that are within the day, including histograms.
func TestSampled(t *testing.T) {
	t.Parallel()
	ints, floats := tsdbutil.GenerateTestHistogram(3), tsdbutil.GenerateTestFloatHistogram(4)
	s := &server{answer: func(w http.ResponseWriter, q *prompb.Query, asked int) {
		if asked > 1 {
			respondSamples(w, upSeries("b", q.StartTimestampMs, q.EndTimestampMs))
			return
		}
		x := upSeries("a", q.StartTimestampMs-1, q.StartTimestampMs, q.EndTimestampMs, q.EndTimestampMs+1)
		x.Histograms = []prompb.Histogram{
			prompb.FromIntHistogram(startMS+5, ints), prompb.FromFloatHistogram(startMS+6, floats),
		}
		respondSamples(w, x)
	}}
	d := s.source(t, importer.Everything())
	plan, err := d.Plan(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, startMS, plan.MinMS)
	require.NotContains(t, plan.Words, "pass")
	got, positions, err := samplesOf(t, d, "")
	require.NoError(t, err)
	midnight := startMS - 1 + dayMS
	require.Equal(t, []string{
		fmt.Sprintf(`{__name__="up", job="a"} %d %s`, startMS, oneBits),
		fmt.Sprintf(`{__name__="up", job="a"} %d %v %v`, startMS+5, ints, (*histogram.FloatHistogram)(nil)),
		fmt.Sprintf(`{__name__="up", job="a"} %d %v %v`, startMS+6, (*histogram.Histogram)(nil), floats),
		fmt.Sprintf(`{__name__="up", job="a"} %d %s`, midnight, oneBits),
		fmt.Sprintf(`{__name__="up", job="b"} %d %s`, midnight+1, oneBits),
		fmt.Sprintf(`{__name__="up", job="b"} %d %s`, now, oneBits),
	}, got)
	require.Equal(t, []string{fmt.Sprint(midnight), fmt.Sprint(now)}, positions)
	require.Equal(t, "Basic dXNlcjpwYXNz", s.headers[0].Get("Authorization"))
	require.Equal(t, "team-a", s.headers[0].Get("X-Scope-OrgID"))

	got, positions, err = samplesOf(t, d, fmt.Sprint(midnight))
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Len(t, positions, 1)
}

// respondChunks responds with chunks; each frame holds a part of a series.
func respondChunks(w http.ResponseWriter, frames ...prompb.ChunkedReadResponse) {
	w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
	out := remote.NewChunkedWriter(w, w.(http.Flusher))
	for i := range frames {
		text, err := frames[i].Marshal()
		if err != nil {
			panic(err)
		}
		if _, err := out.Write(text); err != nil {
			panic(err)
		}
		out.Close()
	}
}

func chunkOf(t *testing.T, times ...int64) prompb.Chunk {
	c := chunkenc.NewXORChunk()
	app, err := c.Appender()
	require.NoError(t, err)
	for _, at := range times {
		app.Append(0, at, 1)
	}
	return prompb.Chunk{MinTimeMs: times[0], MaxTimeMs: times[len(times)-1], Type: prompb.Chunk_XOR, Data: c.Bytes()}
}

// TestStreamed checks that a series that is split into multiple frames is read completely, and that a series that two
// selectors match is returned once.
func TestStreamed(t *testing.T) {
	t.Parallel()
	sel := importer.Everything()
	sel.MaxMS = startMS + 1000
	sel.Matchers = [][]*labels.Matcher{
		{labels.MustNewMatcher(labels.MatchEqual, "job", "a")},
		{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up")},
	}
	s := &server{answer: func(w http.ResponseWriter, q *prompb.Query, asked int) {
		a := upSeries("a").Labels
		frames := []prompb.ChunkedReadResponse{
			{ChunkedSeries: []*prompb.ChunkedSeries{{
				Labels: a, Chunks: []prompb.Chunk{chunkOf(t, startMS, startMS+1)},
			}}},
			{ChunkedSeries: []*prompb.ChunkedSeries{
				{Labels: a, Chunks: []prompb.Chunk{chunkOf(t, startMS+2, startMS+5000)}},
			}},
		}
		if asked == 2 {
			frames = append(frames, prompb.ChunkedReadResponse{
				ChunkedSeries: []*prompb.ChunkedSeries{
					{Labels: upSeries("b").Labels, Chunks: []prompb.Chunk{chunkOf(t, startMS)}},
				},
			})
		}
		respondChunks(w, frames...)
	}}
	got, _, err := samplesOf(t, s.source(t, sel), "")
	require.NoError(t, err)
	require.Equal(t, []string{
		fmt.Sprintf(`{__name__="up", job="a"} %d %s`,
			startMS, oneBits), fmt.Sprintf(`{__name__="up", job="a"} %d %s`, startMS+1, oneBits),
		fmt.Sprintf(`{__name__="up", job="a"} %d %s`, startMS+2, oneBits),
		fmt.Sprintf(`{__name__="up", job="b"} %d %s`, startMS, oneBits),
	}, got)
	require.Len(t, s.queries, 2)
	require.Equal(t, "job", s.queries[0].Matchers[0].Name)
}

// TestTriesAgain checks that a request is retried with growing waits if the server is busy or the response is
// truncated.
func TestTriesAgain(t *testing.T) {
	t.Parallel()
	s := &server{answer: func(w http.ResponseWriter, q *prompb.Query, asked int) {
		switch asked {
		case 1:
			http.Error(w, "later", http.StatusTooManyRequests)
		case 2:
			w.Header().Set("Retry-After", "7")
			http.Error(w, "later", http.StatusServiceUnavailable)
		case 3:
			w.Header().Set("Content-Type", "application/x-protobuf")
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("cut off"))
		case 4:
			respondChunks(w, prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{
				{Labels: upSeries("a").Labels, Chunks: []prompb.Chunk{chunkOf(t, startMS)}},
			}})
			panic(http.ErrAbortHandler)
		default:
			respondSamples(w, upSeries("a", q.StartTimestampMs))
		}
	}}
	got, positions, err := samplesOf(t, s.source(t, importer.Everything()), "")
	require.NoError(t, err)
	require.Len(t, got, 2, "once a day")
	require.Len(t, positions, 2)
	require.Equal(t, []time.Duration{time.Second, 7 * time.Second, 4 * time.Second, 8 * time.Second}, s.waits)
}

// TestSaysWhatIsWrong checks that each fault ends the import with one error in one line, and that only faults that may
// pass are retried.
func TestSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer func(w http.ResponseWriter, q *prompb.Query, asked int)
		want   string
		asked  int
	}{
		{func(w http.ResponseWriter, _ *prompb.Query, _ int) {
			http.Error(w, "who\nare you", http.StatusUnauthorized)
		}, "returned 401 Unauthorized: who are you", 1},
		{
			func(w http.ResponseWriter, _ *prompb.Query, _ int) { http.Error(w, "busy", http.StatusBadGateway) },
			"returned 502 Bad Gateway: busy", 12,
		},
		{
			func(w http.ResponseWriter, _ *prompb.Query, _ int) { _, _ = w.Write([]byte("<html>")) },
			`so the server doesn't support remote read`, 1,
		},
		{func(w http.ResponseWriter, _ *prompb.Query, _ int) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
		}, "more than 512 MiB", 1},
		{func(w http.ResponseWriter, _ *prompb.Query, _ int) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write([]byte("nonsense"))
		}, "invalid response: ", 1},
		{func(w http.ResponseWriter, _ *prompb.Query, _ int) {
			respondChunks(w, prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{
				{Labels: upSeries("a").Labels, Chunks: []prompb.Chunk{{Type: 99, Data: []byte{1}}}},
			}})
		}, `chunk of {__name__="up", job="a"}: `, 1},
	} {
		s := &server{answer: c.answer}
		d := s.source(t, importer.Everything())
		_, _, err := samplesOf(t, d, "")
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "from 2024-10-04T00:00:00.001Z to 2024-10-05T00:00:00Z")
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), "pass")
		require.Len(t, s.queries, c.asked)
	}
	d := (&server{}).source(t, importer.Everything())
	d.MinMS = math.MinInt64
	_, err := d.Plan(t.Context())
	require.ErrorIs(t, err, fetch.ErrNoStart)
	_, err = fetch.ParseURL("localhost:9090", nil)
	require.ErrorContains(t, err, "must be a URL")
}

// TestStops checks that the source stops when its context is canceled.
func TestStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := &server{answer: func(w http.ResponseWriter, _ *prompb.Query, _ int) {
		cancel()
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}}
	var last error
	for _, err := range s.source(t, importer.Everything()).Batches(ctx, "") {
		last = err
	}
	require.True(t, errors.Is(last, context.Canceled), last)
}
