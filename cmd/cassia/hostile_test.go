package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// hostileMemory is the max number of bytes by which a hostile request may increase the heap.
const hostileMemory = 384 << 20

// attack is a malicious request. codes contains the acceptable response codes.
type attack struct {
	path   string
	body   func() io.Reader
	header http.Header
	codes  []int
}

const formType = "application/x-www-form-urlencoded"

func form(values ...string) func() io.Reader {
	v := url.Values{}
	for i := 0; i < len(values); i += 2 {
		v.Add(values[i], values[i+1])
	}
	return content([]byte(v.Encode()))
}

func content(b []byte) func() io.Reader {
	return func() io.Reader { return bytes.NewReader(b) }
}

// endlessReader is a reader that never reaches the end.
type endlessReader struct{}

func (endlessReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func contentHeaders(kind, encoding string) http.Header {
	h := http.Header{"Content-Type": {kind}}
	if encoding != "" {
		h.Set("Content-Encoding", encoding)
	}
	return h
}

func attacks(t *testing.T) map[string]attack {
	written, asked := contentHeaders("application/x-protobuf", "snappy"), contentHeaders(formType, "")
	var gzipped bytes.Buffer
	z, err := gzip.NewWriterLevel(&gzipped, gzip.BestSpeed)
	require.NoError(t, err)
	_, err = io.Copy(z, io.LimitReader(endlessReader{}, 256<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	flood := prompb.TimeSeries{
		Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}},
		Labels:  []prompb.Label{{Name: "__name__", Value: "flood"}},
	}
	for i := range 100_000 {
		flood.Labels = append(flood.Labels, prompb.Label{Name: fmt.Sprintf("label_%06d", i), Value: "x"})
	}
	flooding, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{flood}}).Marshal()
	require.NoError(t, err)
	deep := func(open, inner, closed string, n int) func() io.Reader {
		return form("query", strings.Repeat(open, n)+inner+strings.Repeat(closed, n))
	}
	var selectors []string
	for range 5000 {
		selectors = append(selectors, "match[]", "up")
	}
	const query, ranged, write = "/api/v1/query", "/api/v1/query_range", "/api/v1/write"
	return map[string]attack{
		"snappy claims 4 GiB":      {write, content([]byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2, 3}), written, []int{400, 413}},
		"snappy bomb":              {write, content(snappy.Encode(nil, make([]byte, 512<<20))), written, []int{400, 413}},
		"gzip bomb":                {"/api/v1/otlp/v1/metrics", content(gzipped.Bytes()), contentHeaders("application/x-protobuf", "gzip"), []int{400, 413}},
		"label flood":              {write, content(snappy.Encode(nil, flooding)), written, []int{400}},
		"endless write":            {write, func() io.Reader { return endlessReader{} }, written, []int{400, 413}},
		"endless query":            {query, func() io.Reader { return endlessReader{} }, asked, []int{413}},
		"endless read":             {"/api/v1/read", func() io.Reader { return endlessReader{} }, written, []int{413}},
		"read bomb":                {"/api/v1/read", content(snappy.Encode(nil, bytes.Repeat([]byte{0x0a, 0}, 15<<20))), written, []int{413}},
		"many reads":               {"/api/v1/read", content(snappy.Encode(nil, bytes.Repeat([]byte{0x0a, 0}, 1000))), written, []int{413}},
		"read claims":              {"/api/v1/read", content([]byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1}), written, []int{400, 413}},
		"many parameters":          {query, content([]byte(strings.Repeat("a&", 2<<20))), asked, []int{400}},
		"regex of 10,000 terms":    {query, form("query", `{__name__=~"`+strings.Repeat("term_of_a_regex|", 10_000)+`a"}`), asked, []int{200}},
		"regex of many copies":     {query, form("query", `{__name__=~"((((a{100}){100}){100}){100})"}`), asked, []int{400}},
		"deep regex":               {query, form("query", `{__name__=~"`+strings.Repeat("(", 100_000)+strings.Repeat(")", 100_000)+`"}`), asked, []int{400}},
		"deep query":               {query, deep("(", "a", ")", 1_000_000), asked, []int{400}},
		"deep query, laid out":     {"/api/v1/format_query", deep("(", "a", ")", 100_000), asked, []int{400}},
		"deep query, parsed":       {"/api/v1/parse_query", deep("abs(", "a", ")", 100_000), asked, []int{400}},
		"long sum":                 {query, deep("a+", "a", "", 100_000), asked, []int{400}},
		"many signs":               {query, deep("-", "a", "", 1_000_000), asked, []int{400}},
		"huge matcher":             {query, form("query", `{a="`+strings.Repeat("x", 9<<20)+`"}`), asked, []int{400}},
		"many matchers":            {query, form("query", `{`+strings.Repeat(`a="x",`, 100_000)+`}`), asked, []int{400}},
		"many selectors":           {"/api/v1/series", form(selectors...), asked, []int{400}},
		"1e9 steps":                {ranged, form("query", "up", "start", "0", "end", "1000000000", "step", "1"), asked, []int{400}},
		"steps of a subquery":      {query, form("query", "count_over_time(vector(1)[50y:1ms])"), asked, []int{400}},
		"steps of many subqueries": {query, form("query", "sum_over_time((vector(1)[1y:1s])[1y:1s])"), asked, []int{400, 422}},
		"long header":              {query, form("query", "up"), http.Header{"Content-Type": {formType}, "X-Long": {strings.Repeat("x", 270<<10)}}, []int{431}},
	}
}

