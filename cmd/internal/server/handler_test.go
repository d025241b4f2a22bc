package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/tenant"
)

// answerTenant is a handler that returns the tenant of its request.
var answerTenant = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, tenant.FromContext(r.Context()))
})

func testOptions() Options {
	registry := prometheus.NewRegistry()
	return Options{
		API: answerTenant, Write: answerTenant, Ready: func() error { return nil },
		SealAll:      func(context.Context) error { return nil },
		Downsampling: func(context.Context) any { return map[string]int{"waiting_slots": 3} },
		Gatherer:     registry, HTTP: NewMetrics(registry), Logger: slog.New(slog.DiscardHandler),
	}
}

// TestEveryRouteIsInTheManual checks that every route is described in the manual.
func TestEveryRouteIsInTheManual(t *testing.T) {
	page, err := os.ReadFile("../manual/http-api.md")
	require.NoError(t, err)
	h := &handler{Options: testOptions()}
	for _, r := range h.routes() {
		if r.Name == "" { // The API counts the requests of its own routes, and has its own test.
			continue
		}
		require.Contains(t, string(page), "`"+strings.TrimPrefix(r.Path, "GET ")+"`",
			"give it a line in the manual's http-api.md")
	}
}

func serveRequest(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestRoutes(t *testing.T) {
	o := testOptions()
	h := NewHandler(o)
	for _, c := range []struct {
		method, path string
		code         int
		part         string
	}{
		{"GET", "/-/healthy", 200, "healthy"},
		{"HEAD", "/-/healthy", 200, ""},
		{"GET", "/-/ready", 200, "is ready"},
		{"GET", "/metrics", 200, "cassia_http_panics_total 0"},
		{"GET", "/debug/pprof/", 200, "goroutine"},
		{"GET", "/debug/pprof/cmdline", 200, ""},
		{"POST", "/api/v1/write", 200, "default"},
		{"GET", "/api/v1/query", 200, "default"},
		{"GET", "/api/v1/status/active_queries", 200, "default"},
		{"DELETE", "/t/a/api/v1/status/active_queries/1", 200, "a"},
		{"GET", "/nothing", 404, "not found"},
		{"GET", "/-/downsample", 200, `"waiting_slots": 3`},
		{"POST", "/-/downsample", 405, ""},
		{"POST", "/-/healthy", 405, ""},
		{"POST", "/-/seal", 403, "--web.enable-admin-api"},
	} {
		w := serveRequest(h, c.method, c.path)
		require.Equal(t, c.code, w.Code, c.path)
		require.Contains(t, w.Body.String(), c.part, c.path)
	}
	require.Equal(t, 1.0, testutil.ToFloat64(o.HTTP.requests.WithLabelValues("/api/v1/write", "200")))
}

// TestUnknownPaths checks that the response for an unknown path names existing pages, and that a wrong method gets
// status 405.
func TestUnknownPaths(t *testing.T) {
	o := testOptions()
	o.NotFound = func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "no page at "+r.URL.Path)
	}
	h := NewHandler(o)
	for _, method := range []string{"GET", "POST"} {
		w := serveRequest(h, method, "/nothing")
		require.Equal(t, http.StatusNotFound, w.Code)
		require.Equal(t, "no page at /nothing", w.Body.String())
	}
	require.Equal(t, http.StatusOK, serveRequest(h, "GET", "/-/healthy").Code)
	w := serveRequest(h, "POST", "/-/healthy")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Contains(t, w.Header().Get("Allow"), "GET")
	for path, to := range map[string]string{"/-/healthy/": "../healthy", "/-/downsample/?a=b": "../downsample?a=b"} {
		w = serveRequest(h, "GET", path)
		require.Equal(t, http.StatusFound, w.Code, "a slash too many is removed")
		require.Equal(t, to, w.Header().Get("Location"))
	}
	for _, path := range []string{"/nothing/", "/-/healthy//", "/-/"} {
		require.NotEqual(t, http.StatusFound, serveRequest(h, "GET", path).Code, path)
	}
	w = serveRequest(h, "GET", "/debug/pprof")
	require.NotEqual(t, http.StatusNotFound, w.Code, "it is led to the path with a slash")
}

