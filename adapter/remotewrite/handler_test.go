package remotewrite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/tenant"
)

// oneSample returns a request that every receiver accepts.
func oneSample() *prompb.WriteRequest {
	return &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{floatsV1("m", prompb.Sample{Timestamp: 1, Value: 2})}}
}

func TestNegotiation(t *testing.T) {
	v1, v2 := marshalV1(t, oneSample()), marshalV2(t, v2From(oneSample()))
	for _, c := range []struct {
		contentType, encoding string
		body                  []byte
		code                  int
	}{
		{"application/x-protobuf", "snappy", v1, 204},
		{"application/x-protobuf;proto=prometheus.WriteRequest", "snappy", v1, 204},
		{"application/x-protobuf; proto=prometheus.WriteRequest", "snappy", v1, 204},
		{"application/x-protobuf;proto=io.prometheus.write.v2.Request", "snappy", v2, 204},
		{`Application/X-Protobuf ; a=b; PROTO="io.prometheus.write.v2.Request"`, "Snappy", v2, 204},
		{"", "snappy", v1, 204},
		{"application/x-protobuf", "", v1, 204},
		{"application/x-protobuf;proto=io.prometheus.write.v3.Request", "snappy", v2, 415},
		{"application/x-protobuf;proto=", "snappy", v2, 415},
		{"application/x-protobuf;proto", "snappy", v2, 415},
		{"application/x-protobuf;", "snappy", v1, 204},
		{"application/json", "snappy", v1, 415},
		{"text/plain; charset=utf-8", "snappy", v1, 415},
		{"application/x-protobuf", "gzip", v1, 415},
		{"application/x-protobuf", "zstd", v1, 415},
		{"application/x-protobuf", "snappy, gzip", v1, 415},
	} {
		t.Run(c.contentType+" "+c.encoding, func(t *testing.T) {
			r := newRecorder()
			w := postRaw(newTestHandler(t, r, nil), c.contentType, c.encoding, snappy.Encode(nil, c.body))
			require.Equal(t, c.code, w.Code, w.Body)
			if c.code == 204 {
				require.Len(t, r.samples, 1)
				require.Empty(t, w.Body.String())
				return
			}
			require.Empty(t, r.samples)
			require.NotEmpty(t, w.Body.String())
			require.Empty(t, w.Header().Get(headerSamplesWritten), "nothing was negotiated")
		})
	}
}

func TestMethods(t *testing.T) {
	w := httptest.NewRecorder()
	newTestHandler(t, newRecorder(), nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/write", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "POST", w.Header().Get("Allow"))
}

// TestWrittenHeaders checks that every response to 2.0 has all three headers, and none to 1.0 has any.
func TestWrittenHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		body   []byte
		code   int
		counts [3]string
	}{
		"all":     {marshalV2(t, v2From(variedRequest())), 204, [3]string{"6", "3", "0"}},
		"nothing": {nil, 204, [3]string{"0", "0", "0"}},
		"garbage": {[]byte("garbage"), 400, [3]string{"0", "0", "0"}},
		"partly": {marshalV2(t, v2From(&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
			floatsV1("m", prompb.Sample{Timestamp: 1}, prompb.Sample{Timestamp: 2}),
			floatsV1("", prompb.Sample{Timestamp: 1}),
			{Labels: protoLabels("__name__", "h"), Histograms: []prompb.Histogram{prompb.FromIntHistogram(1, intHistogram())}},
		}})), 400, [3]string{"2", "1", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHandler(t, newRecorder(), nil)
			w := post(h, contentV2, c.body)
			require.Equal(t, c.code, w.Code, w.Body)
			got := [3]string{
				w.Header().Get(headerSamplesWritten), w.Header().Get(headerHistogramsWritten),
				w.Header().Get(headerExemplarsWritten),
			}
			require.Equal(t, c.counts, got)
		})
	}
	w := post(newTestHandler(t, newRecorder(), nil), contentV1, marshalV1(t, variedRequest()))
	require.Equal(t, 204, w.Code)
	require.NotContains(t, w.Header(), headerSamplesWritten)
}