// TestHostileInput sends malicious requests one after another. Each is rejected with a clear status code, the memory
// stays bounded, and the server continues to accept samples and answer queries.
func TestHostileInput(t *testing.T) {
	if testing.Short() {
		t.Skip("makes bodies of hundreds of megabytes: leave -short out")
	}
	r := startServe(t, "--storage.path="+t.TempDir(), "--query.max-samples=1000000", "--storage.cache-bytes=16MiB")
	at := time.Now().Truncate(time.Second)
	r.Write(t, "before", at, 1)
	require.Equal(t, "1", r.Value(t, "before", at))
	list := attacks(t)
	runtime.GC()
	base := heapBytes()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(base) + hostileMemory/2)) // Collect garbage early.
	for about, a := range list {
		t.Run(about, func(t *testing.T) {
			peak := watchHeap()
			code, text := r.sendAttack(t, a)
			grown := int64(peak()) - int64(base)
			t.Logf("%d %.80q, at most %d MiB more", code, text, grown>>20)
			require.Contains(t, a.codes, code, "%.300s", text)
			require.Less(t, len(text), 1<<20, "an answer is no longer than a query may be")
			require.Less(t, grown, int64(hostileMemory))
		})
		r.Write(t, "after", at, 2)
		require.Equal(t, "2", r.Value(t, "after", at), about)
	}
	r.sendRandom(t)
	r.Write(t, "last", at, 3)
	require.Equal(t, "3", r.Value(t, "last", at))
	_, metrics := r.Get(t, "/metrics")
	require.Contains(t, metrics, "cassia_http_panics_total 0")
}

