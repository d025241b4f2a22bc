package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestExportCommand checks that export writes the samples in every format, to one file or to a file or block per day.
func TestExportCommand(t *testing.T) {
	dir := cassiatest.StoreWith(t, 30)
	out := t.TempDir()
	for _, c := range []struct{ format, output, find string }{
		{"openmetrics", "a.om", `up{job="a"} 1 `},
		{"jsonl", "a.jsonl", `{"metric":{"__name__":"up","job":"a"},"values":[1,`},
		{"csv", "a.csv", `up,"{""job"":""a""}",`},
		{"blocks", "blocks", ""},
		{"csv", "days/", ""},
	} {
		var stderr bytes.Buffer
		output := filepath.Join(out, c.output)
		if strings.HasSuffix(c.output, "/") {
			output += "/"
		}
		require.Zero(t, run([]string{"export", "--storage.path=" + dir, "--format=" + c.format, "--output=" + output,
			"--match=up", "--match=other", "--start=2001-01-01T00:00:00Z"}, &stderr), stderr.String())
		if c.find != "" {
			text, err := os.ReadFile(output)
			require.NoError(t, err)
			require.Contains(t, string(text), c.find)
			continue
		}
		entries, err := os.ReadDir(output)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(entries), 2)
	}
}

// TestExportBesideItsServer checks that the directory of a running server can be exported, and that the snapshot made
// for the export is removed.
func TestExportBesideItsServer(t *testing.T) {
	dir := cassiatest.StoreWith(t, 3)
	output := filepath.Join(t.TempDir(), "a.csv")
	args := []string{"export", "--storage.path=" + dir, "--format=csv", "--output=" + output}
	var stderr bytes.Buffer
	require.Zero(t, run(args, &stderr), stderr.String())
	want, err := os.ReadFile(output)
	require.NoError(t, err)
	require.NoError(t, os.Remove(output))

	server := startServe(t, "--storage.path="+dir)
	require.Equal(t, 1, run(append(args, "--url=http://localhost:1"), &stderr))
	require.Contains(t, stderr.String(), dir+" is in use, and the server at --url=http://localhost:1 doesn't respond")
	require.NoFileExists(t, output)
	require.Zero(t, run(append(args, "--url="+server.URL), &stderr), stderr.String())
	got, err := os.ReadFile(output)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	left, err := filepath.Glob(filepath.Join(dir, snapshotsFolder, "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestExportOfOneInstant exports with a start equal to the end. Both are inclusive, so the sample at that time is
// exported.
func TestExportOfOneInstant(t *testing.T) {
	dir := cassiatest.StoreWith(t, 1)
	all, errs, status := runPrinted(t, "", "export", "--storage.path="+dir, "--format=csv")
	require.Zero(t, status, errs)
	line := strings.Split(all, "\n")[20]
	fields := strings.Split(line, ",")
	ms, err := strconv.ParseInt(fields[len(fields)-2], 10, 64)
	require.NoError(t, err)
	at := time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
	one, errs, status := runPrinted(t, "", "export", "--storage.path="+dir, "--format=csv", "--start="+at, "--end="+at)
	require.Zero(t, status, errs)
	require.Equal(t, strings.Split(all, "\n")[0]+"\n"+line+"\n", one)
}

func TestExportSaysWhatIsWrong(t *testing.T) {
	dir := cassiatest.StoreWith(t, 1)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--format=xml"}, "enum value must be one of blocks,openmetrics,jsonl,csv"},
		{[]string{"--format=blocks"}, "--output is missing; blocks need a new or empty folder"},
		{[]string{"--format=csv", "--match=up{"}, "--match=up{: "},
		{[]string{"--format=csv", "--start=yesterday"}, "--start=yesterday: must be a time"},
		{[]string{"--format=csv", "--tenant=nobody", "--output=" + filepath.Join(t.TempDir(), "a.csv")}, "no samples match"},
		{[]string{"--format=blocks", "--output=" + dir}, "isn't empty"},
		{[]string{"--format=csv", "--storage.path=" + filepath.Join(dir, "none")}, "no Cassia data found"},
	} {
		var stderr bytes.Buffer
		args := append([]string{"export"}, c.args...)
		if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--storage.path") }) {
			args = append(args, "--storage.path="+dir)
		}
		require.Equal(t, 1, run(args, &stderr), c.args)
		require.Contains(t, stderr.String(), c.want)
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
	}
}
