package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestMemoryOfRulesStaysWithinItsBound evaluates rules whose results need more memory than the server may use. The
// server's anonymous memory must not exceed --memory.max-bytes, the rules must fail with the limit, and after a reload
// without these rules, the remaining rules must succeed and hold little memory.
func TestMemoryOfRulesStaysWithinItsBound(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a server's memory: leave -short out")
	}
	const bound = 256 << 20
	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yml")
	write := func(rules string) {
		require.NoError(t, os.WriteFile(file, []byte("groups: [{name: small, interval: 1s, rules: [{record: one, "+
			"expr: vector(1)}]}"+rules+"]"), 0o600))
	}
	write("")
	r := startServe(t, "--storage.path="+filepath.Join(dir, "data"), fmt.Sprint("--memory.max-bytes=", bound),
		"--rule.files="+file, "--web.enable-lifecycle")
	for from := 0; from < 10_000; from += 5000 {
		var request prompb.WriteRequest
		for i := from; i < from+5000; i++ {
			request.Timeseries = append(request.Timeseries, memorySeries("big", i))
		}
		sendFull(t, r, &request)
	}
	anonymous := watchAnonymous(t, r.pid)
	var many strings.Builder
	for i := range 10 {
		fmt.Fprintf(&many, `, {name: many%d, interval: 1s, rules: [`, i)
		for k := range 10 {
			// Rules that record the same series need little memory of the head.
			fmt.Fprintf(&many, `{record: big:copy, expr: big + %d}, `, k)
		}
		fmt.Fprintf(&many, `{alert: Many%d, expr: big, annotations: {text: "{{ $labels.path }}"}}]}`, i)
	}
	write(many.String())
	reload := func() {
		code, text := r.Post(t, "/-/reload", nil)
		require.Equal(t, http.StatusOK, code, text)
	}
	reload()
	isRefused := func() bool {
		_, text := r.Get(t, "/api/v1/rules")
		return strings.Contains(text, "the results of rules need too much memory")
	}
	require.Eventually(t, isRefused, cassiatest.Patience, 500*time.Millisecond)
	evaluations := func() float64 { return valueOf(t, r.URL, "prometheus_rule_evaluations_total") }
	before := evaluations()
	require.Eventually(t, func() bool { return evaluations() >= before+110 }, cassiatest.Patience,
		100*time.Millisecond, "as many evaluations as there are rules")
	require.NotEmpty(t, r.Value(t, "one", time.Now()), "other rules are still evaluated")
	most := valueOf(t, r.URL, "cassia_rules_memory_bytes")
	t.Logf("%d MiB of %d at most; rules hold %.0f bytes", anonymous()>>20, bound>>20, most)
	require.LessOrEqual(t, anonymous(), int64(bound))
	require.LessOrEqual(t, most, float64(bound/8))
	write("")
	reload()
	require.Eventually(t, func() bool { return valueOf(t, r.URL, "cassia_rules_memory_bytes") < 1000 },
		cassiatest.Patience, 500*time.Millisecond)
	require.NotEmpty(t, r.Value(t, "one", time.Now()))
}
