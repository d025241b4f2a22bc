package remotewrite

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpecNamesTests checks that every test named in SPEC.md exists in this package or in interop.
func TestSpecNamesTests(t *testing.T) {
	known := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	senders, err := filepath.Glob("interop/*_test.go")
	require.NoError(t, err)
	for _, name := range append(files, senders...) {
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(source, -1) {
			known[string(m[1])] = true
		}
	}
	spec, err := os.ReadFile("SPEC.md")
	require.NoError(t, err)
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllSubmatch(spec, -1)
	require.NotEmpty(t, named)
	for _, m := range named {
		require.True(t, known[string(m[1])], "SPEC.md names %s, which doesn't exist", m[1])
	}
	row := regexp.MustCompile(`(?m)^\| .* \|$`)
	for _, line := range row.FindAllString(string(spec), -1) {
		if line != "| Point | Cassia | Shown by |" {
			require.Regexp(t, "`(Test|Fuzz)\\w+` \\|$", line, "every point is shown by a test")
		}
	}
}
