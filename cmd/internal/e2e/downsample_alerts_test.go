package e2e

import (
	"log/slog"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// ruleFiles returns the example rule files.
func ruleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../examples/rules/*.yml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 4)
	return files
}

// alertRules returns the alerts in an example rule file by name. It reads the file as promtool check rules does.
func alertRules(t *testing.T, file string) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(
		file, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler),
	)
	require.Empty(t, errs, file)
	rules := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				require.NotContains(t, rules, r.Alert, "%s: two rules of one name", file)
				rules[r.Alert] = r
			}
		}
	}
	return rules
}

// TestAlertRulesAreSound requires that each alert has a summary, the consequence, and the remedy.
// TestCassiaOnItsDashboard checks that the metrics in the rules exist.
func TestAlertRulesAreSound(t *testing.T) {
	severities, files := map[string]bool{"critical": true, "warning": true, "info": true}, map[string]string{}
	for _, file := range ruleFiles(t) {
		for alert, r := range alertRules(t, file) {
			require.Empty(t, files[alert], "%s: %s is also in another file", file, alert)
			files[alert] = file
			for _, annotation := range []string{"summary", "description", "do"} {
				require.NotEmpty(t, r.Annotations[annotation],
					"%s: %s lacks the annotation %s", file, alert, annotation)
			}
			require.True(t, severities[r.Labels["severity"]], "%s: %s has no severity", file, alert)
		}
	}
}

// TestAlertsFire checks the rules with promtool and runs their unit tests.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool := cassiatest.Binary(t, "CASSIA_TEST_PROMTOOL", "promtool")
	out, err := exec.CommandContext(
		t.Context(), promtool, append([]string{"check", "rules", "--lint=all", "--lint-fatal"}, ruleFiles(t)...)...,
	).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(
		t.Context(), promtool, "test", "rules", "../../../examples/rules/tests/alerts.yml",
	).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestAlertsOfDownsampling sets metrics to values that indicate a problem. Exactly the alerts for this problem must
// fire.
func TestAlertsOfDownsampling(t *testing.T) {
	sound := map[string]string{
		"lag_seconds": "60x180", "lag_limit_seconds": "302400x180", "stuck_partitions": "0x180", "halted": "0x180",
		"busy_seconds": "1x180", "rounds_total": "0+1x180", "unrolled_windows": "0x180", "partitions": "16x180",
	}
	for _, c := range []struct {
		name    string
		changed map[string]string
		fire    []string
	}{
		{"all is well", nil, nil},
		{"five hours", map[string]string{"lag_seconds": "18000x180"}, []string{"CassiaSealingLags"}},
		{"five days", map[string]string{"lag_seconds": "432000x180"}, []string{"CassiaSealingLags", "CassiaSealingLagsTooFar"}},
		{"stuck", map[string]string{"stuck_partitions": "2x180"}, []string{"CassiaPartitionStuck"}},
		{"halted", map[string]string{"halted": "1x180", "rounds_total": "0x180"}, []string{"CassiaSealingHalted", "CassiaSealingHangs"}},
		{"a piece that doesn't end", map[string]string{"busy_seconds": "0+60x180"}, []string{"CassiaSealingHangs"}},
		{"no rounds", map[string]string{"rounds_total": "7x180"}, []string{"CassiaSealingHangs"}},
		{"an import that was cut short", map[string]string{"unrolled_windows": "40x180"}, []string{"CassiaRollupsMissing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			values := maps.Clone(sound)
			maps.Copy(values, c.changed)
			load := "load 1m\n"
			for _, metric := range slices.Sorted(maps.Keys(values)) {
				load += "  cassia_downsample_" + metric + `{job="cassia",instance="a"} ` + values[metric] + "\n"
			}
			db := promqltest.LoadedStorage(t, load)
			engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
			var fire []string
			for _, file := range ruleFiles(t) {
				for alert, r := range alertRules(t, file) {
					if !strings.Contains(r.Expr, "cassia_downsample_") {
						continue
					}
					q, err := engine.NewInstantQuery(t.Context(), db, nil, r.Expr, time.Unix(180*60, 0))
					require.NoError(t, err)
					result := q.Exec(t.Context())
					require.NoError(t, result.Err)
					if len(result.Value.(promengine.Vector)) > 0 {
						fire = append(fire, alert)
					}
					q.Close()
				}
			}
			slices.Sort(fire)
			require.Equal(t, c.fire, fire)
		})
	}
}
