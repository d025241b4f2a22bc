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

// get asks the page's routes as they are, without a server's door.
func get(t *testing.T, o Options, target string, header ...string) *http.Response {
	t.Helper()
	mux := http.NewServeMux()
	for _, r := range Routes(o) {
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

func body(t *testing.T, r *http.Response) string {
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
	text := body(t, first)
	require.Contains(t, text, `nonce="`+nonce[1]+`"`)
	require.NotContains(t, text, "{{")
	require.Equal(t, "no-store", first.Header.Get("Cache-Control"))
	require.Equal(t, "nosniff", first.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-referrer", first.Header.Get("Referrer-Policy"))
	require.Empty(t, regexp.MustCompile(`(src|href)="(https?:|/)`).FindString(text), "it works below any path, and names no other host")
}

func TestWhatThePageNamesIsThere(t *testing.T) {
	text := body(t, get(t, testOptions(), "/"))
	names := regexp.MustCompile(`assets/[\w.-]+`).FindAllString(text, -1)
	require.Len(t, names, 4)
	for _, name := range names {
		plain := get(t, testOptions(), "/"+name)
		require.Equal(t, http.StatusOK, plain.StatusCode, name)
		require.Contains(t, plain.Header.Get("Cache-Control"), "immutable")
		require.NotEmpty(t, plain.Header.Get("Content-Type"))
		zipped := get(t, testOptions(), "/"+name, "Accept-Encoding", "br, gzip")
		require.Equal(t, "gzip", zipped.Header.Get("Content-Encoding"))
		require.NotEqual(t, body(t, plain), body(t, zipped))
	}
	require.Equal(t, http.StatusNotFound, get(t, testOptions(), "/assets/app-OTHER.js").StatusCode)
}

func TestLinksOfPrometheusLeadToExplore(t *testing.T) {
	for asked, want := range map[string]string{
		"/graph?g0.expr=up+%3D%3D+0&g0.tab=1":           "./#/explore?q=up+%3D%3D+0&tab=table",
		"/graph?g0.expr=a&g1.expr=b&g0.range_input=30m": "./#/explore?from=now-30m&q=a&q=b",
		"/graph": "./#/explore?",
	} {
		r := get(t, testOptions(), asked)
		require.Equal(t, http.StatusFound, r.StatusCode)
		require.Equal(t, want, r.Header.Get("Location"))
	}
}

func TestSessionOfAnybody(t *testing.T) {
	var answer struct {
		Data session `json:"data"`
	}
	text := body(t, get(t, testOptions(), "/api/v1/cassia/session"))
	require.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(&answer))
	require.Equal(t, []string{"default", "team-a", "team-b"}, answer.Data.Tenants)
	require.True(t, answer.Data.AnyTenant)
	require.True(t, answer.Data.Admin)
	require.Equal(t, "default", answer.Data.DefaultTenant)
}
