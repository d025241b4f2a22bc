package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/auth"
	"github.com/cassia-db/cassia/storage/tenant"
)

// answerPath is a handler that returns the tenant and the path of its request.
var answerPath = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, tenant.FromContext(r.Context())+" "+r.Method+" "+r.URL.EscapedPath()+" "+r.URL.RawQuery)
})

func TestTenantInThePath(t *testing.T) {
	o := testOptions()
	o.API, o.Write = answerPath, answerPath
	o.Routes = []Route{{Path: "/federate", Name: "/federate", Role: Read, Tenant: true, Handler: answerPath}}
	h := NewHandler(o)
	header := func(names ...string) (out []string) {
		for _, name := range names {
			out = append(out, tenant.Header, name)
		}
		return out
	}
	for _, c := range []struct {
		path   string
		header []string
		code   int
		want   string
	}{
		{"/t/team-a/api/v1/query?query=up", nil, 200, "team-a POST /api/v1/query query=up"},
		{"/t/team-a/api/v1/write", header("team-a"), 200, "team-a POST /api/v1/write "},
		{"/t/team-a/federate", nil, 200, "team-a POST /federate "},
		{"/t/it%27s/api/v1/label/a%20b/values", header("it's"), 200, "it's POST /api/v1/label/a%20b/values "},
		{"/t/team-a/api/v1/query", header("team-b"), 400, "the path names team-a, but the header X-Scope-OrgID names team-b"},
		{"/t/team-a/api/v1/query", header("team-a", "team-a"), 400, "is set 2 times"},
		{"/t/a%2Fb/api/v1/query", nil, 404, "not found"},
		{"/t/a%20b/api/v1/query", nil, 400, "path /t/a%20b/: "},
		{"/t/a%7Cb/api/v1/query", nil, 400, "path /t/a%7Cb/: "},
		{"/t/a/t/b/api/v1/query", nil, 404, "not found"},
		{"/t/a/-/healthy", nil, 405, ""},
		{"/t/a/-/seal", nil, 404, "not found"},
		{"/t/a/metrics", nil, 405, ""},
		{"/t/a/debug/pprof/", nil, 404, "not found"},
		{"/t/a/api/v1/status/flags", nil, 404, "not found"},
		{"/t/a/nothing", nil, 404, "not found"},
	} {
		w := serveRequest(h, http.MethodPost, c.path, c.header...)
		require.Equal(t, c.code, w.Code, c.path)
		require.Contains(t, w.Body.String(), c.want, c.path)
	}
	require.Equal(t, http.StatusNotFound, serveRequest(h, http.MethodGet, "/t/a/metrics").Code)
}

func TestSeveralTenants(t *testing.T) {
	for _, c := range []struct {
		federation       bool
		path, name, want string
		code             int
	}{
		{true, "/api/v1/query", "b|a|b", "a|b", 200},
		{true, "/t/b%7Ca/api/v1/query", "a|b", "a|b", 200},
		{true, "/api/v1/query", "a|a", "a", 200},
		{true, "/api/v1/query", "a|", "invalid name", 400},
		{true, "/api/v1/query", strings.Repeat("a|", maxTenants) + "a", "the maximum is 64", 400},
		{true, "/api/v1/write", "a|b", "invalid name", 400},
		{true, "/api/v1/admin/tsdb/delete_series", "a|b", "invalid name", 400},
		{false, "/api/v1/query", "a|b", "invalid name", 400},
	} {
		o := testOptions()
		o.Federation = c.federation
		w := serveRequest(NewHandler(o), http.MethodPost, c.path, tenant.Header, c.name)
		require.Equal(t, c.code, w.Code, c.name)
		require.Contains(t, w.Body.String(), c.want, c.name)
	}
}

func TestTenantThatARequestItselfNames(t *testing.T) {
	for _, c := range []struct {
		path, header, asked, want string
		err                       error
	}{
		{"/api/v1/write", "", "", "default", nil},
		{"/api/v1/write", "", "a", "a", nil},
		{"/api/v1/write", "a", "", "a", nil},
		{"/api/v1/write", "a", "a", "a", nil},
		{"/t/a/api/v1/write", "", "a", "a", nil},
		{"/api/v1/write", "a", "b", "", errTenant},
		{"/t/a/api/v1/write", "", "b", "", errTenant},
		{"/api/v1/write", "", "a/b", "", errTenant},
		{"/api/v1/write", "", "a|b", "", errTenant},
	} {
		o := testOptions()
		var name string
		var err error
		o.Write = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			name, err = TenantFor(r.Context(), c.asked)
		})
		var header []string
		if c.header != "" {
			header = []string{tenant.Header, c.header}
		}
		serveRequest(NewHandler(o), http.MethodPost, c.path, header...)
		require.ErrorIs(t, err, c.err, c)
		require.Equal(t, c.want, name, c)
	}
}

// TestRejectedForNow checks that a user who temporarily can't be identified gets a status that allows a retry.
func TestRejectedForNow(t *testing.T) {
	for err, code := range map[error]int{
		auth.ErrBusy: http.StatusTooManyRequests, context.Canceled: http.StatusServiceUnavailable,
	} {
		w := httptest.NewRecorder()
		rejectRequest(w, httptest.NewRequest(http.MethodGet, "/", nil), fmt.Errorf("asked: %w", err))
		require.Equal(t, code, w.Code)
		require.Empty(t, w.Header().Get("WWW-Authenticate"), "the password may be right")
		require.Equal(t, code == http.StatusTooManyRequests, w.Header().Get("Retry-After") != "")
	}
}
