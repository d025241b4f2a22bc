package tidy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia"
)

// TestOneVersion checks that the version is the same in all files that can't read it from the file VERSION: the chart,
// the images in the examples, and the first section of the changelog. If VERSION ends with -dev, that section names the
// release that follows. docker/release reads VERSION, and .ci/run checks the archive and the packages.
func TestOneVersion(t *testing.T) {
	version := cassia.Version()
	require.Regexp(t, `^\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`, version)

	chart := textOf(t, "examples/helm/cassia/Chart.yaml")
	for _, key := range []string{"version", "appVersion"} {
		require.Contains(t, chart, "\n"+key+": "+version+"\n",
			"Chart.yaml: write the version of the file VERSION, and run go test . -rewrite in docker/helm")
	}

	release, _, _ := strings.Cut(version, "-")
	first := regexp.MustCompile(`(?m)^## (\S+) / (\S+)$`).FindStringSubmatch(textOf(t, "CHANGELOG.md"))
	require.NotNil(t, first, "CHANGELOG.md has no section such as ## 1.2.3 / 2026-05-31")
	require.Equal(t, release, first[1], "CHANGELOG.md: its first section is of another version than the file VERSION")
	require.Equal(t, release != version, first[2] == "unreleased",
		"CHANGELOG.md: a version that ends in -dev is unreleased, any other has its date")

	images := 0
	image := regexp.MustCompile(`registry\.example\.org/cassia:(\d[\w.-]*)`)
	walkFiles(t, func(rel string, content []byte) {
		if !strings.HasPrefix(rel, "examples/") {
			return
		}
		for _, m := range image.FindAllSubmatch(content, -1) {
			images++
			require.Equal(t, version, string(m[1]), "%s names an image of another version than the file VERSION", rel)
		}
	})
	require.Greater(t, images, 3)
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(content)
}