func TestTooLarge(t *testing.T) {
	body := snappy.Encode(nil, marshalV1(t, oneSample()))
	small := func(o *Options) { o.MaxCompressed, o.MaxDecoded = int64(len(body)), 64 }
	h := newTestHandler(t, newRecorder(), small)
	require.Equal(t, 204, postRaw(h, contentV1, "snappy", body).Code, "exactly the limit")
	require.Equal(t, 413, postRaw(h, contentV1, "snappy", append(body, 0)).Code, "announced")

	r := httptest.NewRequest(
		http.MethodPost, "/", io.MultiReader(strings.NewReader(string(body)), strings.NewReader("x")),
	)
	r.ContentLength = -1
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, 413, w.Code, "not announced")

	r = httptest.NewRequest(
		http.MethodPost, "/", http.MaxBytesReader(nil, io.NopCloser(strings.NewReader(string(body))), 5),
	)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, 413, w.Code, "cut by a middleware")

	require.Equal(t, 413, post(h, contentV1, make([]byte, 65)).Code, "decoded")
	require.NotEqual(t, 413, post(h, contentV1, make([]byte, 64)).Code, "decoded, exactly the limit")
}

// TestLyingLength checks that snappy headers that announce more bytes than the block contains are rejected before
// memory is claimed or allocated.
func TestLyingLength(t *testing.T) {
	h := newTestHandler(t, newRecorder(), nil)
	for _, c := range []struct {
		what   string
		header []byte
		code   int
	}{
		{"4 GiB - 1", []byte{0xff, 0xff, 0xff, 0xff, 0x0f}, 413},
		{"100 MiB + 1", []byte{0x81, 0x80, 0x80, 0x32}, 413},
		{"over 32 bits", []byte{0xff, 0xff, 0xff, 0xff, 0x7f}, 400},
		{"100 MiB in a few bytes", []byte{0x80, 0x80, 0x80, 0x32}, 400},
		{"one byte too many", []byte{8}, 400},
	} {
		body := append(c.header, 6<<2, 1, 2, 3, 4, 5, 6, 7) // a literal of seven bytes
		allocated := testing.AllocsPerRun(1, func() {
			require.Equal(t, c.code, postRaw(h, contentV1, "snappy", body).Code, c.what)
		})
		require.Less(t, allocated, 200.0)
	}
	q := body{share: adapter.NewBudget(1 << 40).NewShare(t.Context()), compressed: []byte{0x80, 0x80, 0x80, 0x32, 0, 1}}
	require.ErrorIs(t, q.decompress(1<<30), errCorrupt)
	require.Zero(t, q.share.Claimed(), "no memory is found for a claim that can't be true")
}

// TestDensestBlock checks that a block with the max expansion is accepted.
func TestDensestBlock(t *testing.T) {
	for _, n := range []int{1, 63, 64, 65, 1000, 1 << 16, 1 << 20, 5_000_001} {
		share := adapter.NewBudget(1 << 40).NewShare(t.Context())
		q := body{share: share, compressed: snappy.Encode(nil, make([]byte, n))}
		require.NoError(t, q.decompress(1<<30))
		require.Len(t, q.decoded, n)
	}
}

func TestGarbage(t *testing.T) {
	framed := append([]byte{0xff, 6, 0, 0}, "sNaPpY"...)
	for what, body := range map[string][]byte{
		"nothing":       {},
		"text":          []byte("hello world"),
		"framed snappy": framed,
		"truncated":     snappy.Encode(nil, marshalV1(t, variedRequest()))[:100],
		"no protobuf":   snappy.Encode(nil, []byte("hello world")),
		"first symbol":  nil,
	} {
		r := newRecorder()
		w := postRaw(newTestHandler(t, r, nil), contentV1, "snappy", body)
		require.Equal(t, 400, w.Code, what)
		require.Empty(t, r.samples)
	}
	req := v2From(oneSample())
	req.Symbols[0] = "x"
	w := post(newTestHandler(t, newRecorder(), nil), contentV2, marshalV2(t, req))
	require.Equal(t, 400, w.Code)
	require.Contains(t, w.Body.String(), "first symbol")
}

