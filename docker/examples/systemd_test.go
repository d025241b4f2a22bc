package examples

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/require"
)

// unitFile is the example of a systemd unit.
const unitFile = "single-node/cassia.service"

// systemdUnit returns a function that looks up an option in the unit file.
func systemdUnit(t *testing.T) (find func(section, name string) string) {
	text, err := os.ReadFile(filepath.Join(folder, unitFile))
	require.NoError(t, err)
	options, err := unit.DeserializeOptions(bytes.NewReader(text))
	require.NoError(t, err)
	return func(section, name string) string {
		at := slices.IndexFunc(options, func(o *unit.UnitOption) bool { return o.Section == section && o.Name == name })
		require.GreaterOrEqual(t, at, 0, "%s of [%s]", name, section)
		return options[at].Value
	}
}

// unitCommands returns the unit's command line, with the unit's default settings and with the settings of the packages.
func unitCommands(t *testing.T) (all []command) {
	find := systemdUnit(t)
	words := strings.Fields(find("Service", "ExecStart"))
	require.Equal(t, "/usr/bin/cassia", words[0], "where the packages have it")
	for name, settings := range map[string]string{
		"Environment": find("Service", "Environment"), "cassia.env": packagedSettings(t),
	} {
		args := expanded(t, words[1:], settings)
		all = append(all, command{File: unitFile, Name: name, Args: args, Port: portOf(args)})
	}
	slices.SortFunc(all, func(a, b command) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func TestSystemdUnit(t *testing.T) {
	find := systemdUnit(t)
	for _, c := range unitCommands(t) {
		address := flagOf(c.Args, "web.listen-address", "")
		host, _, err := net.SplitHostPort(address)
		require.NoError(t, err)
		require.True(t, net.ParseIP(host).IsLoopback(), "only this machine reaches it by default: %s", address)
		require.Contains(t, c.Args, "--storage.path=/var/lib/"+find("Service", "StateDirectory"),
			"the one directory that may be written to")
	}
	require.Equal(t, "-/etc/cassia/cassia.env", find("Service", "EnvironmentFile"))
	require.Equal(t, "/bin/kill -HUP $MAINPID", find("Service", "ExecReload"))
	require.Equal(t, "strict", find("Service", "ProtectSystem"))
	require.Equal(t, "multi-user.target", find("Install", "WantedBy"))
}

// packagedSettings returns the contents of the packages' settings file, in the syntax of systemd's Environment.
func packagedSettings(t *testing.T) string {
	text, err := os.ReadFile("../packages/cassia.env")
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

// expanded expands variables as systemd does: ${NAME} within a word, $NAME as separate words.
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