// TestElsewhere checks that a rejected request names the role of the processes that serve it.
func TestElsewhere(t *testing.T) {
	w := serveRequest(ElsewhereHandler("samples", "read"), "POST", "/api/v1/write")
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(),
		"this process doesn't accept samples (--target=read); send them to another process")
}

func TestNotReadySaysWhy(t *testing.T) {
	o := testOptions()
	o.AdminAPI = true
	o.Ready = func() error { return errors.New("the head is being rebuilt") }
	h := NewHandler(o)
	for method, path := range map[string]string{"GET": "/-/ready", "POST": "/-/seal"} {
		w := serveRequest(h, method, path)
		require.Equal(t, http.StatusServiceUnavailable, w.Code, path)
		require.Contains(t, w.Body.String(), "the head is being rebuilt")
	}
	require.Equal(t, http.StatusOK, serveRequest(h, "GET", "/-/healthy").Code)
}

func TestSeal(t *testing.T) {
	o := testOptions()
	o.AdminAPI = true
	var calls int
	var answer error
	o.SealAll = func(context.Context) error { calls++; return answer }
	h := NewHandler(o)
	require.Equal(t, http.StatusMethodNotAllowed, serveRequest(h, "GET", "/-/seal").Code)
	require.Zero(t, calls)
	require.Equal(t, http.StatusOK, serveRequest(h, "POST", "/-/seal").Code)
	require.Equal(t, 1, calls)
	answer = errors.New("disk is full")
	w := serveRequest(h, "POST", "/-/seal")
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Contains(t, w.Body.String(), "disk is full")
	answer = fmt.Errorf("sealing: %w", engine.ErrUnavailable)
	require.Equal(t, http.StatusServiceUnavailable, serveRequest(h, "POST", "/-/seal").Code,
		"as a write is answered that there is no space for")
}

func TestTenantOfARequest(t *testing.T) {
	h := NewHandler(testOptions())
	for _, path := range []string{"/api/v1/write", "/api/v1/query"} {
		w := serveRequest(h, "POST", path, tenant.Header, "team-a")
		require.Equal(t, "team-a", w.Body.String())
		for _, header := range [][]string{
			{tenant.Header, "a/b"}, {tenant.Header, ""}, {tenant.Header, ".."},
			{tenant.Header, strings.Repeat("x", tenant.MaxLen+1)}, {tenant.Header, "a", tenant.Header, "b"},
		} {
			w := serveRequest(h, "POST", path, header...)
			require.Equal(t, http.StatusBadRequest, w.Code, header)
			require.Contains(t, w.Body.String(), `"errorType":"bad_data"`)
			require.Contains(t, w.Body.String(), tenant.Header)
		}
	}
}

func TestAPanicEndsOneRequestOnly(t *testing.T) {
	o := testOptions()
	var log bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/begun":
			_, _ = io.WriteString(w, "half of the ans")
			w.(http.Flusher).Flush()
		case "/api/v1/aborted":
			panic(http.ErrAbortHandler)
		}
		panic("a bug")
	})
	server := httptest.NewServer(NewHandler(o))
	defer server.Close()

	answer, err := http.Get(server.URL + "/api/v1/x")
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusInternalServerError, answer.StatusCode)
	require.Contains(t, string(body), `"status":"error"`)
	require.Contains(t, log.String(), "a bug")
	require.Equal(t, 1.0, testutil.ToFloat64(o.HTTP.panics))

	answer, err = http.Get(server.URL + "/api/v1/begun")
	require.NoError(t, err)
	_, err = io.ReadAll(answer.Body)
	require.Error(t, err, "half an answer must not look whole")
	require.NoError(t, answer.Body.Close())
	require.Equal(t, 2.0, testutil.ToFloat64(o.HTTP.panics))

	_, err = http.Get(server.URL + "/api/v1/aborted")
	require.Error(t, err)
	require.Equal(t, 2.0, testutil.ToFloat64(o.HTTP.panics), "an abort is no bug")
}
