package ui

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// get sends a request to the page's routes directly, without the server's authorizer.
func get(t *testing.T, o Options, target string, header ...string) *http.Response {
	t.Helper()
	mux := http.NewServeMux()
	for _, r := range NewRoutes(o) {
		mux.Handle(r.Path, r.Handler)
	}
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w.Result()
}

func readBody(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(text)
}

func TestThePageIsLockedDown(t *testing.T) {
	first, second := get(t, testOptions(), "/"), get(t, testOptions(), "/")
	policy := first.Header.Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	require.NotEqual(t, policy, second.Header.Get("Content-Security-Policy"), "a nonce is used once")
	nonce := regexp.MustCompile(`'nonce-(\w{20,})'`).FindStringSubmatch(policy)
	require.NotNil(t, nonce)
	text := readBody(t, first)
	require.Contains(t, text, `nonce="`+nonce[1]+`"`)
	require.NotContains(t, text, "{{")
	require.Equal(t, "no-store", first.Header.Get("Cache-Control"))
	require.Equal(t, "nosniff", first.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-referrer", first.Header.Get("Referrer-Policy"))
	require.Empty(t, regexp.MustCompile(`(src|href)="(https?:|/)`).FindString(text),
		"it works below any path, and names no other host")
}

func TestWhatThePageNamesIsThere(t *testing.T) {
	text := readBody(t, get(t, testOptions(), "/"))
	names := regexp.MustCompile(`assets/[\w.-]+`).FindAllString(text, -1)
	require.Len(t, names, 4)
	for _, name := range names {
		plain := get(t, testOptions(), "/"+name)
		require.Equal(t, http.StatusOK, plain.StatusCode, name)
		require.Contains(t, plain.Header.Get("Cache-Control"), "immutable")
		require.NotEmpty(t, plain.Header.Get("Content-Type"))
		zipped := get(t, testOptions(), "/"+name, "Accept-Encoding", "br, gzip")
		require.Equal(t, "gzip", zipped.Header.Get("Content-Encoding"))
		require.NotEqual(t, readBody(t, plain), readBody(t, zipped))
	}
	require.Equal(t, http.StatusNotFound, get(t, testOptions(), "/assets/app-OTHER.js").StatusCode)
}

// TestPathsWithATenant checks the redirects of paths that start with a tenant, as in links of alerts, and that files
// with conventional names are served.
func TestPathsWithATenant(t *testing.T) {
	h := withAuth(t, testOptions())
	for asked, want := range map[string]string{
		"/t/team-a/graph?g0.expr=up&g0.tab=1": "../../#/explore?q=up&tab=table&tenant=team-a",
		"/t/team-a/alerts":                    "../../#/alerts?tenant=team-a",
		"/t/team-a/":                          "../../#/explore?tenant=team-a",
		"/t/team-a":                           "/t/team-a/",
		"/graph?g0.expr=up":                   "./#/explore?q=up",
		"/manual/":                            "../manual",
		"/manual/security/":                   "../security",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, asked, nil))
		require.Equal(t, want, w.Header().Get("Location"), asked)
		require.Less(t, w.Code, 400, asked)
	}
	icon := get(t, testOptions(), "/favicon.ico")
	require.Equal(t, http.StatusOK, icon.StatusCode)
	require.Equal(t, "image/svg+xml", icon.Header.Get("Content-Type"))
	require.Contains(t, readBody(t, icon), "<svg")
}

func TestLinksOfPrometheusLeadToViews(t *testing.T) {
	for asked, want := range map[string]string{
		"/graph?g0.expr=up+%3D%3D+0&g0.tab=1":           "./#/explore?q=up+%3D%3D+0&tab=table",
		"/graph?g0.expr=a&g1.expr=b&g0.range_input=30m": "./#/explore?from=now-30m&q=a&q=b",
		"/graph": "./#/explore",
		"/query?g0.expr=rate%28a%5B5m%5D%29&g0.show_tree=0&g0.tab=graph&g0.range_input=1h&g0.res_type=auto&g0.res_density=medium&g0.display_mode=lines&g0.show_exemplars=0": "./#/explore?from=now-1h&q=rate%28a%5B5m%5D%29",
		"/query?g0.expr=a&g0.tab=table&g0.moment_input=2026-11-22+07%3A15%3A00":                                                                                             "./#/explore?from=2026-11-22T06%3A15%3A00Z&q=a&tab=table&to=2026-11-22T07%3A15%3A00Z",
		"/query?g0.expr=a&g0.range_input=1d&g0.end_input=2026-11-22+07%3A15&g0.res_type=fixed&g0.res_step=15&g0.display_mode=stacked":                                       "./#/explore?from=2026-11-21T07%3A15%3A00Z&q=a&stack=1&step=15s&to=2026-11-22T07%3A15%3A00Z",
		"/query?g0.expr=a&g0.range_input=soon&g0.end_input=then&g0.step_input=1e300":                                                                                        "./#/explore?q=a",
		"/alerts":            "./#/alerts",
		"/alerts?search=cpu": "./#/alerts?find=cpu",
		"/rules":             "./#/alerts?show=rules",
	} {
		r := get(t, testOptions(), asked)
		require.Equal(t, http.StatusFound, r.StatusCode, asked)
		require.Equal(t, want, r.Header.Get("Location"), asked)
	}
}

func TestOtherPathsGetAPageThatSaysSo(t *testing.T) {
	o := testOptions()
	o.Ready = func() error { return nil }
	ask := func(method, path, accept string) *http.Response {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		withAuth(t, o).ServeHTTP(w, r)
		return w.Result()
	}
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	for path, root := range map[string]string{"/targets": "./", "/a/b/%3Cscript%3E": "../../"} {
		r := ask(http.MethodGet, path, browser)
		require.Equal(t, http.StatusNotFound, r.StatusCode)
		require.Contains(t, r.Header.Get("Content-Type"), "text/html")
		text := readBody(t, r)
		require.NotContains(t, text, "<script")
		require.Contains(t, text, `href="`+root+`#/explore"`)
		nonce := regexp.MustCompile(`style nonce="(\w{20,})"`).FindStringSubmatch(text)
		require.NotNil(t, nonce)
		require.Contains(t, r.Header.Get("Content-Security-Policy"), nonce[1])
	}
	plain := ask(http.MethodPost, "/v1/metrics", "*/*")
	require.Equal(t, http.StatusNotFound, plain.StatusCode)
	require.Equal(t, "404 page not found\n", readBody(t, plain))
	require.Equal(
		t, http.StatusMethodNotAllowed, ask(http.MethodPost, "/alerts", browser).StatusCode, "the path is one",
	)
	require.Equal(t, http.StatusOK, ask(http.MethodGet, "/", browser).StatusCode)
}

func TestSessionOfAnybody(t *testing.T) {
	var answer struct {
		Data session `json:"data"`
	}
	text := readBody(t, get(t, testOptions(), "/api/v1/cassia/session"))
	require.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(&answer))
	require.Equal(t, []string{"default", "team-a", "team-b"}, answer.Data.Tenants)
	require.True(t, answer.Data.AnyTenant)
	require.True(t, answer.Data.Admin)
	require.Equal(t, "default", answer.Data.DefaultTenant)
}
