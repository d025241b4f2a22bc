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
)

const folder = "../../examples/helm"

var rewrite = flag.Bool("rewrite", false, "write what the chart renders now to testdata")

// rendered is what the chart makes of values, as one file.
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

// What the examples of values render is in testdata, where the tests in docker/examples look at it. go test . -rewrite writes it anew.
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

			for _, m := range lint.AllWithKubeVersion(filepath.Join(folder, "cassia"), valuesFile(t, file), "monitoring", nil).Messages {
				require.Less(t, m.Severity, support.WarningSev, m.Error())
			}
		})
	}
}

// Values that would do harm, or nothing, are refused.
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
	} {
		c, err := loader.Load(filepath.Join(folder, "cassia"))
		require.NoError(t, err)
		values, err := chartutil.ReadValues([]byte(text))
		require.NoError(t, err)
		_, err = rendered(t, c, values)
		require.ErrorContains(t, err, why, text)
	}
}

// Each value of the chart is in the schema, and each in the schema has a default.
func TestSchemaAndDefaultsAgree(t *testing.T) {
	c, err := loader.Load(filepath.Join(folder, "cassia"))
	require.NoError(t, err)
	for name := range c.Values {
		require.True(t, bytes.Contains(c.Schema, []byte(`"`+name+`":`)), name)
	}
}
