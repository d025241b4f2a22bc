// Package helm renders and lints Cassia's chart with Helm's own code.
package helm

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

const folder = "../../examples/helm"

var rewrite = flag.Bool("rewrite", false, "write what the chart renders now to testdata")

// rendered renders the chart to a single file and returns its text.
func rendered(t *testing.T, c *chart.Chart, values map[string]any) (string, error) {
	t.Helper()
	require.NoError(t, chartutil.ProcessDependencies(c, values))
	release := chartutil.ReleaseOptions{Name: "cassia", Namespace: "monitoring", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".txt") {
			require.Contains(t, files[name], "Prometheus writes to")
			continue
		}
		if text := strings.TrimSpace(files[name]); text != "" {
			out.WriteString("---\n" + strings.TrimPrefix(text, "---\n") + "\n")
		}
	}
	return out.String(), nil
}

func valuesFile(t *testing.T, file string) map[string]any {
	t.Helper()
	values, err := chartutil.ReadValuesFile(file)
	require.NoError(t, err)
	return values
}

// TestExamplesOfValues renders the chart with the example values and compares the result with testdata, which the tests
// in docker/examples also use. To update testdata: go test . -rewrite.
func TestExamplesOfValues(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(folder, "values-*.yaml"))
	require.NoError(t, err)
	kept, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.True(t, *rewrite || len(kept) == len(files), "testdata has files of which there are no values")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := loader.Load(filepath.Join(folder, "cassia"))
			require.NoError(t, err)
			got, err := rendered(t, c, valuesFile(t, file))
			require.NoError(t, err)
			golden := filepath.Join("testdata", strings.TrimPrefix(filepath.Base(file), "values-"))
			if *rewrite {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got, "go test . -rewrite in docker/helm, and look at what has changed")

			for _, m := range lint.AllWithKubeVersion(
				filepath.Join(folder, "cassia"), valuesFile(t, file), "monitoring", nil,
			).Messages {
				require.Less(t, m.Severity, support.WarningSev, m.Error())
			}
		})
	}
}

// TestRefusedValues checks that harmful or ineffective values are rejected.
func TestRefusedValues(t *testing.T) {
	for text, why := range map[string]string{
		"image: {tag: latest}":           "tag",
		"retention: {raw: 90 days}":      "retention",
		"mode: cassandra":                "hosts",
		"replicas: 3":                    "replicas",
		"cassandra: {roles: {seal: {}}}": "seal",
		"mode: cassandra\ncassandra: {hosts: [a]}\nbackup: {enabled: true}": "backup",
		"resources: {memory: 4Gi}": "resources",
		"extraArgs: [serve]":       "extraArgs",
		"mode: cassandra\ncassandra: {hosts: [a]}\nbackup: {to: 's3://b'}": "backup",
		"backup: {to: /mnt}":                                         "backup",
		"backup: {to: 's3://b', enabled: true}":                      "backup",
		"rules: {a: {}}":                                             "groups",
		"rules: {'a/b': {groups: [{}]}}":                             "a/b",
		"relabel: {rules: []}":                                       "relabel",
		"alertmanagers: [alertmanager]":                              "alertmanagers",
		"auth: {existingSecret: a}\nserviceMonitor: {enabled: true}": "serviceMonitor.authorization",
		"auth: {existingSecret: a}\nserviceMonitor: {enabled: true, tlsConfig: {serverName: a}}": "serviceMonitor.authorization",
		"web: {existingSecret: a, tls: true}\nserviceMonitor: {enabled: true}":                   "serviceMonitor.tlsConfig",
		"auth: {existingSecret: a}\nbackup: {enabled: true}":                                     "backup.httpConfigSecret",
	} {
		c, err := loader.Load(filepath.Join(folder, "cassia"))
		require.NoError(t, err)
		values, err := chartutil.ReadValues([]byte(text))
		require.NoError(t, err)
		_, err = rendered(t, c, values)
		require.ErrorContains(t, err, why, text)
	}
}

// TestFilesOfTheChart checks that the copies of the example rules and dashboards in the chart are up to date. The chart
// needs copies because Helm reads only files inside the chart. To update them: go test . -rewrite.
func TestFilesOfTheChart(t *testing.T) {
	for from, to := range map[string]string{"../rules/*.yml": "rules", "../grafana/dashboards/*.json": "dashboards"} {
		files, err := filepath.Glob(filepath.Join(folder, from))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		var names []string
		for _, file := range files {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			name := filepath.Join(folder, "cassia", "files", to, filepath.Base(file))
			if *rewrite {
				require.NoError(t, os.WriteFile(name, want, 0o644))
			}
			got, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got),
				"%s isn't that of the examples: go test . -rewrite in docker/helm", name)
			names = append(names, name)
		}
		kept, err := filepath.Glob(filepath.Join(folder, "cassia", "files", to, "*"))
		require.NoError(t, err)
		require.ElementsMatch(t, names, kept)
	}
}

// TestDashboards checks that the rendered dashboards are equal to the examples, because Helm must not expand the
// templates in them.
func TestDashboards(t *testing.T) {
	c, err := loader.Load(filepath.Join(folder, "cassia"))
	require.NoError(t, err)
	values, err := chartutil.ReadValues([]byte("dashboards: {enabled: true}"))
	require.NoError(t, err)
	text, err := rendered(t, c, values)
	require.NoError(t, err)
	found := 0
	for document := range strings.SplitSeq(text, "\n---\n") {
		var config struct {
			Kind     string
			Metadata struct{ Labels map[string]string }
			Data     map[string]string
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &config))
		if config.Kind != "ConfigMap" {
			continue
		}
		require.Equal(t, "1", config.Metadata.Labels["grafana_dashboard"])
		for name, got := range config.Data {
			want, err := os.ReadFile(filepath.Join(folder, "..", "grafana", "dashboards", name))
			require.NoError(t, err)
			require.JSONEq(t, string(want), got)
			found++
		}
	}
	require.Equal(t, 2, found)
}

// TestSchemaAndDefaultsAgree checks that the schema contains every value of the chart.
func TestSchemaAndDefaultsAgree(t *testing.T) {
	c, err := loader.Load(filepath.Join(folder, "cassia"))
	require.NoError(t, err)
	for name := range c.Values {
		require.True(t, bytes.Contains(c.Schema, []byte(`"`+name+`":`)), name)
	}
}
