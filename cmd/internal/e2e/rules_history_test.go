package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// TestRulesOverHistoryThatOnlyHoursCover imports samples from two years ago into a server that keeps only 1h rollups of
// that time. promtool evaluates a rule on these samples. The results of the rule must be importable and queryable in
// the same way.
func TestRulesOverHistoryThatOnlyHoursCover(t *testing.T) {
	t.Parallel()
	promtool, binary, dir := cassiatest.Binary(t, "CASSIA_TEST_PROMTOOL", "promtool"), builtCassia(t), t.TempDir()
	server := start(t.Context(), t, promrig.Cassia(
		binary, dir, cassiatest.FreeAddress(t), "--retention.raw=5d", "--retention.5m=30d", "--retention.1h=5y",
		"--no-self-monitoring",
	))
	from := time.Now().AddDate(-2, 0, 0).UTC().Truncate(24 * time.Hour)
	var text strings.Builder
	for _, job := range []string{"a", "b"} {
		for i := range 2 * 24 * 60 {
			fmt.Fprintf(&text, "requests_total{job=%q} %d %d\n", job, 3*i*len(job), from.Unix()+int64(i)*60)
		}
	}
	file := filepath.Join(dir, "old.om")
	require.NoError(t, os.WriteFile(file, []byte(text.String()+"# EOF\n"), 0o600))
	imports := func(source, path string) {
		t.Helper()
		out, errs, status := cassiatest.Command(t, binary, "import", source, path, "--url="+server.URL(),
			"--retention.raw=5d", "--checkpoint="+filepath.Join(t.TempDir(), "c"), "--verify")
		require.Zero(t, status, out+errs)
		require.Contains(t, out, " of these only in 1h rollups")
		require.Contains(t, out, ": 0 differences")
	}
	imports("openmetrics", file)

	rules, blocks := filepath.Join(dir, "rules.yml"), filepath.Join(dir, "blocks")
	require.NoError(t, os.WriteFile(
		rules,
		[]byte("groups: [{name: g, rules: [{record: 'requests:rate1h', expr: 'sum(rate(requests_total[1h]))'}]}]\n"),
		0o600,
	))
	cmd := exec.CommandContext(t.Context(), promtool, "tsdb", "create-blocks-from", "rules", "--url="+server.URL(),
		"--output-dir="+blocks, "--eval-interval=1h", "--start="+from.Add(2*time.Hour).Format(time.RFC3339),
		"--end="+from.Add(40*time.Hour).Format(time.RFC3339), rules)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
	imports("blocks", blocks)
	ask := func(query string, hours time.Duration) string {
		answer, err := promrig.API{URL: server.URL()}.Query(t.Context(), query, from.Add(hours*time.Hour))
		require.NoError(t, err)
		return fmt.Sprint(answer)
	}
	// promtool evaluates at times derived from the rule group, which aren't aligned to buckets.
	require.Contains(t, ask(`count_over_time(requests:rate1h[40h])`, 41), `"38"`)
	for _, function := range []string{"min", "avg", "max", "last"} {
		require.Contains(t, ask(`round(1e6 * `+function+`_over_time(requests:rate1h[40h]))`, 41), `"100000"`, function)
	}
	require.NoError(t, server.Terminate(cassiatest.StopWithin))
}
