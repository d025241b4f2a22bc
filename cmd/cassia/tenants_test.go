package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestBadTenantsDisturbNobody checks that no request of well-behaved tenants fails while one tenant is far over its
// limits and another one sends garbage.
func TestBadTenantsDisturbNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds of load")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`tenants:
  greedy: {samples_per_second: 1000, samples_burst: 4000, active_series: 3000, query_series: 500, queries: 1, queries_waiting: 2}
  garbage: {queries: 1, request_bytes: 64KiB}
`), 0o600))
	s := startServe(t, "--storage.path="+filepath.Join(dir, "data"), "--limits.file="+file, "--web.enable-lifecycle")
	// On a busy machine, five seconds may be too short for each tenant to get a response.
	for began := time.Now(); ; {
		report := bench.TenantLoad{
			URL: s.URL, Tenants: 20, Series: 20, Interval: 250 * time.Millisecond, For: 5 * time.Second, Bad: 4,
		}.Run(t.Context())
		require.Zero(t, report.Ack.Failed, report.Ack.Example)
		require.Zero(t, report.Query.Failed, report.Query.Example)
		for _, code := range []int{0, 500, 503} {
			require.Zero(t, report.Bad[bench.Greedy][code], "%v", report.Bad)
			require.Zero(t, report.Bad[bench.Garbage][code], "%v", report.Bad)
		}
		_, metrics := s.Get(t, "/metrics")
		if report.Ack.Requests > 0 && report.Query.Requests > 0 && report.Bad[bench.Greedy][429] > 0 &&
			report.Bad[bench.Garbage][400] > 0 &&
			strings.Contains(metrics, `cassia_tenant_limit_refused_total{limit="samples_per_second",tenant="greedy"}`) {
			break
		}
		require.Less(t, time.Since(began), cassiatest.Patience, "%+v", report)
	}

	_, metrics := s.Get(t, "/metrics")
	require.NotContains(t, metrics, `tenant="tenant-`, "others were refused nothing")
	require.Eventually(t, func() bool {
		_, metrics := s.Get(t, "/metrics")
		return cassiatest.Metric(t, metrics, `cassia_write_in_flight_bytes`) == 0
	}, cassiatest.Patience, 10*time.Millisecond, "what was cut off is given back")
	code, status := s.Get(t, "/t/greedy/api/v1/status/limits")
	require.Equal(t, 200, code)
	require.Contains(t, status, `"active_series":3000`)
	require.Contains(t, status, `"samples_burst":4000`)

	require.NoError(t, os.WriteFile(file, []byte("tenants: {greedy: {sampels: 1}}"), 0o600))
	code, text := s.Post(t, "/-/reload", nil)
	require.Equal(t, 500, code)
	require.Contains(t, text, `line 1: unknown key "sampels"`)
	_, metrics = s.Get(t, "/metrics")
	require.Zero(t, cassiatest.Metric(t, metrics, "cassia_config_last_reload_successful"))
	_, status = s.Get(t, "/t/greedy/api/v1/status/limits")
	require.Contains(t, status, `"active_series":3000`, "all stays as it was")
	require.NoError(t, os.WriteFile(file, []byte("tenants: {greedy: {queries: 7}}"), 0o600))
	code, _ = s.Post(t, "/-/reload", nil)
	require.Equal(t, 200, code)
	_, status = s.Get(t, "/t/greedy/api/v1/status/limits")
	require.Contains(t, status, `"limits":{"queries":7}`)
}
