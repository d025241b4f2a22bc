package server

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRoutePrefix checks that with a prefix, every route is served only below the prefix, and that redirects are
// relative.
func TestRoutePrefix(t *testing.T) {
	o := testOptions()
	o.RoutePrefix = "/a/cassia"
	h := NewHandler(o)
	for _, c := range []struct {
		path string
		code int
		// to is the expected target of the redirect, as resolved by a browser.
		to string
	}{
		{"/a/cassia/-/healthy", 200, ""},
		{"/a/cassia/-/ready", 200, ""},
		{"/a/cassia/metrics", 200, ""},
		{"/a/cassia/api/v1/labels", 200, ""},
		{"/a/cassia/t/b/api/v1/labels", 200, ""},
		{"/-/healthy", 404, ""},
		{"/metrics", 404, ""},
		{"/api/v1/labels", 404, ""},
		{"/a/cassiametrics", 404, ""},
		{"/a/cassia/a/cassia/metrics", 404, ""},
		{"/t/b/a/cassia/api/v1/labels", 404, ""},
		{"/?q=1", 302, "/a/cassia/?q=1"},
		{"/a/cassia?q=1", 302, "/a/cassia/?q=1"},
		{"/a/cassia/debug/pprof?x=1", 307, "/a/cassia/debug/pprof/?x=1"},
		{"/a/cassia/api//v1/labels", 307, "/a/cassia/api/v1/labels"},
		{"/a/cassia/t/b/api/v1/admin", 307, "/a/cassia/t/b/api/v1/admin/"},
	} {
		answer := serveRequest(h, http.MethodGet, c.path)
		require.Equal(t, c.code, answer.Code, c.path)
		requireLeads(t, c.path, answer.Header().Get("Location"), c.to)
	}
	require.Equal(t, 404, serveRequest(h, http.MethodPost, "/").Code)
	require.Contains(t, serveRequest(h, http.MethodGet, "/metrics").Body.String(),
		"under /a/cassia/ (--web.route-prefix)")
}

// TestRedirectsAreRelative checks that redirects work behind a proxy that removes a path prefix from requests, because
// such a proxy doesn't add the prefix to redirects.
func TestRedirectsAreRelative(t *testing.T) {
	o := testOptions()
	o.ExternalURL = &url.URL{Scheme: "https", Host: "example.org", Path: "/cassia"}
	h := NewHandler(o)
	for path, to := range map[string]string{
		"/debug/pprof": "/debug/pprof/", "//metrics": "/metrics", "/t/b/api/v1/admin": "/t/b/api/v1/admin/",
	} {
		answer := serveRequest(h, http.MethodGet, path)
		require.Equal(t, http.StatusTemporaryRedirect, answer.Code, path)
		requireLeads(t, "/cassia"+path, answer.Header().Get("Location"), "/cassia"+to)
	}
}

// requireLeads requires that a redirect leads to want, resolved as in browsers. If want is "", there must be no
// redirect.
func requireLeads(t *testing.T, from, location, want string) {
	t.Helper()
	if want == "" {
		require.Empty(t, location, from)
		return
	}
	require.NotEqual(t, "/", location[:1],
		"%s leads to %s: a proxy may have removed a part of the path", from, location)
	base, err := url.Parse("http://cassia" + from)
	require.NoError(t, err)
	to, err := base.Parse(location)
	require.NoError(t, err)
	require.Equal(t, "http://cassia"+want, to.String(), from)
}
