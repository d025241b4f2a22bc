package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer/overhttp"
	"github.com/cassia-db/cassia/cmd/internal/server"
)

// TestBodiesOfAllEndpointsAreBoundedTogether checks that the bodies of writes share one memory limit across all
// endpoints, and that queries have a separate limit.
func TestBodiesOfAllEndpointsAreBoundedTogether(t *testing.T) {
	p := startProcess(t, "--storage.path="+t.TempDir(), "--no-self-monitoring")
	post := func(path, contentType, encoding, body string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		if encoding != "" {
			r.Header.Set("Content-Encoding", encoding)
		}
		w := httptest.NewRecorder()
		p.front.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	share := p.bodies.NewShare(t.Context())
	require.NoError(t, share.Claim(p.c.BodyBytes()-1), "all of it but a byte")
	encodings := map[string]struct{ contentType, encoding string }{
		"/api/v1/write":           {"application/x-protobuf", "snappy"},
		"/api/v1/otlp/v1/metrics": {"application/json", ""},
		"/api/write":              {"application/json", ""},
		"/api/write/single":       {"application/json", ""},
		overhttp.Path:             {"application/vnd.cassia.series", "snappy"},
	}
	for _, route := range p.front.options.RouteTable() {
		if route.Role == server.Write {
			_, ok := encodings[route.Path]
			require.True(t, ok, "%s: add the route to this test, and set Bodies in the options of its handler to "+
				"process.bodies", route.Path)
		}
	}
	for path, of := range encodings {
		code, text := post(path, of.contentType, of.encoding, "[]")
		require.Equal(t, http.StatusServiceUnavailable, code, "%s: %s", path, text)
		require.Contains(t, text, "in flight", path)
	}
	code, text := post("/api/v1/query", "application/x-www-form-urlencoded", "", "query=1")
	require.Equal(t, http.StatusOK, code, text)
	share.Release()
	code, text = post("/api/write", "application/json", "", "[]")
	require.Equal(t, http.StatusNoContent, code, text)
	require.Zero(t, p.bodies.Used())
}
