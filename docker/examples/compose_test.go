package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

// composeFile is the example of a Docker Compose file.
const composeFile = "compose/compose.yaml"

func composeProject(t *testing.T) *types.Project {
	file := filepath.Join(folder, composeFile)
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: filepath.Dir(file), ConfigFiles: []types.ConfigFile{{Filename: file}},
	})
	require.NoError(t, err, "the schema of Compose")
	return project
}

func composeCommand(t *testing.T) command {
	args := composeProject(t).Services["cassia"].Command
	return command{File: composeFile, Name: "cassia", Args: args, Port: portOf(args)}
}

func TestComposeExample(t *testing.T) {
	project := composeProject(t)
	ports := map[string]string{"prometheus": "9090", "node-exporter": "9100", "grafana": "3000", "alertmanager": "9093"}
	ports["cassia"] = composeCommand(t).Port
	taken := map[string]bool{}
	var memory int64
	for name, service := range project.Services {
		require.Positive(t, service.MemLimit, "%s has as much memory as it likes", name)
		memory += int64(service.MemLimit)
		_, tag, _ := strings.Cut(service.Image, ":")
		require.NotContains(t, []string{"", "latest"}, tag, "%s is another one tomorrow", name)
		for _, p := range service.Ports {
			require.Equal(t, "127.0.0.1", p.HostIP, "%s is for this machine only", name)
			require.False(t, taken[p.Published], "%s is taken", p.Published)
			taken[p.Published] = true
			require.Equal(t, ports[name], p.Published, "%s is found where it is inside", name)
		}
		for _, v := range service.Volumes {
			if v.Type == types.VolumeTypeBind {
				require.FileExists(t, v.Source, name)
			}
		}
		if service.Build != nil {
			require.FileExists(t, filepath.Join(service.Build.Context, service.Build.Dockerfile), name)
		}
		for other, how := range service.DependsOn {
			if how.Condition == types.ServiceConditionHealthy {
				require.NotNil(t, project.Services[other].HealthCheck, "%s waits for it", name)
			}
		}
	}
	require.Len(t, project.Services, len(ports))
	require.Less(t, memory, int64(3<<30))
	require.Contains(
		t, project.Services["cassia"].Command, "--storage.path="+project.Services["cassia"].Volumes[0].Target,
	)
	source, err := os.ReadFile(filepath.Join(folder, "compose", "grafana-datasource.yml"))
	require.NoError(t, err)
	require.Contains(t, string(source), "url: http://cassia:"+ports["cassia"]+"\n")
}
