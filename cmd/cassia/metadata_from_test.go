package main

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/config"
)

// TestMetadataFromWrongConfig checks that an invalid configuration prevents the start.
func TestMetadataFromWrongConfig(t *testing.T) {
	app := kingpin.New("cassia", "")
	c := config.RegisterFlags(app.Command("serve", ""), 1<<30)
	_, err := app.Parse([]string{
		"serve", "--web.listen-address=127.0.0.1:0", "--storage.path=" + t.TempDir(),
		"--metadata.from=http://127.0.0.1:1", "--metadata.http.config.file=" + filepath.Join(t.TempDir(), "none.yml"),
	})
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	err = runServer(t.Context(), c, nil, slog.New(slog.DiscardHandler), func([]string) {})
	require.ErrorContains(t, err, "--metadata.http.config.file=")
	require.ErrorContains(t, err, "no such file")
}
