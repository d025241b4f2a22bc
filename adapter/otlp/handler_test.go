package otlp

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// addMetric appends a metric to the message's resource with job "j".
func addMetric(md pmetric.Metrics, name string) pmetric.Metric {
	if md.ResourceMetrics().Len() == 0 {
		of := md.ResourceMetrics().AppendEmpty()
		of.Resource().Attributes().PutStr("service.name", "j")
		of.ScopeMetrics().AppendEmpty()
	}
	m := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().AppendEmpty()
	m.SetName(name)
	return m
}

func timestampOf(t time.Time) pcommon.Timestamp { return pcommon.NewTimestampFromTime(t) }

func addGauge(md pmetric.Metrics, name string, at time.Time) pmetric.NumberDataPoint {
	p := addMetric(md, name).SetEmptyGauge().DataPoints().AppendEmpty()
	p.SetTimestamp(timestampOf(at))
	p.SetDoubleValue(1)
	return p
}

func encode(t testing.TB, md pmetric.Metrics, e encoding) []byte {
	req := pmetricotlp.NewExportRequestFromMetrics(md)
	body, err := req.MarshalJSON()
	if e == encodingProtobuf {
		body, err = req.MarshalProto()
	}
	require.NoError(t, err)
	return body
}

// reply is a response in the encoding of its request.
type reply struct {
	code     int
	header   http.Header
	rejected int64
	message  string
	rpc      int32
}

func (s *server) post(t testing.TB, e encoding, body []byte, headers ...string) reply {
	q, err := http.NewRequest(http.MethodPost, s.URL, bytes.NewReader(body))
	require.NoError(t, err)
	q.Header.Set("Content-Type", e.mediaType())
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return parseReply(t, e, answer, text)
}

func parseReply(t testing.TB, e encoding, answer *http.Response, text []byte) reply {
	out := reply{code: answer.StatusCode, header: answer.Header}
	require.Equal(t, e.mediaType(), answer.Header.Get("Content-Type"), "%d %s", answer.StatusCode, text)
	if answer.StatusCode == http.StatusOK {
		response := pmetricotlp.NewExportResponse()
		if e == encodingProtobuf {
			require.NoError(t, response.UnmarshalProto(text))
		} else {
			require.NoError(t, response.UnmarshalJSON(text))
		}
		out.rejected = response.PartialSuccess().RejectedDataPoints()
		out.message = response.PartialSuccess().ErrorMessage()
		return out
	}
	var problem status.Status
	if e == encodingProtobuf {
		require.NoError(t, proto.Unmarshal(text, &problem))
	} else {
		require.NoError(t, json.Unmarshal(text, &struct {
			Code    *int32  `json:"code"`
			Message *string `json:"message"`
		}{&problem.Code, &problem.Message}))
	}
	require.NotEmpty(t, problem.Message)
	out.rpc, out.message = problem.Code, problem.Message
	return out
}