// TestBrokenConnection checks that an incomplete body is never rejected with a 4xx, which would make the sender drop
// its samples.
func TestBrokenConnection(t *testing.T) {
	body := snappy.Encode(nil, marshalV1(t, variedRequest()))
	for _, announced := range []int64{-1, int64(len(body))} {
		pr, pw := io.Pipe()
		go func() {
			_, _ = pw.Write(body[:20])
			_ = pw.CloseWithError(io.ErrUnexpectedEOF)
		}()
		r := httptest.NewRequest(http.MethodPost, "/", pr)
		r.ContentLength = announced
		w := httptest.NewRecorder()
		newTestHandler(t, newRecorder(), nil).ServeHTTP(w, r)
		require.Equal(t, 503, w.Code)
	}
	r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(strings.NewReader(string(body[:20]))))
	r.ContentLength = int64(len(body))
	w := httptest.NewRecorder()
	newTestHandler(t, newRecorder(), nil).ServeHTTP(w, r)
	require.Equal(t, 503, w.Code)
}

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(*recorder)
		code       int
		retryAfter string
		stored     int
		text       string
	}{
		"stored":      {func(*recorder) {}, 204, "", 2, ""},
		"overloaded":  {func(r *recorder) { r.commitErr = always(storage.ErrOverloaded) }, 503, "1", 0, "too many writes"},
		"unavailable": {func(r *recorder) { r.commitErr = always(fmt.Errorf("x: %w", engine.ErrUnavailable)) }, 503, "1", 0, "unavailable"},
		"closed":      {func(r *recorder) { r.commitErr = always(engine.ErrClosed) }, 503, "1", 0, "closed"},
		"canceled":    {func(r *recorder) { r.commitErr = always(context.Canceled) }, 503, "1", 0, "canceled"},
		"timed out":   {func(r *recorder) { r.commitErr = always(context.DeadlineExceeded) }, 503, "1", 0, "deadline"},
		"internal":    {func(r *recorder) { r.commitErr = always(errors.New("disk on fire")) }, 500, "", 0, "disk on fire"},
		"too old": {func(r *recorder) {
			r.floatErr = func(t int64) error {
				if t == 1 {
					return storage.ErrTooOld
				}
				return nil
			}
		}, 400, "", 1,
			`1 of 2 samples rejected: too_old (1 sample), such as: {__name__="a"} at 1: the sample is older than the retention`},
		"too far ahead": {func(r *recorder) { r.floatErr = func(int64) error { return storage.ErrTooFarAhead } }, 400, "", 0, "too_far_ahead (2 samples)"},
		"were deleted because a clock was fast": {func(r *recorder) {
			r.floatErr = func(t int64) error {
				if t == 1 {
					return fmt.Errorf("%w, up to then", storage.ErrDroppedAhead)
				}
				return storage.ErrTooOld
			}
		}, 503, "1", 0, "dropped_by_clock (1 sample)"},
		"internal, sample": {func(r *recorder) {
			r.floatErr = func(int64) error { return errors.New("disk on fire") }
		}, 500, "", 0, "disk on fire"},
		"full": {func(r *recorder) {
			r.defineErr = func(ls labels.Labels) error {
				if ls.Get("__name__") == "b" {
					return storage.ErrTooManySeries
				}
				return nil
			}
		}, 429, "30", 1, "too_many_series (1 sample)"},
		"full, and bad ones": {func(r *recorder) {
			r.floatErr = func(int64) error { return storage.ErrTooOld }
			r.defineErr = func(ls labels.Labels) error {
				if ls.Get("__name__") == "b" {
					return storage.ErrTooManySeries
				}
				return nil
			}
		}, 429, "30", 0, "too_old (1 sample)"},
		"full, and a failing store": {func(r *recorder) {
			r.commitErr = always(storage.ErrOverloaded)
			r.defineErr = func(ls labels.Labels) error {
				if ls.Get("__name__") == "b" {
					return storage.ErrTooManySeries
				}
				return nil
			}
		}, 503, "1", 0, "too many writes"},
		"internal, series": {func(r *recorder) {
			r.defineErr = func(labels.Labels) error { return errors.New("disk on fire") }
		}, 500, "", 0, "disk on fire"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			c.change(r)
			req := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
				floatsV1("a", prompb.Sample{Timestamp: 1}), floatsV1("b", prompb.Sample{Timestamp: 2}),
			}}
			for contentType, body := range map[string][]byte{
				contentV1: marshalV1(t, req), contentV2: marshalV2(t, v2From(req)),
			} {
				r.samples, r.aliases = nil, map[string]*recordedSeries{}
				w := post(newTestHandler(t, r, nil), contentType, body)
				require.Equal(t, c.code, w.Code, w.Body)
				require.Equal(t, c.retryAfter, w.Header().Get("Retry-After"))
				require.Contains(t, w.Body.String(), c.text)
				require.Len(t, r.samples, c.stored)
				if contentType == contentV2 {
					require.Equal(t, fmt.Sprint(c.stored), w.Header().Get(headerSamplesWritten))
				}
			}
		})
	}
}

