package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestCheckAsJSON checks that check --json prints the totals and the problems of a store as JSON, and nothing else.
func TestCheckAsJSON(t *testing.T) {
	dir := cassiatest.SealedDirectory(t, time.Now().Truncate(time.Hour))
	check := func(status int) (r checkResult) {
		t.Helper()
		out, errs, got := runPrinted(t, "", "check", "--json", "--storage.path="+dir)
		require.Equal(t, status, got, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &r), out)
		require.Equal(t, "--storage.path="+dir, r.Store)
		require.Len(t, r.Problems, r.Totals.Problems)
		return r
	}
	whole := check(0)
	require.Equal(t, 8*3*24*60, whole.Totals.Samples)
	require.Positive(t, whole.Totals.RollupChunks)
	require.Positive(t, whole.Totals.FileBytes)
	require.NotNil(t, whole.Problems)

	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	size := func(path string) int64 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Size()
	}
	path := slices.MaxFunc(files, func(a, b string) int { return int(size(a) - size(b)) })
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	copy(text[len(text)/2:], strings.Repeat("x", 64))
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.NotEmpty(t, check(1).Problems)
}

// TestCheckAsJSONOfNoStore checks that check --json prints JSON even if there is no store.
func TestCheckAsJSONOfNoStore(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	out, errs, status := runPrinted(t, "", "check", "--json", "--storage.path="+none)
	require.Equal(t, 1, status)
	require.Equal(t, "cassia: --storage.path="+none+": no Cassia data found\n", errs)
	var r checkResult
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	require.Equal(t, "--storage.path="+none, r.Store)
	require.Equal(t, "--storage.path="+none+": no Cassia data found", r.Error)
	require.Empty(t, r.Problems)
}