func gzipBytes(t testing.TB, body []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestEncodings(t *testing.T) {
	s := newServer(t, nil, nil, nil)
	for _, e := range []encoding{encodingJSON, encodingProtobuf} {
		for _, compress := range []bool{false, true} {
			md := pmetric.NewMetrics()
			addGauge(md, fmt.Sprintf("m_%s_%v", e, compress), time.Now())
			body, headers := encode(t, md, e), []string{"Content-Type", e.mediaType() + "; charset=utf-8"}
			if compress {
				body, headers = gzipBytes(t, body), append(headers, "Content-Encoding", "gzip")
			}
			got := s.post(t, e, body, headers...)
			require.Equal(t, reply{code: http.StatusOK, header: got.header}, got)
			require.Contains(t, s.series(t, tenant.Default), fmt.Sprintf(`{__name__="m_%s_%v", job="j"}`, e, compress))
		}
	}
	require.Equal(t, http.StatusOK, s.post(t, encodingJSON, []byte("{}")).code)
	require.Equal(t, http.StatusOK, s.post(t, encodingProtobuf, nil).code)
}

// A body that isn't OTLP is rejected in the encoding of the request, and nothing is stored.
func TestRefusesTheRequest(t *testing.T) {
	s := newServer(t, nil, func(o *Options) { o.MaxBody, o.MaxDecoded, o.MaxMemory = 10_000, 20_000, 100_000 }, nil)
	deep := strings.Repeat(`{"a":[`, 100)
	proto := encodingProtobuf
	nested := []byte{}
	for range 200 { // arrays nested in arrays …
		nested = append([]byte{1<<3 | 2}, append(encodeVarint(len(nested)), nested...)...)
		nested = append([]byte{5<<3 | 2}, append(encodeVarint(len(nested)), nested...)...)
	}
	for range 2 { // … as the value of a resource attribute
		nested = append([]byte{2<<3 | 2}, append(encodeVarint(len(nested)), nested...)...)
	}
	nested[0] = 1<<3 | 2
	for range 2 {
		nested = append([]byte{1<<3 | 2}, append(encodeVarint(len(nested)), nested...)...)
	}
	points := bytes.Repeat([]byte{1<<3 | 2, 0}, 4000)
	for _, field := range []byte{5, 2, 2, 1} {
		points = append([]byte{field<<3 | 2}, append(encodeVarint(len(points)), points...)...)
	}
	for name, c := range map[string]struct {
		e       encoding
		body    []byte
		headers []string
		code    int
		rpc     code.Code
	}{
		"text":                {encodingJSON, []byte("hello"), []string{"Content-Type", "text/plain"}, 415, code.Code_INVALID_ARGUMENT},
		"no type":             {encodingJSON, []byte("{}"), []string{"Content-Type", ""}, 415, code.Code_INVALID_ARGUMENT},
		"zstd":                {proto, []byte("x"), []string{"Content-Encoding", "zstd"}, 415, code.Code_INVALID_ARGUMENT},
		"not gzip":            {proto, []byte("hello, hello, hello"), []string{"Content-Encoding", "gzip"}, 400, code.Code_INVALID_ARGUMENT},
		"truncated gzip":      {proto, gzipBytes(t, []byte("hello"))[:20], []string{"Content-Encoding", "gzip"}, 400, code.Code_INVALID_ARGUMENT},
		"not JSON":            {encodingJSON, []byte("{"), nil, 400, code.Code_INVALID_ARGUMENT},
		"not protobuf":        {proto, []byte("hello"), nil, 400, code.Code_INVALID_ARGUMENT},
		"truncated":           {proto, []byte{10, 200}, nil, 400, code.Code_INVALID_ARGUMENT},
		"deep JSON":           {encodingJSON, []byte(deep), nil, 400, code.Code_INVALID_ARGUMENT},
		"deep attribute":      {proto, nested, nil, 400, code.Code_INVALID_ARGUMENT},
		"large":               {proto, make([]byte, 10_001), nil, 413, code.Code_RESOURCE_EXHAUSTED},
		"bomb":                {proto, gzipBytes(t, make([]byte, 1<<20)), []string{"Content-Encoding", "gzip"}, 413, code.Code_RESOURCE_EXHAUSTED},
		"bomb of points":      {proto, points, nil, 413, code.Code_RESOURCE_EXHAUSTED},
		"bomb of JSON points": {encodingJSON, []byte(`{"resourceMetrics":[` + strings.Repeat("{},", 300) + "{}]}"), nil, 413, code.Code_RESOURCE_EXHAUSTED},
	} {
		got := s.post(t, c.e, c.body, c.headers...)
		require.Equal(t, c.code, got.code, "%s: %s", name, got.message)
		require.EqualValues(t, c.rpc, got.rpc, name)
	}
	answer, err := http.Get(s.URL)
	require.NoError(t, err)
	require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
	require.Equal(t, http.MethodPost, answer.Header.Get("Allow"))
	require.NoError(t, answer.Body.Close())
	require.Empty(t, s.series(t, tenant.Default))
}

func encodeVarint(n int) (out []byte) {
	for ; n >= 0x80; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(out, byte(n))
}

// Each metric in this test is named after a reason and has two data points that are rejected for that reason. Valid
// points of the same requests are stored.
func TestRefusesPoints(t *testing.T) {
	s := newServer(t, nil, nil, storagetest.RejectAhead)
	now := time.Now()
	md := pmetric.NewMetrics()
	addGauge(md, "good", now)
	for range 2 {
		delta := addMetric(md, reasonDeltaWithoutStart).SetEmptySum()
		delta.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		delta.DataPoints().AppendEmpty().SetTimestamp(timestampOf(now))
		turned := addMetric(md, reasonDeltaInvalidStart).SetEmptyHistogram()
		turned.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		backwards := turned.DataPoints().AppendEmpty()
		backwards.SetTimestamp(timestampOf(now))
		backwards.SetStartTimestamp(timestampOf(now))
		addMetric(md, reasonNoTemporality).SetEmptyHistogram().DataPoints().AppendEmpty().SetTimestamp(timestampOf(now))
		addGauge(md, reasonNoTimestamp, time.Unix(0, 0))
		coarse := addMetric(md, reasonBadScale).SetEmptyExponentialHistogram()
		coarse.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		coarse.DataPoints().AppendEmpty().SetScale(-5)
		many := addGauge(md, reasonTooManyAttributes, now)
		for i := range maxAttributes + 1 {
			many.Attributes().PutInt(fmt.Sprint("a", i), 1)
		}
		addGauge(md, adapter.ReasonTooOld, now.AddDate(-3, 0, 0))
		addGauge(md, adapter.ReasonTooFarAhead, now.Add(time.Hour))
		addGauge(md, storage.ReasonLabelValueTooLong, now).Attributes().PutStr("a", strings.Repeat("x", 5000))
		wrong := addMetric(md, adapter.ReasonInvalidHistogram).SetEmptyExponentialHistogram()
		wrong.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		h := wrong.DataPoints().AppendEmpty()
		h.SetTimestamp(timestampOf(now))
		h.SetCount(1)
		h.Positive().BucketCounts().FromRaw([]uint64{5, 6}) // more than the count
		addGauge(md, "", now)                               // untranslatable
	}
	// The series of the histogram's buckets have one label too many. The point counts as rejected only once.
	edge := addMetric(md, "edge").SetEmptyHistogram()
	edge.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := edge.DataPoints().AppendEmpty()
	p.SetTimestamp(timestampOf(now))
	for i := range 62 {
		p.Attributes().PutInt(fmt.Sprint("a", i), 1)
	}
	p.ExplicitBounds().FromRaw([]float64{1, 2})
	p.BucketCounts().FromRaw([]uint64{1, 1, 1})
	p.SetCount(3)
	p.SetSum(4)

	got := s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf))
	require.Equal(t, http.StatusOK, got.code, got.message)
	require.EqualValues(t, 23, got.rejected, got.message)
	require.True(t, strings.HasPrefix(got.message, "23 of 24 data points rejected: "), got.message)
	stored := s.series(t, tenant.Default)
	require.Contains(t, stored, `{__name__="good", job="j"}`)
	for name := range stored {
		require.True(t, strings.Contains(name, `"good"`) || strings.Contains(name, `"edge_`), name)
	}

	// Sent alone, each of these metrics is rejected with 400 and its reason.
	for i := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().Len() {
		one := pmetric.NewMetrics()
		m := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(i)
		m.CopyTo(addMetric(one, ""))
		got := s.post(t, encodingJSON, encode(t, one, encodingJSON))
		switch reason := m.Name(); reason {
		case "good":
			require.Equal(t, http.StatusOK, got.code)
			continue
		case "edge":
			require.Contains(t, got.message, storage.ReasonTooManyLabels)
		case "":
			require.Contains(t, got.message, reasonUntranslatable)
		default:
			require.Contains(t, got.message, ": "+reason+" (1), such as: ")
		}
		require.Equal(t, http.StatusBadRequest, got.code, got.message)
		require.EqualValues(t, code.Code_INVALID_ARGUMENT, got.rpc)
	}
}

