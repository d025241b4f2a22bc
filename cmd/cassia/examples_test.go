package main

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/coreos/go-systemd/v22/unit"
	"github.com/prometheus/common/promslog"
	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/config"
)

const examples = "../../examples"

// served holds the arguments of a cassia in an example against the flags that there are, and what they may be set to. It
// returns the port that they have it listen on.
func served(t *testing.T, args []string) (port string) {
	t.Helper()
	require.NotEmpty(t, args)
	require.Equal(t, "serve", args[0])
	app := kingpin.New("cassia", "").Terminate(nil)
	c := config.Register(app.Command("serve", ""), 4<<30)
	_, err := app.Parse(args)
	require.NoError(t, err, "%q", args)
	require.NoError(t, c.Validate(), "%q", args)
	_, port, _ = strings.Cut(c.ListenAddresses[0], ":")
	return port
}

func TestSystemdUnit(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(examples, "single-node", "cassia.service"))
	require.NoError(t, err)
	options, err := unit.DeserializeOptions(bytes.NewReader(text))
	require.NoError(t, err)
	find := func(section, name string) string {
		at := slices.IndexFunc(options, func(o *unit.UnitOption) bool { return o.Section == section && o.Name == name })
		require.GreaterOrEqual(t, at, 0, "%s of [%s]", name, section)
		return options[at].Value
	}
	command := strings.Fields(find("Service", "ExecStart"))
	require.Equal(t, "/usr/bin/cassia", command[0], "where the packages have it")
	for _, settings := range []string{find("Service", "Environment"), packagedSettings(t)} {
		args, address := expanded(t, command[1:], settings), ""
		for _, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--web.listen-address="); ok {
				address = value
			}
		}
		served(t, args)
		host, _, err := net.SplitHostPort(address)
		require.NoError(t, err)
		require.True(t, net.ParseIP(host).IsLoopback(), "only this machine reaches it by default: %s", address)
	}
	require.Contains(t, command, "--storage.path=/var/lib/"+find("Service", "StateDirectory"), "the one directory that may be written to")
	require.Equal(t, "-/etc/cassia/cassia.env", find("Service", "EnvironmentFile"))
	require.Equal(t, "/bin/kill -HUP $MAINPID", find("Service", "ExecReload"))
	require.Equal(t, "strict", find("Service", "ProtectSystem"))
	require.Equal(t, "multi-user.target", find("Install", "WantedBy"))
}

// packagedSettings is the file of settings in the packages, as a line of systemd's Environment.
func packagedSettings(t *testing.T) string {
	text, err := os.ReadFile("../../docker/packages/cassia.env")
	require.NoError(t, err)
	var set []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			name, value, ok := strings.Cut(line, "=")
			require.True(t, ok, line)
			set = append(set, name+"="+strings.Trim(value, `"`))
		}
	}
	return strings.Join(set, " ")
}

// expanded replaces variables as systemd does: ${NAME} within a word, $NAME by words of its own.
func expanded(t *testing.T, args []string, settings string) (out []string) {
	known := map[string]string{}
	for _, s := range strings.Fields(settings) {
		name, value, _ := strings.Cut(s, "=")
		known[name] = value
	}
	value := func(name string) string {
		v, ok := known[name]
		require.True(t, ok, "%s has no value", name)
		return v
	}
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "$"); ok && !strings.HasPrefix(name, "{") {
			out = append(out, strings.Fields(value(name))...)
			continue
		}
		out = append(out, os.Expand(arg, value))
	}
	return out
}

func TestComposeExample(t *testing.T) {
	dir := filepath.Join(examples, "compose")
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: dir, ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml")}},
	})
	require.NoError(t, err, "the schema of Compose")
	ports := map[string]string{"prometheus": "9090", "node-exporter": "9100", "grafana": "3000", "alertmanager": "9093"}
	ports["cassia"] = served(t, project.Services["cassia"].Command)
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
	require.Contains(t, project.Services["cassia"].Command, "--storage.path="+project.Services["cassia"].Volumes[0].Target)
	conf, err := promconfig.LoadFile(filepath.Join(dir, "prometheus.yml"), false, promslog.NewNopLogger())
	require.NoError(t, err)
	alertmanagers := conf.AlertingConfig.AlertmanagerConfigs
	require.Len(t, alertmanagers, 1)
	require.Equal(t, "alertmanager:9093", string(alertmanagers[0].ServiceDiscoveryConfigs[0].(discovery.StaticConfig)[0].Targets[0]["__address__"]))
	require.Equal(t, []string{"/etc/prometheus/rules/*.yml"}, conf.RuleFiles, "where the volumes put them")

	for _, at := range prometheusURLs(t, filepath.Join(dir, "prometheus.yml")) {
		require.Equal(t, ports["cassia"], at.Port())
		require.Equal(t, "cassia", at.Hostname())
	}
	source, err := os.ReadFile(filepath.Join(dir, "grafana-datasource.yml"))
	require.NoError(t, err)
	require.Contains(t, string(source), "url: http://cassia:"+ports["cassia"]+"\n")
}

// prometheusURLs are where a configuration of Prometheus sends and reads samples.
func prometheusURLs(t *testing.T, file string) (at []*url.URL) {
	conf, err := promconfig.LoadFile(file, false, promslog.NewNopLogger())
	require.NoError(t, err)
	for _, w := range conf.RemoteWriteConfigs {
		at = append(at, w.URL.URL)
		require.Equal(t, "/api/v1/write", w.URL.Path)
	}
	for _, r := range conf.RemoteReadConfigs {
		at = append(at, r.URL.URL)
		require.Equal(t, "/api/v1/read", r.URL.Path)
	}
	require.NotEmpty(t, at)
	return at
}

func TestSingleNodeExample(t *testing.T) {
	for _, at := range prometheusURLs(t, filepath.Join(examples, "single-node", "prometheus.yml")) {
		require.Equal(t, "localhost:"+served(t, []string{"serve"}), at.Host)
	}
}
