package main

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCertificateNobodyTrusts checks that commands that wait for a server fail immediately if its certificate isn't
// trusted. The error names the flag that fixes it.
func TestCertificateNobodyTrusts(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	web.StartTLS()
	t.Cleanup(web.Close)
	start := "--start=" + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for flag, args := range map[string][]string{
		"http.config.file": {
			"import", "remote-read", web.URL, start, "--storage.path=" + t.TempDir(),
			"--checkpoint=" + filepath.Join(t.TempDir(), "a"),
		},
		"url.http.config.file": {
			"import", "remote-read", "http://127.0.0.1:1", start, "--url=" + web.URL,
			"--checkpoint=" + filepath.Join(t.TempDir(), "b"),
		},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(args, &stderr))
		require.Contains(t, stderr.String(),
			"certificate signed by unknown authority; add the CA certificate of the server as ca_file in the tls_config of --"+flag)
		require.EqualValues(t, 1, connections.Swap(0), stderr.String())
	}
}
