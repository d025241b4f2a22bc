package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestImportOverHTTPSaysWhatIsWrong checks the errors for flags that can't be combined with --url or contradict the
// server's settings.
func TestImportOverHTTPSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blocks, users := filepath.Join(dir, "blocks"), filepath.Join(dir, "users.yml")
	require.NoError(t, os.Mkdir(blocks, 0o755))
	cassiatest.WriteBlocks(t, blocks, 40, 1)
	require.NoError(t, os.WriteFile(users, []byte(`users:
- {name: boss, tokens: ["sha256:`+hexOf("boss's")+`"], roles: [admin], tenants: [a, default]}
- {name: writer, tokens: ["sha256:`+hexOf("writer's")+`"], roles: [write, read], tenants: "*"}
`), 0o600))
	r := startServe(t, "--storage.path="+filepath.Join(dir, "data"), "--auth.file="+users)
	login := func(token string) string {
		file := filepath.Join(dir, token+".yml")
		require.NoError(t, os.WriteFile(file, []byte("authorization: {credentials: \""+token+"\"}\n"), 0o600))
		return "--url.http.config.file=" + file
	}
	boss := login("boss's")
	for _, c := range []struct {
		url  string
		args []string
		says string
	}{
		{"", nil, "401 Unauthorized"},
		{"", []string{login("writer's")}, `403 Forbidden: {"error":"forbidden: user \"writer\" doesn't have the role admin"`},
		{"", []string{boss, "--tenant=b"}, "may not use tenant"},
		{"", []string{boss}, "are past the retention of raw samples, 30d; of days (UTC) that ended more than 7 days earlier, only rollups are stored, unless the store still has older raw samples; to accept this, set --retention.raw explicitly, or set a longer retention on the server first"},
		{"", []string{boss, "--retention.raw=2y"}, "--retention.raw=2y doesn't match the server, which keeps raw samples of this tenant for 30d; set --retention.raw=30d, or omit it"},
		{"", []string{boss, "--retention.5m=2y"}, "--retention.5m configures a store that this command opens"},
		{"", []string{boss, "--storage.path=x"}, "--storage.path configures a store that this command opens"},
		{"localhost:9201", nil, "--url=localhost:9201: must be a URL"},
		{r.URL + "/api/v1", []string{boss}, "the server doesn't accept imports"},
	} {
		var stderr strings.Builder
		require.Equal(t, 1, run(append([]string{
			"import", "blocks", "--url=" + cmp.Or(c.url, r.URL), "--checkpoint=" + filepath.Join(dir, "checkpoint"),
			blocks,
		}, c.args...), &stderr), c.says)
		require.Contains(t, stderr.String(), c.says)
		require.NoFileExists(t, filepath.Join(dir, "checkpoint"))
	}
	var stderr strings.Builder
	require.Zero(t, run([]string{
		"import", "blocks", "--url=" + r.URL, boss, "--tenant=a", "--retention.raw=30d", "--verify",
		"--checkpoint=" + filepath.Join(dir, "checkpoint"), blocks,
	}, &stderr), &stderr)
}

func hexOf(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }
