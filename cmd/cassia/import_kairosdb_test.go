package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImportKairosDBRefuses checks that invalid flags are reported in one line, before any file is created.
func TestImportKairosDBRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	data := filepath.Join(dir, "data")
	for want, args := range map[string][]string{
		"missing.yaml: no such file or directory":                             {"--mapping.file=missing.yaml"},
		"unknown.yaml: line 1: unknown key metric":                            {"--mapping.file=" + file("unknown.yaml", "metric: []")},
		"large.yaml: the mapping file is larger than 1 MiB":                   {"--mapping.file=" + file("large.yaml", strings.Repeat("#", 1<<20+1))},
		"--kairosdb.readers=0: must be a number from 1 to 128":                {"--kairosdb.readers=0"},
		"--kairosdb.batch-bytes=10B: must be a number of bytes":               {"--kairosdb.batch-bytes=10B"},
		"--kairosdb.username is missing":                                      {"--kairosdb.password-file=" + file("password", "x")},
		`keyspace "a-b": the name must have at most 48 letters, digits and _`: {"--kairosdb.keyspace=a-b"},
		`unknown consistency level "SOME"`:                                    {"--kairosdb.consistency=SOME"},
		"connect to 127.0.0.1:1":                                              {"--kairosdb.hosts=127.0.0.1:1"},
		"TLS: files or names are set, but TLS isn't enabled":                  {"--kairosdb.tls-ca=x"},
	} {
		var complaint strings.Builder
		status := run(append([]string{"import", "kairosdb", "--storage.path=" + data}, args...), &complaint)
		require.Equal(t, 1, status, want)
		require.Contains(t, complaint.String(), want)
		require.Equal(t, 1, strings.Count(complaint.String(), "\n"), complaint.String())
		require.NoDirExists(t, data)
	}
}