func always(err error) func(int) error { return func(int) error { return err } }

// TestLongRequest checks that a request too large for one batch is committed in parts, and that the sender gets the
// count of the written samples.
func TestLongRequest(t *testing.T) {
	const n = 2*adapter.BatchBytes/adapter.SampleBytes + 1000
	samples := make([]prompb.Sample, n)
	for i := range samples {
		samples[i].Timestamp = int64(i)
	}
	req := v2From(&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		floatsV1("a", samples[:n-10]...), floatsV1("b", samples[n-10:]...),
	}})
	r := newRecorder()
	w := post(newTestHandler(t, r, nil), contentV2, marshalV2(t, req))
	require.Equal(t, 204, w.Code, w.Body)
	require.Equal(t, fmt.Sprint(n), w.Header().Get(headerSamplesWritten), "each counted once")
	require.Equal(t, 3, r.batches)
	require.Equal(t, wantV2(t, req), r.samples)

	r = newRecorder()
	r.commitErr = func(batch int) error {
		if batch == 2 {
			return storage.ErrOverloaded
		}
		return nil
	}
	w = post(newTestHandler(t, r, nil), contentV2, marshalV2(t, req))
	require.Equal(t, 503, w.Code)
	require.Equal(t, fmt.Sprint(adapter.BatchBytes/adapter.SampleBytes), w.Header().Get(headerSamplesWritten))
	require.Len(t, r.samples, adapter.BatchBytes/adapter.SampleBytes)
	require.Equal(t, 2, r.batches)
}

// TestRefusalText checks that the text is bounded for any content.
func TestRefusalText(t *testing.T) {
	hostile := strings.Repeat("\x00\n<script>\xff", 5000)
	req := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		{Labels: protoLabels("__name__", "m", "", hostile), Samples: make([]prompb.Sample, 3)},
		{Labels: protoLabels("job", hostile), Samples: make([]prompb.Sample, 2)},
		{Labels: protoLabels("__name__", "m", "a", "1", "a", hostile), Samples: make([]prompb.Sample, 1)},
		{Labels: protoLabels("__name__", "ok"), Samples: make([]prompb.Sample, 4)},
	}}
	for i := range 50 {
		req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
			Labels: protoLabels("__name__", "m", "a", "1", "a", fmt.Sprint(i)), Samples: make([]prompb.Sample, 1),
		})
	}
	r := newRecorder()
	w := post(newTestHandler(t, r, nil), contentV1, marshalV1(t, req))
	require.Equal(t, 400, w.Code)
	text := w.Body.String()
	require.LessOrEqual(t, len(text), 1024, "Prometheus logs no more")
	require.Contains(t, text, "56 of 60 samples rejected: duplicate_label (51 samples), such as: ")
	require.Contains(t, text, "empty_label_name (3 samples), such as: ")
	require.Contains(t, text, "missing_metric_name (2 samples), such as: ")
	for _, c := range strings.TrimSuffix(text, "\n") {
		require.True(t, c >= ' ' && c <= '~', "%q", c)
	}
	require.Len(t, r.samples, 4)
}

func TestTenant(t *testing.T) {
	var got string
	rec := newRecorder()
	h, err := newHandler(
		func(tenant string) adapter.Batch { got = tenant; return rec.newBatch(tenant) }, DefaultOptions(),
	)
	require.NoError(t, err)
	post(h, contentV1, marshalV1(t, oneSample()))
	require.Equal(t, tenant.Default, got)
	ctx := tenant.NewContext(context.Background(), "acme")
	r := httptest.NewRequestWithContext(
		ctx, http.MethodPost, "/", strings.NewReader(string(snappy.Encode(nil, marshalV1(t, oneSample())))),
	)
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, "acme", got)
}

// TestInFlightBytes checks that a large request is rejected with 503 while the incomplete body of another request holds
// the bytes, that a small request is accepted, and that all bytes are released afterwards.
func TestInFlightBytes(t *testing.T) {
	opts := DefaultOptions()
	opts.MaxCompressed, opts.MaxDecoded, opts.MaxInFlight = 1<<20, 1<<20, 2<<20
	h, err := newHandler(newRecorder().newBatch, opts)
	require.NoError(t, err)
	big := snappy.Encode(nil, randomBytes(900<<10))
	require.Equal(t, 400, postRaw(h, contentV1, "snappy", big).Code, "it fits, though it is no protobuf")
	require.Zero(t, h.budget.Used())

	pr, pw := io.Pipe()
	done := make(chan int)
	go func() {
		r := httptest.NewRequest(http.MethodPost, "/", pr)
		r.ContentLength = int64(len(big))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		done <- w.Code
	}()
	_, err = pw.Write(big[:len(big)-1])
	require.NoError(t, err)
	w := postRaw(h, contentV1, "snappy", big)
	require.Equal(t, 503, w.Code, "two don't fit")
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, 204, post(h, contentV1, marshalV1(t, oneSample())).Code, "a small one does")
	_, err = pw.Write(big[len(big)-1:])
	require.NoError(t, err)
	require.NoError(t, pw.Close())
	require.Equal(t, 400, <-done)
	require.Zero(t, h.budget.Used(), "everything is given back")
}