// A resource whose points are decades apart would have millions of samples of target_info.
func TestTargetInfoIsBounded(t *testing.T) {
	s := newServer(t, nil, nil, func(o *storage.Options) { o.Retention = 0 })
	md := pmetric.NewMetrics()
	now := time.Now()
	addGauge(md, "m", now)
	addGauge(md, "m", time.Unix(1, 0))
	md.ResourceMetrics().At(0).Resource().Attributes().PutStr("region", "eu")
	got := s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf))
	require.Equal(t, http.StatusOK, got.code)
	require.Zero(t, got.rejected)
	require.Contains(t, got.message, reasonTargetInfo)
	stored := s.series(t, tenant.Default)
	info, m := stored[`{__name__="target_info", job="j", region="eu"}`], stored[`{__name__="m", job="j"}`]
	require.Equal(t, maxTargetInfo, info.Len())
	require.Equal(t, 2, m.Len())
}

// The product of labels and buckets is bounded, because each bucket's series has all labels.
func TestWorkIsBounded(t *testing.T) {
	md := pmetric.NewMetrics()
	h := addMetric(md, "h").SetEmptyHistogram()
	h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for range 2 {
		p := h.DataPoints().AppendEmpty()
		p.SetTimestamp(1)
		p.Attributes().PutStr("a", strings.Repeat("x", 1<<20))
		p.ExplicitBounds().FromRaw(make([]float64, 1500))
	}
	var r rejections
	points, left, _ := pruneMetrics(md, &Translation{}, &r)
	require.Equal(t, [2]int{2, 1}, [2]int{points, left})
	require.Equal(t, reasonTooMuchText, r[0].reason)
	points, left, _ = pruneMetrics(md, &Translation{ConvertHistogramsToNHCB: true}, &r)
	require.Equal(t, [2]int{1, 1}, [2]int{points, left}, "with custom buckets a point is one series")
}

