package tidy

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// machinePath matches paths that exist only on a single machine: home folders, working folders, and folders next to the
// repository.
var machinePath = regexp.MustCompile(`(^|[\s"'=(` + "`" + `])(/(home|Users|root|work)/[\w.-]|\.\./shared\b)`)

// registryHosts contains the hosts of package registries. Each machine configures its own registries, so the repository
// must not name any.
var registryHosts = [][]byte{
	[]byte("proxy.golang" + ".org"), []byte("deb.debian" + ".org"), []byte("registry.npmjs" + ".org"),
	[]byte("repo.maven.apache" + ".org"), []byte("repo1.maven" + ".org"),
}

func TestNothingNamesAMachine(t *testing.T) {
	walkFiles(t, func(rel string, content []byte) {
		if bytes.IndexByte(content, 0) >= 0 {
			return // binary file
		}
		found := machinePath.Find(content)
		require.Empty(t, string(found),
			"%s names a place that exists on one machine only: use a relative path or a flag", rel)
		for _, host := range registryHosts {
			require.False(t, bytes.Contains(content, host),
				"%s names the host %s: leave it to the package client", rel, host)
		}
	})
}

func TestMachinePath(t *testing.T) {
	for text, wrong := range map[string]bool{
		`cd "/home/` + `ann/cassia"`: true, "see /root/" + "go/pkg": true, "in ../" + "shared/data": true,
		"https://example.com/home/ann": false, "the root / of all work": false, "/var/lib/cassia": false,
	} {
		require.Equal(t, wrong, machinePath.MatchString(text), text)
	}
}

// TestOnePrometheus checks that the tests run the version of Prometheus that is also used as a library.
func TestOnePrometheus(t *testing.T) {
	version := regexp.MustCompile(`(?m)^\s*github\.com/prometheus/prometheus (v\S+)`)
	var found []string
	for _, name := range []string{"go.mod", "cmd/tools/go.mod", "docker/prometheus/go.mod"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		match := version.FindSubmatch(content)
		require.NotNil(t, match, "%s requires no Prometheus", name)
		found = append(found, string(match[1]))
	}
	for _, version := range found {
		require.Equal(t, found[0], version,
			"give cmd/tools/go.mod and docker/prometheus/go.mod the version in go.mod, and run go mod tidy there")
	}
}
