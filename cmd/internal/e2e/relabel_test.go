package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/relabeling"
	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// relabelRules contains rules that drop series, rename series and truncate labels.
const relabelRules = `
write_relabel_configs:
- {source_labels: [__name__], regex: noise.*, action: drop}
- {source_labels: [__name__], regex: old_(.*), target_label: __name__, replacement: new_$1}
- {regex: pod, action: labeldrop}
tenants:
  free: {write_relabel_configs: []}
`

// TestRelabelCommand checks the output of cassia relabel on a directory and, with --url, on a server with the same
// data.
func TestRelabelCommand(t *testing.T) {
	binary := builtCassia(t)
	data := t.TempDir()
	r := startServe(t, "--storage.path="+data)
	at := time.Now().Truncate(time.Second)
	for i := range 10 {
		for _, name := range []string{"noise", "old_a", "new_a", "up"} {
			r.Write(t, name, at.Add(time.Duration(i-10)*time.Second), float64(i))
		}
	}
	r.Value(t, "up", at) // Wait until the server is ready.
	file := filepath.Join(t.TempDir(), "relabel.yml")
	require.NoError(t, os.WriteFile(file, []byte(relabelRules+`  cutting:
    write_relabel_configs: [{source_labels: [__name__], regex: up, target_label: __name__, replacement: ""}]`), 0o600))
	check := func(args ...string) {
		t.Helper()
		out, errs, status := cassiatest.Command(t, binary, append([]string{"relabel", "--json", file}, args...)...)
		require.Zero(t, status, errs)
		var found relabeling.Trial
		require.NoError(t, json.Unmarshal([]byte(out), &found), out)
		require.EqualValues(t, 4, found.All.Series, out)
		require.EqualValues(t, 40, found.All.Samples)
		require.EqualValues(t, 1, found.Dropped.Series)
		require.EqualValues(t, 10, found.Rules[0].Dropped.Samples)
		require.Equal(t, []relabeling.Example{{Before: `{__name__="noise"}`}}, found.Rules[0].Examples)
		require.Equal(t, []relabeling.Example{{Before: `{__name__="old_a"}`, After: `{__name__="new_a"}`}},
			found.Rules[1].Examples)
		require.EqualValues(t, 1, found.Changed.Series)
		require.EqualValues(t, 1, found.Merged)
		require.InDelta(t, found.All.DayBytes/4, found.Dropped.DayBytes, found.All.DayBytes/40)
		require.False(t, found.Cut)
	}
	check("--url=" + r.URL)
	_, errs, status := cassiatest.Command(t, binary, "relabel", file, "--url="+r.URL, "--tenant=free")
	require.Equal(t, 1, status)
	require.Contains(t, errs, "no rules for tenant free")
	_, errs, status = cassiatest.Command(t, binary, "relabel", file, "--storage.path="+data)
	require.Equal(t, 1, status)
	require.Contains(t, errs, "--url")
	require.NoError(t, r.stop())
	before := cassiatest.FilesOf(t, data)
	check("--storage.path=" + data)
	out, errs, status := cassiatest.Command(t, binary, "relabel", "--dry-run", file, "--storage.path="+data)
	require.Zero(t, status, errs)
	require.Contains(t, out, "    {__name__=\"old_a\"} → {__name__=\"new_a\"}\n")
	require.Equal(t, before, cassiatest.FilesOf(t, data), "nothing was changed")
	for args, want := range map[string]string{
		"--no-dry-run": "--write.relabel-file", "--tenant=a/b": "--tenant", "--tenant=cutting": "has no samples",
		"--start=x": "--start=x",
	} {
		_, errs, status = cassiatest.Command(t, binary, "relabel", file, "--storage.path="+data, args)
		require.Equal(t, 1, status, args)
		require.Contains(t, errs, want)
	}
}
