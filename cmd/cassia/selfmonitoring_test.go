package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestServeStoresItsOwnMetrics checks that a process stores its own metrics under a separate tenant, and under no
// other.
func TestServeStoresItsOwnMetrics(t *testing.T) {
	t.Parallel()
	r := startServe(t, "--storage.path="+t.TempDir(), "--self-monitoring")
	host, err := os.Hostname()
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(r.URL, "http://"))
	require.NoError(t, err)
	instance := fmt.Sprintf(`"instance":%q,"job":"cassia"`, net.JoinHostPort(host, port))
	for _, metric := range []string{
		"up", "cassia_build_info", "go_goroutines", "cassia_store_ack_seconds_bucket", "cassia_http_requests_total",
	} {
		require.Eventually(t, func() bool {
			code, body := r.Get(t, "/t/cassia/api/v1/query?query="+metric)
			return code == http.StatusOK && strings.Contains(body, metric) && strings.Contains(body, instance)
		}, cassiatest.Patience, 10*time.Millisecond, metric)
	}
	_, body := r.Get(t, "/api/v1/labels")
	require.Contains(t, body, `"data":[]`, "the default tenant sees nothing of it")
	require.NoError(t, r.stop())
	require.NotContains(t, r.log.String(), "can't store Cassia's own metrics")

	r = startServe(t, "--storage.path="+t.TempDir())
	_, body = r.Get(t, "/metrics")
	require.NotContains(t, body, "cassia_self_monitoring_", "it is off")
}
