package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
)

// atIndex is the distance from the end of a sorted file to a byte of its index. The properties, the list of other
// blocks and the footer lie after that byte.
const atIndex = 720

// TestDamagedBlockIsOneProblem changes one bit in the index, in a block of rows or in the footer of each file with
// sealed rows. check reports one problem, with the file and all rows that can't be read because of the damage. The
// remedy that check prints is cassia restore --damaged, not cassia check.
func TestDamagedBlockIsOneProblem(t *testing.T) {
	dir := cassiatest.SealedDirectory(t, time.Now().Truncate(time.Hour))
	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	metrics := 0
	for _, path := range files {
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		if len(whole) < 32<<10 {
			continue // It may contain the settings, without which the store can't be opened.
		}
		for _, at := range []int{len(whole) - atIndex, len(whole) / 2, len(whole) - 1} {
			about := fmt.Sprintf("byte %d of %d of %s", at, len(whole), filepath.Base(path))
			bad := bytes.Clone(whole)
			bad[at] ^= 4
			require.NoError(t, os.WriteFile(path, bad, 0o600))
			out, errs, status := runPrinted(t, "", "check", "--json", "--storage.path="+dir)
			require.Equal(t, 1, status, about)
			var result checkResult
			require.NoError(t, json.Unmarshal([]byte(out), &result), about)
			require.Len(t, result.Problems, 1, about)
			require.Equal(t, 1, result.Totals.Problems, about)
			problem := result.Problems[0]
			require.Contains(t, problem, "file "+filepath.Base(path)+" is damaged: rows from ", about)
			require.NotContains(t, problem+errs, "cassia check", about)
			require.NotContains(t, problem+errs, "goroutine", about)
			require.Equal(t, 1, strings.Count(errs, "\n"), errs)
			require.Contains(t, errs, "cassia restore --damaged", about)
			if strings.Contains(problem, ", 8 metrics, such as \"metric_0\"") {
				metrics++
			}
		}
		require.NoError(t, os.WriteFile(path, whole, 0o600))
	}
	require.GreaterOrEqual(t, metrics, 4, "the index and the footer of a file affect all metrics")
}

// TestServerReportsDamage changes one bit in the index of each file with sealed rows. Once sealing late samples has
// failed because of a damaged file, the server's findings report the damage as an error.
func TestServerReportsDamage(t *testing.T) {
	now := time.Now().Truncate(time.Hour)
	dir := cassiatest.SealedDirectory(t, now)
	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	require.NoError(t, err)
	for _, path := range files {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		if len(content) >= 32<<10 {
			content[len(content)-atIndex] ^= 4
			require.NoError(t, os.WriteFile(path, content, 0o600))
		}
	}
	r := startServe(t, "--storage.path="+dir)
	r.Write(t, "metric_0", now.Add(-36*time.Hour).Add(time.Second), 1)
	code, text := r.Post(t, "/-/seal", nil)
	require.Equal(t, http.StatusInternalServerError, code, text)
	require.Contains(t, text, "stored data is damaged: file ")

	found := findingsOf(t, r.URL, "")
	at := slices.IndexFunc(found, func(f doctor.Finding) bool {
		return f.Level == doctor.Error && strings.Contains(f.What, "damaged part")
	})
	require.NotEqual(t, -1, at, found)
	require.Regexp(t, `file \d+\.sst is damaged: `, found[at].What)
	require.Contains(t, found[at].Do, "cassia restore --damaged")
	require.Contains(t, found[at].Do, "cassia check")
}
