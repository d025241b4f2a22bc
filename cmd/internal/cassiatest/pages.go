package cassiatest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// ManualPages returns the texts whose commands are tested: the pages of the manual, README.md and the READMEs of the
// examples. root is the root of the repository, and the keys are paths from there.
func ManualPages(t *testing.T, root string) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"README.md", "cmd/internal/manual/*.md", "examples/*/README.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, paths, pattern)
		for _, path := range paths {
			name, err := filepath.Rel(root, path)
			require.NoError(t, err)
			pages[name] = ReadText(t, path)
		}
	}
	return pages
}

// ReadText returns the text of a file.
func ReadText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
