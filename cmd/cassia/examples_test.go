package main

import (
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/config"
)

const examples = "../../examples"

// servedPort checks the arguments of a cassia server in an example: all flags exist and have valid values. It returns
// the port on which the server listens.
func servedPort(t *testing.T, args []string) (port string) {
	t.Helper()
	require.NotEmpty(t, args)
	require.Equal(t, "serve", args[0])
	app := kingpin.New("cassia", "").Terminate(nil)
	c := config.RegisterFlags(app.Command("serve", ""), 4<<30)
	_, err := app.Parse(args)
	require.NoError(t, err, "%q", args)
	require.NoError(t, c.Validate(), "%q", args)
	_, port, _ = strings.Cut(c.ListenAddresses[0], ":")
	return port
}

// exampleCommands is the file with the command lines of the examples, which package docker/examples extracts.
const exampleCommands = "../../docker/examples/testdata/commands.json"

// exampleCommand is one command line in that file.
type exampleCommand struct {
	File, Name, Port string
	Args, Secrets    []string
	Files            map[string]string
	Scrape           []struct{ Scheme, Path, Token, CA, ServerName string }
}

func readExampleCommands(t *testing.T) (all []exampleCommand) {
	t.Helper()
	text, err := os.ReadFile(exampleCommands)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	return all
}

// TestCommandsOfExamples checks that the command lines in the examples use existing flags with valid values.
func TestCommandsOfExamples(t *testing.T) {
	all := readExampleCommands(t)
	require.Greater(t, len(all), 10)
	for _, c := range all {
		t.Run(c.File+"/"+c.Name, func(t *testing.T) {
			for _, name := range append(c.Secrets, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") {
				t.Setenv(name, "secret")
			}
			if c.Port != "" {
				require.Equal(t, c.Port, servedPort(t, withFiles(t, c, "")))
				return
			}
			app := kingpin.New("cassia", "").Terminate(nil)
			subcommands(app)
			command, err := app.Parse(c.Args)
			require.NoError(t, err, "%q", c.Args)
			require.Equal(t, "backup create", command)
		})
	}
}

// withFiles copies the files that a pod mounts below /etc/cassia to a folder of the test, and returns the arguments
// with their new paths. Files of Secrets get example contents. web is the content of web.yml.
func withFiles(t *testing.T, c exampleCommand, web string) []string {
	t.Helper()
	dir := t.TempDir()
	auth, err := os.ReadFile(filepath.Join(examples, "locks", "auth.yml"))
	require.NoError(t, err)
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	files := map[string]string{
		"/etc/cassia/auth/auth.yml": string(auth), "/etc/cassia/web/web.yml": web,
		"/etc/cassia/backup/backup.key": key.String() + "\n",
	}
	maps.Copy(files, c.Files)
	out := slices.Clone(c.Args)
	for path, text := range files {
		file := filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		for i := range out {
			out[i] = strings.ReplaceAll(out[i], path, file)
		}
	}
	return out
}

func TestPrometheusOfComposeExample(t *testing.T) {
	file := filepath.Join(examples, "compose", "prometheus.yml")
	conf, err := promconfig.LoadFile(file, false, promslog.NewNopLogger())
	require.NoError(t, err)
	alertmanagers := conf.AlertingConfig.AlertmanagerConfigs
	require.Len(t, alertmanagers, 1)
	require.Equal(t, "alertmanager:9093",
		string(alertmanagers[0].ServiceDiscoveryConfigs[0].(discovery.StaticConfig)[0].Targets[0]["__address__"]))
	require.Equal(t, []string{"/etc/prometheus/rules/*.yml"}, conf.RuleFiles, "where the volumes put them")
	for _, at := range prometheusURLs(t, file) {
		require.Equal(t, "cassia:"+servedPort(t, []string{"serve"}), at.Host,
			"the port is that of the service, see docker/examples")
	}
}

// prometheusURLs returns the URLs of remote write and remote read in a Prometheus configuration.
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
		require.Equal(t, "localhost:"+servedPort(t, []string{"serve"}), at.Host)
	}
}
