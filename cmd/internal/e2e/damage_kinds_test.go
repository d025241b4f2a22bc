package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestEveryKindOfFileIsDamaged flips a byte in each kind of file of a directory, one at a time. Either the server
// starts, and its results are correct or have a warning about missing data, or it fails with one line that names the
// remedy. check and doctor must report the damage.
func TestEveryKindOfFileIsDamaged(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Hour)
	whole := cassiatest.SealedDirectory(t, now)
	// The directory has sealed rows in files and samples in a log.
	server := startServe(t, "--storage.path="+whole, "--retention.raw=0")
	server.Write(t, "up", time.Now(), 1)
	require.NoError(t, server.stop())
	kinds := filesByKind(t, whole)
	require.Subset(t, slices.Collect(maps.Keys(kinds)), []string{"sst", "log", "MANIFEST", "OPTIONS", "SYNCED"})
	undamaged := t.TempDir() // Use a copy, because a start rewrites files.
	require.NoError(t, os.CopyFS(filepath.Join(undamaged, "data"), os.DirFS(whole)))
	want, warned := answerOf(t, undamaged, now)
	require.False(t, warned)
	rng := rand.New(rand.NewPCG(soak.Seed(t), 0))
	kinds["MANIFEST"] = kinds["MANIFEST"][len(kinds["MANIFEST"])-1:] // Damage of an earlier manifest has no effect.
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		name := kinds[kind][rng.IntN(len(kinds[kind]))]
		base := t.TempDir()
		dir := filepath.Join(base, "data")
		require.NoError(t, os.CopyFS(dir, os.DirFS(whole)))
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		at := rng.IntN(len(b))
		b[at] ^= byte(1 + rng.IntN(255))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		about := fmt.Sprintf("byte %d of %s, which has %d", at, name, len(b))

		_, stderr, status := cassiatest.Command(t, builtCassia(t), "check", "--storage.path="+dir)
		require.Equal(t, 1, status, "%s: %s", about, stderr)
		text, stderr, status := cassiatest.Command(t, builtCassia(t), "doctor", "--storage.path="+dir)
		require.Equal(t, 1, status, "%s: %s", about, text)
		require.Regexp(t, `\d+ errors?`, stderr, "%s: %s", about, text)
		if got, warned := answerOf(t, base, now); !warned {
			require.Equal(t, want, got, about)
		}
	}
}

// filesByKind returns the files of a directory by kind, except empty files. Markers are empty because their names are
// their contents.
func filesByKind(t *testing.T, dir string) map[string][]string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	kinds := map[string][]string{}
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		kind, _, _ := strings.Cut(e.Name(), "-")
		if ext := filepath.Ext(e.Name()); ext == ".sst" || ext == ".log" {
			kind = ext[1:]
		}
		if info.Mode().IsRegular() && info.Size() > 0 {
			kinds[kind] = append(kinds[kind], e.Name())
		}
	}
	return kinds
}

// answerOf runs the program on the directory "data" below base and returns the result of a query. warned is set if the
// result has a warning about missing data, or if the program failed to start with a line that names the remedy.
func answerOf(t *testing.T, base string, now time.Time) (answer string, warned bool) {
	p := promrig.Cassia(builtCassia(t), base, cassiatest.FreeAddress(t), "--retention.raw=0", "--no-self-monitoring")
	process, err := promrig.StartReady(t.Context(), p)
	if err != nil {
		require.ErrorIs(t, err, promrig.ErrExited)
		require.Regexp(t, `cassia (restore|check)`, cassiatest.LastLine(strings.TrimSpace(err.Error())))
		return "", true
	}
	defer process.Kill()
	r := cassiatest.Server{URL: process.URL()}
	code, text := r.Get(t, "/api/v1/query?time="+fmt.Sprint(now.Unix())+"&query="+
		url.QueryEscape(`sum by (__name__) (sum_over_time({__name__=~"metric_.*"}[3d]))`))
	if code != 200 {
		require.Regexp(t, `cassia (restore|check)`, text)
		return "", true
	}
	return text, strings.Contains(text, `"warnings"`)
}