func TestWithoutRoomOrEngine(t *testing.T) {
	md := pmetric.NewMetrics()
	addGauge(md, "m", time.Now())
	full := newServer(t, nil, nil, func(o *storage.Options) { o.HeadBytes = 1100 })
	require.Equal(t, http.StatusOK, full.post(t, encodingProtobuf, encode(t, md, encodingProtobuf)).code,
		"the head was empty")
	addGauge(md, "other", time.Now())
	got := full.post(t, encodingProtobuf, encode(t, md, encodingProtobuf))
	require.Equal(t, http.StatusTooManyRequests, got.code)
	require.EqualValues(t, code.Code_RESOURCE_EXHAUSTED, got.rpc)
	require.Equal(t, "30", got.header.Get("Retry-After"))
	require.Contains(t, got.message, adapter.ReasonTooManySeries)

	down := newServer(t, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.Table == engine.Stage {
			return faultengine.Fail(engine.ErrUnavailable)
		}
		return faultengine.Pass()
	}, nil, nil)
	got = down.post(t, encodingJSON, encode(t, md, encodingJSON))
	require.Equal(t, http.StatusServiceUnavailable, got.code)
	require.EqualValues(t, code.Code_UNAVAILABLE, got.rpc)
	require.Equal(t, "1", got.header.Get("Retry-After"))
}

func TestMarkersAndStarts(t *testing.T) {
	s := newServer(t, nil, nil, nil)
	now := time.Now()
	md := pmetric.NewMetrics()
	p := addGauge(md, "m", now)
	p.SetStartTimestamp(timestampOf(now.Add(-time.Minute)))
	p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	h := addMetric(md, "h").SetEmptyHistogram()
	h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	h.DataPoints().AppendEmpty().SetTimestamp(timestampOf(now))
	e := addMetric(md, "e").SetEmptyExponentialHistogram()
	e.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	ep := e.DataPoints().AppendEmpty()
	ep.SetTimestamp(timestampOf(now))
	ep.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	require.Equal(t, reply{code: http.StatusOK}, func() reply {
		got := s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf))
		got.header = nil
		return got
	}())
	stored := s.series(t, tenant.Default)
	require.Len(t, stored, 4, "m, h_count, h_bucket, e")
	m := stored[`{__name__="m", job="j"}`]
	require.EqualValues(t, 0x7ff0000000000002, math.Float64bits(m.V[0]))
	require.Equal(t, []int64{now.Add(-time.Minute).UnixMilli()}, m.ST)
	require.EqualValues(t, 0x7ff0000000000002, math.Float64bits(stored[`{__name__="e", job="j"}`].H[0].Int.Sum))
}

