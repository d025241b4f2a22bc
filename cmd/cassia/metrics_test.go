package main

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// foreignMetrics contains the prefixes of metrics that are named by libraries: Prometheus' rules and notifications, the
// Go runtime and the process.
var foreignMetrics = []string{"prometheus_", "go_", "process_", "promhttp_"}

func TestPromtoolFindsNothingInOwnMetrics(t *testing.T) {
	promtool := cassiatest.Binary(t, "CASSIA_TEST_PROMTOOL", "promtool")
	r := startServe(t, "--storage.path="+t.TempDir(), "--ha.enabled", "--rule.files="+examples+"/rules/alerts.yml")
	at := time.Now().Truncate(time.Second)
	r.Write(t, "a", at, 1)
	require.Equal(t, "1", r.Value(t, "a", at))
	code, text := r.Get(t, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Greater(t, strings.Count(text, "\n# HELP cassia_")+1, 50)
	check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	out, _ := check.CombinedOutput() // The status is nonzero if there are findings for any metric.
	for line := range strings.Lines(string(out)) {
		foreign := false
		for _, prefix := range foreignMetrics {
			foreign = foreign || strings.HasPrefix(line, prefix)
		}
		require.True(t, foreign, line)
	}
}
