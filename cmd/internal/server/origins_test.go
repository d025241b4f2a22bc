package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// askFrom sends a request with the given Host header, as received on a connection to a local address. It returns the
// status.
func askFrom(h http.Handler, method, path, host, local string, header ...string) int {
	r := httptest.NewRequest(method, path, nil)
	r.Host = host
	if local != "" {
		r = r.WithContext(context.WithValue(
			r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(local), Port: 9201}),
		))
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func withNames(t *testing.T) Options {
	t.Helper()
	o := testOptions()
	o.AdminAPI = true
	o.Reload = func() error { return nil }
	var err error
	o.ExternalURL, err = url.Parse("https://cassia.example.org")
	require.NoError(t, err)
	o.Hosts = []string{"machine.example.net", "Cassia.monitoring.svc.", "*.apps.example.com"}
	return o
}

// TestForeignPagesChangeNothing checks that requests from pages of other origins can't change anything. Clients other
// than browsers send no Origin and aren't affected.
func TestForeignPagesChangeNothing(t *testing.T) {
	o := withNames(t)
	o.Routes = []Route{{Path: "/api/write", Name: "/api/write", Role: Write, Tenant: true, Handler: answerTenant}}
	h := NewHandler(o)
	const host = "10.0.0.1:9201"
	changes := map[string]string{
		"/api/v1/admin/tsdb/delete_series": "POST", "/api/v1/admin/tsdb/snapshot": "POST",
		"/api/v1/admin/tsdb/clean_tombstones": "PUT", "/t/a/api/v1/admin/tsdb/delete_series": "POST", "/-/seal": "POST",
		"/-/reload": "PUT", "/api/v1/write": "POST", "/t/a/api/v1/write": "POST",
		"/api/write": "POST", "/api/v1/status/active_queries/1": "DELETE",
		"/api/v1/status/active_queries/1/cancel": "POST",
	}
	for path, method := range changes {
		for about, c := range map[string]struct {
			header []string
			code   int
		}{
			"no browser":                   {nil, 200},
			"another site":                 {[]string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
			"another site, no origin":      {[]string{"Sec-Fetch-Site", "cross-site"}, 403},
			"another origin of the site":   {[]string{"Origin", "http://10.0.0.1:80", "Sec-Fetch-Site", "same-site"}, 403},
			"a browser without Sec-Fetch":  {[]string{"Origin", "http://evil.example"}, 403},
			"a page without an origin":     {[]string{"Origin", "null"}, 403},
			"the own page":                 {[]string{"Origin", "http://" + host, "Sec-Fetch-Site", "same-origin"}, 200},
			"the own page, no Sec-Fetch":   {[]string{"Origin", "http://" + host}, 200},
			"the own page, behind a proxy": {[]string{"Origin", "https://cassia.example.org"}, 200},
		} {
			require.Equal(t, c.code, askFrom(h, method, path, host, "10.0.0.1", c.header...), "%s by %s", path, about)
		}
	}
	foreign := []string{"Origin", "http://grafana.example", "Sec-Fetch-Site", "cross-site"}
	for path, method := range map[string]string{
		"/api/v1/query": "POST", "/api/v1/query_range": "GET", "/api/v1/read": "POST", "/-/healthy": "GET",
		"/api/v1/labels": "OPTIONS",
	} {
		require.Equal(t, 200, askFrom(h, method, path, host, "10.0.0.1", foreign...), "%s only reads", path)
	}
}

// TestNamesOfOthers checks that a host name of an attacker that resolves to this server is rejected. Otherwise the
// attacker's page would be same-origin.
func TestNamesOfOthers(t *testing.T) {
	o := withNames(t)
	h := NewHandler(o)
	const loopback, reached = "127.0.0.1", "10.0.0.1"
	for _, c := range []struct {
		host, local string
		header      []string
		code        int
	}{
		{"evil.example:9201", loopback, []string{"Origin", "http://evil.example:9201"}, 403},
		{"evil.example", "::1", []string{"Origin", "http://evil.example"}, 403},
		{"127.0.0.1.evil.example", loopback, []string{"Origin", "http://127.0.0.1.evil.example"}, 403},
		{"proxied.example.org", loopback, nil, 200},
		{"127.0.0.1:9201", loopback, nil, 200},
		{"[::1]:9201", "::1", nil, 200},
		{"[::1]", "::1", nil, 200},
		{"localhost:9201", loopback, nil, 200},
		{"LocalHost.:9201", loopback, nil, 200},
		{"cassia.localhost", loopback, nil, 200},
		{"cassia:9201", loopback, nil, 200},
		{"", loopback, nil, 200},
		{"cassia.example.org", loopback, nil, 200},
		{"Machine.example.net:9201", loopback, nil, 200},
		{"cassia.other.svc:9201", reached, nil, 200},
		{"cassia.monitoring.svc:9201", loopback, []string{"Origin", "http://cassia.monitoring.svc:9201"}, 200},
		{"cassia.other.svc:9201", loopback, []string{"Origin", "http://cassia.other.svc:9201"}, 403},
		{"a.b.Apps.example.com", loopback, []string{"Origin", "http://a.b.Apps.example.com"}, 200},
		{"apps.example.com", loopback, []string{"Origin", "http://apps.example.com"}, 403},
		{"evil-apps.example.com", loopback, []string{"Origin", "http://evil-apps.example.com"}, 403},
		{"evil.example:9201", reached, []string{"Origin", "http://evil.example:9201"}, 403},
		{"machine.example.net:9201", reached, []string{"Origin", "http://machine.example.net:9201"}, 200},
	} {
		require.Equal(
			t, c.code, askFrom(h, http.MethodPost, "/api/v1/admin/tsdb/delete_series", c.host, c.local, c.header...), c,
		)
	}
	require.Equal(t, 403, askFrom(h, http.MethodGet, "/metrics", "evil.example", loopback), "what is read, too")
	require.Equal(t, 200, askFrom(h, http.MethodGet, "/-/healthy", "evil.example", loopback))
	require.Equal(
		t, 200, askFrom(h, http.MethodGet, "/metrics", "cassia.monitoring.svc:9201", loopback), "through a sidecar",
	)
	require.Equal(
		t, 200, askFrom(h, http.MethodGet, "/api/v1/labels", "cassia.apps.example.com", loopback), "through a proxy",
	)
	o = withNames(t)
	o.AuthRequired = func() bool { return true }
	require.Equal(t, 200, askFrom(NewHandler(o), http.MethodGet, "/metrics", "proxied.example", loopback),
		"nobody comes in by a name alone")
}

// TestNamesOfOthersOverAConnection checks that the local address of the connection is used.
func TestNamesOfOthersOverAConnection(t *testing.T) {
	server := httptest.NewServer(NewHandler(testOptions()))
	defer server.Close()
	r, err := http.NewRequest(http.MethodGet, server.URL+"/metrics", nil)
	require.NoError(t, err)
	r.Host = "evil.example"
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusForbidden, answer.StatusCode)
	require.Contains(t, string(text), "--web.allowed-host")
}
