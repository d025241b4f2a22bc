package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestServesUnderAPath checks that a server whose external URL has a path serves senders, browsers, probes and commands
// below that path, and nothing else except a redirect from the root.
func TestServesUnderAPath(t *testing.T) {
	t.Parallel()
	r := startServe(t, "--storage.path="+t.TempDir(), "--web.external-url=https://example.org/tools/cassia/")
	under := cassiatest.Server{URL: r.URL + "/tools/cassia"}
	at := time.Now().Truncate(time.Second)
	under.Write(t, "a", at, 1)
	require.Equal(t, "1", under.Value(t, "a", at))

	for path, part := range map[string]string{
		"/-/healthy": "is healthy", "/metrics": "cassia_build_info", "/": `src="assets/app-`,
		"/manual/security": `href="../manual"`, "/api/v1/status/flags": `"storage.path"`,
		"/api/openapi.yaml":    `- url: "/tools/cassia"`,
		"/api/v1/openapi.yaml": "https://example.org/tools/cassia/api/v1", "/graph?g0.expr=a": "<title>Cassia",
		"/t/default/api/v1/labels": "__name__",
	} {
		code, text := under.Get(t, path)
		require.Equal(t, http.StatusOK, code, path)
		require.Contains(t, text, part, path)
		code, _ = r.Get(t, path)
		if path == "/" {
			require.Equal(t, http.StatusOK, code, "the root redirects to the page")
		} else {
			require.Equal(t, http.StatusNotFound, code, "%s without the path", path)
		}
	}
	for url, want := range map[string]int{r.URL: 1, under.URL: 0, under.URL + "/": 0} {
		var stderr strings.Builder
		require.Equal(t, want, run([]string{"healthcheck", "--ready", "--url=" + url}, &stderr),
			"%s: %s", url, stderr.String())
	}
}

// TestRedirectsKeepTheTenant follows the redirect of a path with a trailing slash. The redirected request must keep the
// tenant and the path prefix.
func TestRedirectsKeepTheTenant(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"", "/tools/cassia"} {
		r := startServe(t, "--storage.path="+t.TempDir(), "--web.external-url=https://example.org"+at)
		now := time.Now().Truncate(time.Second)
		all := cassiatest.Server{URL: r.URL + at}
		team := cassiatest.Server{URL: all.URL + "/t/team-a"}
		all.Write(t, "a", now, 1)
		team.Write(t, "a", now, 2)
		for _, s := range []struct {
			cassiatest.Server
			want string
		}{{all, `"1"`}, {team, `"2"`}} {
			code, text := s.Get(t, "/api/v1/query/?query=a")
			require.Equal(t, http.StatusOK, code, text)
			require.Contains(t, text, s.want)
		}
		answer, err := http.Post(team.URL+"/api/v1/admin/tsdb/delete_series/?match[]=a", "", nil)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusNoContent, answer.StatusCode)
		_, text := team.Get(t, "/api/v1/query?query=a")
		require.Contains(t, text, `"result":[]`)
		_, text = all.Get(t, "/api/v1/query?query=a")
		require.Contains(t, text, `"1"`)
	}
}

// TestProxyRemovesThePath checks that a server works behind a proxy that removes the path of the server's external URL.
func TestProxyRemovesThePath(t *testing.T) {
	t.Parallel()
	r := startServe(t, "--storage.path="+t.TempDir(), "--web.external-url=https://example.org/tools/cassia/",
		"--web.route-prefix=/")
	proxy := cassiatest.Server{URL: startProxy(t, r.URL, "/tools/cassia")}
	at := time.Now().Truncate(time.Second)
	proxy.Write(t, "a", at, 1)
	require.Equal(t, "1", proxy.Value(t, "a", at))
	for path, part := range map[string]string{
		"/": `src="assets/app-`, "/debug/pprof": "goroutine", "/graph?g0.expr=a": "<title>Cassia",
		"/api/openapi.yaml": `- url: "/tools/cassia"`,
	} {
		code, text := proxy.Get(t, path)
		require.Equal(t, http.StatusOK, code, path)
		require.Contains(t, text, part, path)
	}
}

// startProxy starts a proxy that removes a prefix from the paths of requests and forwards them to a server. It returns
// the proxy's URL with the prefix.
func startProxy(t *testing.T, to, prefix string) string {
	t.Helper()
	at, err := url.Parse(to)
	require.NoError(t, err)
	server := httptest.NewServer(http.StripPrefix(prefix, httputil.NewSingleHostReverseProxy(at)))
	t.Cleanup(server.Close)
	return server.URL + prefix
}

// TestAllowedHosts checks which Host headers of reads over loopback are accepted. A sidecar or a local TLS proxy sends
// such reads.
func TestAllowedHosts(t *testing.T) {
	t.Parallel()
	r := startServe(t, "--storage.path="+t.TempDir(), "--web.allowed-host=cassia.monitoring.svc",
		"--web.allowed-host=*.example.org")
	for host, want := range map[string]int{
		"cassia.monitoring.svc": http.StatusOK, "cassia.monitoring.svc:9201": http.StatusOK,
		"a.b.example.org": http.StatusOK, "example.org": http.StatusForbidden, "cassia.other.svc": http.StatusForbidden,
	} {
		request, err := http.NewRequest(http.MethodGet, r.URL+"/api/v1/labels", nil)
		require.NoError(t, err)
		request.Host = host
		require.Eventually(t, func() bool {
			answer, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			return answer.StatusCode != http.StatusServiceUnavailable // It isn't ready until then.
		}, cassiatest.Patience, 5*time.Millisecond)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, answer.StatusCode, host)
	}
}