// randomBytes returns incompressible data.
func randomBytes(n int) []byte {
	b, x := make([]byte, n), uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	now := time.Unix(0, 0)
	h := newTestHandler(t, newRecorder(), func(o *Options) {
		o.Registerer = reg
		o.Now = func() time.Time { now = now.Add(3 * time.Millisecond); return now }
	})
	post(h, contentV1, marshalV1(t, variedRequest()))
	post(h, contentV2, marshalV2(t, v2From(&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		floatsV1("", prompb.Sample{}, prompb.Sample{}), floatsV1("m", prompb.Sample{}),
	}})))
	post(h, "text/plain", nil)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP cassia_write_samples_total Samples and histograms received by remote write, by result: stored (durable), rejected (the response has the reason), dropped (by a rule of --write.relabel-file).
# TYPE cassia_write_samples_total counter
cassia_write_samples_total{result="dropped"} 0
cassia_write_samples_total{result="rejected"} 2
cassia_write_samples_total{result="stored"} 10
# HELP cassia_write_rejected_samples_total Samples and histograms rejected by remote write, by reason.
# TYPE cassia_write_rejected_samples_total counter
cassia_write_rejected_samples_total{reason="missing_metric_name"} 2
# HELP cassia_write_requests_total Remote write requests by protocol version and status code.
# TYPE cassia_write_requests_total counter
cassia_write_requests_total{code="204",version="1.0"} 1
cassia_write_requests_total{code="400",version="2.0"} 1
cassia_write_requests_total{code="415",version="unknown"} 1
# HELP cassia_write_in_flight_bytes Bytes of remote write requests in flight, compressed and decompressed.
# TYPE cassia_write_in_flight_bytes gauge
cassia_write_in_flight_bytes 0
`), "cassia_write_samples_total", "cassia_write_rejected_samples_total", "cassia_write_requests_total", "cassia_write_in_flight_bytes"))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "cassia_write_ack_seconds" {
			ack := f.Metric[0].GetHistogram()
			require.Equal(t, uint64(2), ack.GetSampleCount())
			require.InDelta(t, .006, ack.GetSampleSum(), 1e-9)
			require.NotEmpty(t, ack.GetBucket(), "classic")
			require.NotEmpty(t, ack.GetPositiveSpan(), "and native")
			return
		}
	}
	t.Fatal("no cassia_write_ack_seconds")
}

func TestOptionsAreChecked(t *testing.T) {
	for what, change := range map[string]func(*Options){
		"no room":          func(o *Options) { o.MaxDecoded = 0 },
		"too much room":    func(o *Options) { o.MaxDecoded, o.MaxInFlight = 1<<31, 1<<40 },
		"in flight":        func(o *Options) { o.MaxInFlight = o.MaxDecoded },
		"no retry":         func(o *Options) { o.RetryBusy = 0 },
		"no clock":         func(o *Options) { o.Now = nil },
		"nothing can come": func(o *Options) { o.MaxCompressed = 0 },
	} {
		opts := DefaultOptions()
		require.NoError(t, opts.Validate())
		change(&opts)
		_, err := newHandler(newRecorder().newBatch, opts)
		require.ErrorIs(t, err, errOptions, what)
	}
}

// TestSymbolBound checks that a request with more than maxSymbols symbols is rejected.
func TestSymbolBound(t *testing.T) {
	body := make([]byte, 0, 2*maxSymbols+2)
	for range maxSymbols + 1 {
		body = append(body, v2Symbols<<3|wireBytes, 0)
	}
	h := newTestHandler(t, newRecorder(), nil)
	require.Equal(t, 204, post(h, contentV2, body[2:]).Code)
	require.Equal(t, 400, post(h, contentV2, body).Code)
}
