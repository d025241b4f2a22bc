package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAForeignPageDeletesNothing checks that a cross-origin form, which a browser submits without a preflight request,
// can't delete series. The same request from another program can.
func TestAForeignPageDeletesNothing(t *testing.T) {
	t.Parallel()
	r := startServe(t, "--storage.path="+t.TempDir())
	at := time.Now().Truncate(time.Second)
	r.Write(t, "kept", at, 1)
	require.Equal(t, "1", r.Value(t, "kept", at))
	remove := func(host string, header ...string) (int, string) {
		request, err := http.NewRequest(http.MethodPost, r.URL+"/api/v1/admin/tsdb/delete_series",
			strings.NewReader("match[]={__name__=~\".%2B\"}"))
		require.NoError(t, err)
		request.Host = host
		request.Header.Set("Content-Type", formType)
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	for _, c := range []struct {
		host   string
		header []string
	}{
		{"", []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}},
		{"", []string{"Origin", "http://evil.example"}},
		{"evil.example", []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"}},
	} {
		code, text := remove(c.host, c.header...)
		require.Equal(t, http.StatusForbidden, code, text)
		require.Contains(t, text, `"errorType":"forbidden"`)
		require.Equal(t, "1", r.Value(t, "kept", at))
	}
	code, text := remove("")
	require.Equal(t, http.StatusNoContent, code, text)
	require.Empty(t, r.Value(t, "kept", at))
}

// TestForeignNamesReachNoRoute sends requests with a foreign Host header to every route over loopback, as a browser
// does after a DNS rebinding attack. Only writes without an Origin header are accepted, because proxies forward the
// writes of programs with any Host.
func TestForeignNamesReachNoRoute(t *testing.T) {
	t.Parallel()
	p := startProcess(t, "--storage.path="+t.TempDir(), "--web.enable-lifecycle")
	url := "http://" + p.front.server.Addresses()[0]
	send := func(method, path string, header ...string) (int, string) {
		request, err := http.NewRequest(method, url+path, nil)
		require.NoError(t, err)
		request.Host = "evil.example"
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		answer, err := http.DefaultTransport.RoundTrip(request)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	placeholder := regexp.MustCompile(`\{\w+\}`)
	table := p.front.options.RouteTable()
	require.Greater(t, len(table), 50)
	for _, route := range table {
		method, path, hasMethod := strings.Cut(route.Path, " ")
		if !hasMethod {
			method, path = "", route.Path
		}
		path = placeholder.ReplaceAllString(strings.TrimSuffix(path, "{$}"), "x")
		if path == "/-/healthy" || path == "/-/ready" {
			continue // Probes may use any host name.
		}
		if method == "" || method == http.MethodGet {
			reads := []string{http.MethodGet, http.MethodHead}
			if !hasMethod {
				reads = append(reads, http.MethodOptions)
			}
			for _, read := range reads {
				code, text := send(read, path)
				require.Equal(t, http.StatusForbidden, code, "%s %s: %s", read, path, text)
				if read != http.MethodHead {
					require.Contains(t, text, "evil.example", "%s %s", read, path)
				}
			}
		}
		if method != http.MethodGet {
			for _, changes := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
				if method != "" && method != changes {
					continue
				}
				code, text := send(changes, path, "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin")
				require.Equal(t, http.StatusForbidden, code, "%s %s: %s", changes, path, text)
				require.Contains(t, text, "evil.example", "%s %s", changes, path)
			}
		}
	}
}