// sendAttack sends a malicious request and returns the status and the body of the response.
func (r running) sendAttack(t *testing.T, a attack) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+a.path, a.body())
	require.NoError(t, err)
	request.Header = a.header
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// sendRandom sends random and truncated bodies to every endpoint. No response may be a 5xx.
func (r running) sendRandom(t *testing.T) {
	t.Helper()
	whole, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "cut"}, {Name: "a", Value: "b"}},
		Samples: []prompb.Sample{{Timestamp: 1, Value: 1}},
	}}}).Marshal()
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	for _, way := range []struct {
		path   string
		header http.Header
	}{
		{"/api/v1/write", contentHeaders("application/x-protobuf", "snappy")},
		{"/api/v1/write", contentHeaders("application/x-protobuf;proto=io.prometheus.write.v2.Request", "snappy")},
		{"/api/v1/otlp/v1/metrics", contentHeaders("application/x-protobuf", "")},
		{"/api/v1/otlp/v1/metrics", contentHeaders("application/x-protobuf", "gzip")},
		{"/api/v1/otlp/v1/metrics", contentHeaders("application/json", "")},
		{"/api/v1/read", contentHeaders("application/x-protobuf", "snappy")},
		{"/api/v1/query", contentHeaders(formType, "")},
		{"/api/v1/query_range", contentHeaders("multipart/form-data; boundary=x", "")},
		{"/api/v1/series", contentHeaders(formType, "")},
		{"/api/v1/query_exemplars", contentHeaders(formType, "")},
	} {
		for i := range 30 {
			body := make([]byte, random.IntN(300))
			for j := range body {
				body[j] = byte(random.Uint32())
			}
			switch i % 3 {
			case 1:
				body = snappy.Encode(nil, body)
			case 2:
				body = snappy.Encode(nil, whole[:random.IntN(len(whole))])
				body = body[:random.IntN(len(body)+1)]
			}
			code, text := r.sendAttack(t, attack{path: way.path, body: content(body), header: way.header})
			require.Less(t, code, 500, "%s %x: %s", way.path, body, text)
		}
	}
}

func heapBytes() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse
}

// watchHeap measures the heap until the returned function is called. The function returns the max size in bytes.
func watchHeap() func() uint64 {
	stop, most := make(chan struct{}), uint64(0)
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			most = max(most, heapBytes())
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return func() uint64 { close(stop); watching.Wait(); return most }
}

// TestClosingTheConnectionStopsAQuery checks that a query stops immediately when its client disconnects. Each of these
// queries would run for half a minute on a fast machine.
func TestClosingTheConnectionStopsAQuery(t *testing.T) {
	r := startServe(t, "--storage.path="+t.TempDir(), "--query.timeout=1h", "--query.max-concurrency=1")
	const days = 20
	at := time.Now().Truncate(time.Second)
	series := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "a"}}}
	for n := range days * 24 * 60 { // A step without samples would cost no time.
		series.Samples = append(series.Samples, prompb.Sample{
			Timestamp: at.Add(-time.Duration(n) * time.Minute).UnixMilli(), Value: 1,
		})
	}
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series}}).Marshal()
	require.NoError(t, err)
	code, text := r.Post(t, "/api/v1/write", snappy.Encode(nil, body))
	require.Equal(t, http.StatusNoContent, code, text)
	require.Equal(t, "1", r.Value(t, "a", at))
	for about, query := range map[string]string{
		"evaluator": fmt.Sprintf("max_over_time(sum_over_time(sum_over_time(vector(1)[1h:1s])[1h:1s])[%dd:1s])", days),
		"planner":   fmt.Sprintf("max_over_time(sum_over_time(sum_over_time(a[1h:1s])[1h:1s])[%dd:1s])", days),
	} {
		ctx, hangUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			request, err := http.NewRequestWithContext(
				ctx, http.MethodGet, r.URL+"/api/v1/query?query="+url.QueryEscape(query), nil,
			)
			if err != nil {
				ended <- err
				return
			}
			answer, err := http.DefaultClient.Do(request)
			if err == nil {
				err = errors.Join(fmt.Errorf("it was answered with %d", answer.StatusCode), answer.Body.Close())
			}
			ended <- err
		}()
		running := func(n string) func() bool {
			return func() bool {
				_, metrics := r.Get(t, "/metrics")
				return strings.Contains(metrics, "\nprometheus_engine_queries "+n+"\n")
			}
		}
		require.Eventually(t, func() bool {
			require.Empty(t, ended, "%s: it has ended by itself", about)
			return running("1")()
		}, cassiatest.Patience, 5*time.Millisecond, about)
		hangUp()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Eventually(t, running("0"), cassiatest.Patience, 5*time.Millisecond, about)
		require.Equal(t, "1", r.Value(t, "a", at), "the only place is free again")
	}
}
