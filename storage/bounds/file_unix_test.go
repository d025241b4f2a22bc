//go:build unix

package bounds

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadFile checks that ReadFile reads a file directly and through a link. It also checks that ReadFile rejects
// larger files and everything that isn't a regular file, including a pipe without a writer.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), []byte("text"), 0o600))
	require.NoError(t, os.WriteFile(at("large"), []byte(strings.Repeat("x", 1<<20+1)), 0o600))
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	for from, to := range map[string]string{"link": "file", "to a pipe": "pipe", "to nothing": "missing"} {
		require.NoError(t, os.Symlink(at(to), at(from)))
	}
	for _, name := range []string{"file", "link"} {
		text, err := ReadFile(at(name), 1<<20)
		require.NoError(t, err)
		require.Equal(t, "text", string(text))
	}
	for name, want := range map[string]string{
		"large": "is larger than 1 MiB", "pipe": "isn't a regular file", "to a pipe": "isn't a regular file",
		".": "isn't a regular file", "missing": "no such file or directory", "to nothing": "no such file or directory",
	} {
		_, err := ReadFile(at(name), 1<<20)
		require.EqualError(t, err, want, name)
	}
}
