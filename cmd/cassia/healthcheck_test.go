package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHealthcheck(t *testing.T) {
	r := startServe(t, "--storage.path="+t.TempDir())
	r.Value(t, "up", time.Now()) // waits until it is ready
	ask := func(args ...string) (int, string) {
		var stderr bytes.Buffer
		code := run(append([]string{"healthcheck"}, args...), &stderr)
		return code, stderr.String()
	}
	for _, args := range [][]string{{"--url=" + r.URL}, {"--url=" + r.URL + "/", "--ready"}} {
		code, text := ask(args...)
		require.Zero(t, code, text)
	}

	starting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/-/healthy" {
			http.Error(w, "reading what isn't sealed", http.StatusServiceUnavailable)
		}
	}))
	code, text := ask("--url=" + starting.URL)
	require.Zero(t, code, text)
	code, text = ask("--url="+starting.URL, "--ready")
	require.Equal(t, 1, code)
	require.Equal(t, "cassia: "+starting.URL+"/-/ready: 503 Service Unavailable: reading what isn't sealed\n", text)

	starting.Close()
	code, text = ask("--url=" + starting.URL)
	require.Equal(t, 1, code, "nothing listens there any more")
	require.Contains(t, text, "connection refused")
}