func TestTranslations(t *testing.T) {
	for _, c := range []struct {
		Translation
		want []string
	}{
		{Translation{Strategy: "UnderscoreEscapingWithoutSuffixes",
			PromoteResourceAttributes: []string{"zone.name"}}, []string{
			`{__name__="a_b_bucket", job="s", le="+Inf", x_y="1", zone_name="z"}`,
			`{__name__="a_b_bucket", job="s", le="2", x_y="1", zone_name="z"}`,
			`{__name__="a_b_count", job="s", x_y="1", zone_name="z"}`,
			`{__name__="target_info", job="s", zone_name="z"}`}},
		{Translation{Strategy: "NoUTF8EscapingWithSuffixes", PromoteAllResourceAttributes: true,
			IgnoreResourceAttributes: []string{"service.name"}, ConvertHistogramsToNHCB: true}, []string{
			`{__name__="a.b_bytes", job="s", "x.y"="1", "zone.name"="z"}`,
			`{__name__="target_info", job="s", "zone.name"="z"}`}},
		{Translation{Strategy: "NoTranslation", KeepIdentifyingResourceAttributes: true, PromoteScopeMetadata: true,
			ConvertHistogramsToNHCB: true}, []string{
			`{__name__="a.b", job="s", otel_scope_name="scope", otel_scope_schema_url="", otel_scope_version="1", "x.y"="1"}`,
			`{__name__="target_info", job="s", "service.name"="s", "zone.name"="z"}`}},
	} {
		s := newServer(t, nil, func(o *Options) { o.Translation = c.Translation }, nil)
		md := pmetric.NewMetrics()
		h := addMetric(md, "a.b")
		h.SetUnit("By")
		h.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		p := h.Histogram().DataPoints().AppendEmpty()
		p.SetTimestamp(timestampOf(time.Now()))
		p.Attributes().PutStr("x.y", "1")
		p.ExplicitBounds().FromRaw([]float64{2})
		p.BucketCounts().FromRaw([]uint64{1, 1})
		p.SetCount(2)
		of := md.ResourceMetrics().At(0)
		of.Resource().Attributes().PutStr("service.name", "s")
		of.Resource().Attributes().PutStr("zone.name", "z")
		of.ScopeMetrics().At(0).Scope().SetName("scope")
		of.ScopeMetrics().At(0).Scope().SetVersion("1")
		require.Equal(t, http.StatusOK, s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf)).code)
		var got []string
		for name := range s.series(t, tenant.Default) {
			got = append(got, name)
		}
		for i, want := range c.want {
			c.want[i] = strings.Replace(want, ` otel_scope_schema_url="",`, "", 1) // an empty label doesn't exist
		}
		require.ElementsMatch(t, c.want, got)
	}
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"strategy":       func(o *Options) { o.Strategy = "Latin" },
		"all and some":   func(o *Options) { o.PromoteAllResourceAttributes, o.PromoteResourceAttributes = true, []string{"a"} },
		"ignored of few": func(o *Options) { o.IgnoreResourceAttributes = []string{"a"} },
		"no name":        func(o *Options) { o.PromoteResourceAttributes = []string{""} },
		"in flight":      func(o *Options) { o.MaxInFlight = 1 },
		"body":           func(o *Options) { o.MaxBody = 0 },
		"retry":          func(o *Options) { o.RetryBusy = 0 },
		"lookback":       func(o *Options) { o.LookbackDelta = 0 },
		"logger":         func(o *Options) { o.Logger = nil },
	} {
		o := DefaultOptions()
		require.NoError(t, o.Validate())
		change(&o)
		_, err := Handler(nil, o)
		require.ErrorIs(t, err, errOptions, name)
	}
}

// FuzzHandler sends bodies in both encodings. It fails on panics and on responses that aren't OTLP's. If both
// estimateMemory and the decoder accept a body as OTLP, its weight must be at least its size on the wire.
func FuzzHandler(f *testing.F) {
	s := newServer(f, nil, func(o *Options) { o.MaxMemory = 8 << 20 }, nil)
	md := pmetric.NewMetrics()
	addGauge(md, "m", time.Now())
	h := addMetric(md, "h").SetEmptyExponentialHistogram()
	h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := h.DataPoints().AppendEmpty()
	p.SetTimestamp(timestampOf(time.Now()))
	p.SetScale(20)
	p.Positive().BucketCounts().FromRaw([]uint64{1, 0, 0, 0, 2})
	p.Exemplars().AppendEmpty().SetIntValue(3)
	q := addMetric(md, "q").SetEmptySummary().DataPoints().AppendEmpty()
	q.SetTimestamp(timestampOf(time.Now()))
	q.QuantileValues().AppendEmpty().SetQuantile(0.5)
	for _, e := range []encoding{encodingJSON, encodingProtobuf} {
		f.Add(e == encodingProtobuf, encode(f, md, e))
	}
	f.Fuzz(func(t *testing.T, protobuf bool, body []byte) {
		e := encodingJSON
		if protobuf {
			e = encodingProtobuf
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", e.mediaType())
		s.Config.Handler.ServeHTTP(w, r)
		got := parseReply(t, e, w.Result(), w.Body.Bytes())
		require.Contains(t, []int{http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge}, got.code)
	})
}

// A request with a data point ahead of the server's clock, which may be slow, is rejected with 503, so that it is
// retried: a collector would drop the point after a partial success. The other points are stored.
func TestPointsThatMayBeAhead(t *testing.T) {
	at := time.Now()
	s := newServer(t, nil, nil, storagetest.Clock(func() time.Time { return at }))
	for _, alone := range []bool{true, false} {
		md := pmetric.NewMetrics()
		if !alone {
			addGauge(md, "good", at)
			addGauge(md, adapter.ReasonTooOld, at.AddDate(-3, 0, 0))
		}
		addGauge(md, "ahead", at.Add(time.Hour))
		got := s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf))
		require.Equal(t, http.StatusServiceUnavailable, got.code, got.message)
		require.Contains(t, got.message, adapter.ReasonMaybeAhead)
	}
	require.Contains(t, s.series(t, tenant.Default), `{__name__="good", job="j"}`)
	at = at.Add(15 * time.Minute)
	md := pmetric.NewMetrics()
	addGauge(md, "ahead", at.Add(time.Hour))
	got := s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf))
	require.Equal(t, http.StatusBadRequest, got.code, got.message)
}
