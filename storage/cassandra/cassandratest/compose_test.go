package cassandratest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// compose is the part of a Docker Compose file that can be checked without Docker.
type compose struct {
	Services map[string]struct {
		Build       any
		Environment map[string]string
		Command     []string
		Ports       []string
		Volumes     []string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Healthcheck struct{ Test []string }
	}
	Volumes map[string]any
}

// TestComposeFiles checks docker/compose-cassandra*.yaml: all files that they name must exist.
func TestComposeFiles(t *testing.T) {
	root, err := repository()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "docker", "compose-cassandra*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var c compose
			require.NoError(t, yaml.Unmarshal(text, &c))
			require.NotEmpty(t, c.Services)
			published := map[string]string{}
			for name, service := range c.Services {
				requireBuild(t, filepath.Dir(file), service.Build)
				for other, how := range service.DependsOn {
					require.Contains(t, c.Services, other, "%s depends on it", name)
					if how.Condition == "service_healthy" {
						require.NotEmpty(t, c.Services[other].Healthcheck.Test, "%s waits until it is healthy", name)
					}
				}
				for _, volume := range service.Volumes {
					source, _, _ := strings.Cut(volume, ":")
					require.Contains(t, c.Volumes, source)
				}
				for _, port := range service.Ports {
					outside, inside, _ := strings.Cut(port, ":")
					require.Equal(t, "9201", inside, "the port that docker/Dockerfile exposes")
					require.Empty(t, published[outside], "%s is taken", outside)
					published[outside] = name
				}
				for seed := range strings.SplitSeq(service.Environment["CASSANDRA_SEEDS"], ",") {
					require.True(t, seed == "" || c.Services[seed].Environment != nil, "%s is no service", seed)
				}
				for _, flag := range service.Command {
					hosts, ok := strings.CutPrefix(flag, "--cassandra.hosts=")
					for host := range strings.SplitSeq(hosts, ",") {
						node, isCQL := strings.CutSuffix(host, ":9042")
						require.True(t, !ok || isCQL && c.Services[node].Environment != nil, "%s is no service", host)
					}
				}
			}
			require.NotEmpty(t, published)
		})
	}
}

// requireBuild requires that the Dockerfile of a service exists. build is its folder, or a map.
func requireBuild(t *testing.T, dir string, build any) {
	t.Helper()
	context, file := "", "Dockerfile"
	switch b := build.(type) {
	case string:
		context = b
	case map[string]any:
		context, _ = b["context"].(string)
		file, _ = b["dockerfile"].(string)
	}
	require.NotEmpty(t, context)
	require.FileExists(t, filepath.Join(dir, context, file))
}
