package server

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommandLineHasNoPasswords checks that /debug/pprof/cmdline masks the passwords of URLs in flags.
func TestCommandLineHasNoPasswords(t *testing.T) {
	args := os.Args
	t.Cleanup(func() { os.Args = args })
	os.Args = []string{
		"cassia", "serve", "--alertmanager.url=http://u:secret@a:9093", "--metadata.from",
		"team=https://u:se@cret@b/p@q:r@s", "--web.external-url=http://c:80/d@e",
	}
	const want = "cassia\x00serve\x00--alertmanager.url=http://u:xxxxx@a:9093\x00--metadata.from\x00team=https://u:xxxxx@b/p@q:r@s\x00--web.external-url=http://c:80/d@e"
	require.Equal(t, want, serveRequest(NewHandler(testOptions()), "GET", "/debug/pprof/cmdline").Body.String())
}
