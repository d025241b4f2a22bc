package main

import (
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
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
)

// alertRules reads the rules of an example as promtool check rules does, by name.
func alertRules(t *testing.T, file string) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, errs, file)
	rules := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			require.NotContains(t, rules, r.Alert, "%s: two rules of one name", file)
			rules[r.Alert] = r
		}
	}
	return rules
}

func alertFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../examples/*/alerts*.yml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 2)
	return files
}

// TestAlertRulesAreSound holds that each alert says what to do, and asks for metrics that there are.
func TestAlertRulesAreSound(t *testing.T) {
	_, metrics := startServe(t, "--storage.path="+t.TempDir()).get(t, "/metrics")
	name := regexp.MustCompile(`\bcassia_\w+`)
	elsewhere := map[string]string{
		"cassia_cassandra_nodes":          "Cassandra's own",
		"cassia_store_corrupt_rows_total": "there is none before a row is corrupt",
	}
	for _, file := range alertFiles(t) {
		for alert, r := range alertRules(t, file) {
			require.NotEmpty(t, r.Annotations["summary"], "%s: %s must say what is wrong", file, alert)
			require.NotEmpty(t, r.Annotations["description"], "%s: %s must say what to do", file, alert)
			for _, m := range name.FindAllString(r.Expr, -1) {
				if elsewhere[m] == "" {
					require.Contains(t, metrics, "\n"+m, "%s: %s asks for a metric that there isn't", file, alert)
				}
			}
		}
	}
}

// TestAlertsOfDownsampling lets metrics stand as they do when something is wrong: the alerts for that fire, and no
// others.
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
		{"an upgrade", map[string]string{"unrolled_windows": "40x180"}, []string{"CassiaRollupsMissing"}},
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
			for _, file := range alertFiles(t) {
				var fire []string
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
				slices.Sort(fire)
				require.Equal(t, c.fire, fire, file)
			}
		})
	}
}
