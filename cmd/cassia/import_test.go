package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestImportNeedsItsRetention checks that an import fails if a required retention flag is missing.
func TestImportNeedsItsRetention(t *testing.T) {
	dir := t.TempDir()
	blocks := filepath.Join(dir, "blocks")
	require.NoError(t, os.Mkdir(blocks, 0o755))
	cassiatest.WriteBlocks(t, blocks, 40, 1)
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "past the retention of raw samples, 30d"},
		{[]string{"--storage.engine=cassandra"}, "--retention.raw is missing"},
		{[]string{"--match=up{", "--dry-run"}, "--match=up{"},
		{[]string{"--label=x", "--dry-run"}, "--label=x"},
		{[]string{"--start=2027-01-02T00:00:00Z", "--end=2027-01-01T00:00:00Z"}, "the end must not be before the start"},
	} {
		var stderr strings.Builder
		require.Equal(t, 1, run(
			append([]string{"import", "blocks", "--storage.path=" + filepath.Join(dir, "data"), blocks}, c.args...),
			&stderr,
		))
		require.Contains(t, stderr.String(), c.says)
		require.NoDirExists(t, filepath.Join(dir, "data"))
	}
}
