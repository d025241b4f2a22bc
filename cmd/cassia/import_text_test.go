package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestImportText checks that the output of export can be imported, and that an import of invalid input fails with a
// one-line error that names the cause.
func TestImportText(t *testing.T) {
	t.Chdir(t.TempDir()) // Checkpoints are written to the working directory.
	from := cassiatest.StoreWith(t, 2)
	for _, c := range []struct{ format, command string }{{"openmetrics", "openmetrics"}, {"jsonl", "victoriametrics"}} {
		var stderr bytes.Buffer
		file, to := "a."+c.format, "--storage.path="+c.format
		require.Zero(
			t, run([]string{"export", "--storage.path=" + from, "--format=" + c.format, "--output=" + file}, &stderr),
			stderr.String(),
		)
		require.Zero(t, run([]string{"import", c.command, file, to, "--retention.raw=0", "--label=cluster=b"}, &stderr),
			stderr.String())
		require.Zero(
			t, run([]string{"export", to, "--format=csv", "--output=" + c.format + ".csv"}, &stderr), stderr.String(),
		)
		text, err := os.ReadFile(c.format + ".csv")
		require.NoError(t, err)
		require.Equal(t, 1+2*60, strings.Count(string(text), "\n"))
		require.Contains(t, string(text), `up,"{""cluster"":""b"",""job"":""a""}",`)
	}
	require.NoError(t, os.WriteFile("bad.om", []byte("a 1 1\nb 2\n# EOF\n"), 0o600))
	require.NoError(t, os.WriteFile("bad.jsonl", []byte("{\n"), 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"openmetrics", "bad.om"}, "line 2: b has no timestamp"},
		{[]string{"victoriametrics", "bad.jsonl"}, "line 1: ends where"},
		{[]string{"victoriametrics", "--format=native", "bad.jsonl"}, "the input ends within a record: it is truncated, or not VictoriaMetrics' native format"},
		{[]string{"openmetrics", "none.om"}, "no such file"},
		{[]string{"openmetrics", "-", "--verify"}, "--verify reads the source again, but standard input can be read only once; import a file"},
		{[]string{"victoriametrics", "-", "--verify"}, "--verify reads the source again, but standard input can be read only once; import a file"},
		{[]string{"victoriametrics", "--format=native", "-", "--verify"}, "--verify reads the source again, but standard input can be read only once; import a file"},
		{[]string{"remote-read", "localhost:9090", "--start=2027-01-01T00:00:00Z"}, "must be a URL"},
		{[]string{"remote-read", "http://localhost:1/read"}, "--start is missing"},
		{[]string{"remote-read", "http://localhost:1/read", "--piece=5h"}, "--piece=5h: must be a duration"},
		{[]string{"victoriametrics", "http://localhost:1", "--header=x"}, "--header=x: must be"},
		{[]string{"victoriametrics", "http://localhost:1", "--header=authorization: x"}, "use --http.config.file instead"},
		{[]string{"remote-read", "http://localhost:1", "--http.config.file=none.yaml"}, "--http.config.file=none.yaml: open none.yaml: no such file"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, 1,
			run(append(append([]string{"import"}, c.args...), "--storage.path=bad", "--retention.raw=0"), &stderr),
			c.args)
		require.Contains(t, stderr.String(), c.want)
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
	}
}

// exportedLines returns the samples of a store as sorted CSV lines, without the header.
func exportedLines(t *testing.T, dir string) []string {
	t.Helper()
	out, errs, status := runPrinted(t, "", "export", "--storage.path="+dir, "--format=csv")
	require.Zero(t, status, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")[1:]
	slices.Sort(lines)
	return lines
}

// TestImportOfACorrectedText imports a truncated or invalid text, and then the complete text under the same name.
// Exactly the samples of the complete text must be stored.
func TestImportOfACorrectedText(t *testing.T) {
	t.Chdir(t.TempDir()) // Checkpoints are written to the working directory.
	at := time.Now().AddDate(0, 0, -2).Unix() / 86400 * 86400
	whole, want := "# TYPE http_requests gauge\n", []string(nil)
	for i := range int64(5) {
		whole += fmt.Sprintf("http_requests %d %d\n", i, at+i)
		want = append(want, fmt.Sprintf("http_requests,{},%d,%d", (at+i)*1000, i))
	}
	whole += "# EOF\n"
	cut := func(after string) string { return whole[:strings.Index(whole, after)+len(after)] }
	for i, first := range []string{
		cut("http_requests 1"), cut(fmt.Sprint("http_requests 2 ", at/1000)), cut(fmt.Sprint("http_requests 2 ", at+2)),
		cut(fmt.Sprint("http_requests 4 ", at+4, "\n")), strings.Replace(whole, fmt.Sprint("3 ", at+3), "3", 1),
	} {
		dir := fmt.Sprint("data", i)
		require.NoError(t, os.WriteFile("a.om", []byte(first), 0o600))
		_, errs, status := runPrinted(t, "", "import", "openmetrics", "a.om", "--storage.path="+dir)
		require.Equal(t, 1, status, first)
		require.Regexp(t,
			`; (this run imported no samples\. Fix the problem and run the same command again|imported samples are kept\. Fix the problem and run the same command again: it continues from the checkpoint cassia-import-[0-9a-f]{8}\.json \(remove that file to start from the beginning\))\n$`,
			errs)
		require.NoError(t, os.WriteFile("a.om", []byte(whole), 0o600))
		_, errs, status = runPrinted(t, "", "import", "openmetrics", "a.om", "--storage.path="+dir)
		require.Zero(t, status, errs)
		require.Equal(t, want, exportedLines(t, dir), first)
	}
}

// TestImportOfAnotherTextUnderTheSameName imports texts one after another, from a file with the same name or from
// standard input, with the checkpoint of the previous import. If a text starts with the previous text, the import must
// read only the new samples. Otherwise it must read all samples.
func TestImportOfAnotherTextUnderTheSameName(t *testing.T) {
	t.Chdir(t.TempDir()) // Checkpoints are written to the working directory.
	at := time.Now().AddDate(0, 0, -2).Unix() / 86400 * 86400
	sample := func(name string, i int64) string {
		return fmt.Sprintf(`{"metric":{"__name__":%q},"values":[%d],"timestamps":[%d]}`+"\n", name, i, (at+i)*1000)
	}
	const anew = "started from the beginning: the part of the source that earlier runs read has changed\n"
	for _, from := range []string{"a.jsonl", "-"} {
		dir := "data" + from
		for _, c := range []struct{ text, says string }{
			{sample("a", 1), "imported 1 sample in"},
			{sample("a", 1), "no new samples were found: an earlier run has imported this source completely; to import all of it again, remove cassia-import-"},
			{sample("a", 1) + sample("a", 2), "imported 1 sample in"},
			{sample("a", 1) + sample("a", 2), "no new samples were found"},
			{sample("b", 1), anew},
			{sample("b", 1), "no new samples were found"},
			{sample("c", 1) + sample("c", 2), anew},
			{sample("c", 1), anew},
		} {
			require.NoError(t, os.WriteFile("a.jsonl", []byte(c.text), 0o600))
			out, errs, status := runPrinted(t, c.text, "import", "victoriametrics", from, "--storage.path="+dir)
			require.Zero(t, status, errs)
			require.Contains(t, out, c.says)
			require.Equal(t, c.says == anew, strings.Contains(out, anew))
		}
		want := []string{}
		for _, name := range []string{"a", "b", "c"} {
			for i := range int64(2) {
				if name != "b" || i == 0 {
					want = append(want, fmt.Sprintf("%s,{},%d,%d", name, (at+i+1)*1000, i+1))
				}
			}
		}
		require.Equal(t, want, exportedLines(t, dir))
	}
	// The checkpoint of a complete import becomes invalid when the file gets an invalid line.
	require.NoError(t, os.WriteFile("a.jsonl", []byte(sample("c", 1)+"{\n"), 0o600))
	for range 2 {
		_, errs, status := runPrinted(t, "", "import", "victoriametrics", "a.jsonl", "--storage.path=dataa.jsonl")
		require.Equal(t, 1, status)
		require.Contains(t, errs, "line 2: ")
	}
}

// TestImportIntoAnotherStoreAtTheSamePlace checks that a checkpoint applies only to the store with which it was made.
// If a store is recreated, or restored from a backup that is older than the import, all samples are imported again.
func TestImportIntoAnotherStoreAtTheSamePlace(t *testing.T) {
	t.Chdir(t.TempDir())
	from := cassiatest.StoreWith(t, 2)
	cassia := func(args ...string) {
		t.Helper()
		var stderr bytes.Buffer
		require.Zero(t, run(args, &stderr), stderr.String())
	}
	cassia("export", "--storage.path="+from, "--format=jsonl", "--output=a.jsonl")
	imported := func() int {
		t.Helper()
		cassia("import", "victoriametrics", "a.jsonl", "--storage.path=to", "--retention.raw=0")
		cassia("export", "--storage.path=to", "--format=csv", "--output=a.csv")
		text, err := os.ReadFile("a.csv")
		require.NoError(t, err)
		require.NoError(t, os.Remove("a.csv"))
		return strings.Count(string(text), "\n")
	}
	require.Equal(t, 1+2*60, imported())
	require.NoError(t, os.RemoveAll("to"))
	require.Equal(t, 1+2*60, imported(), "the directory was removed")

	require.NoError(t, os.RemoveAll("to"))
	cassia("import", "victoriametrics", "a.jsonl", "--storage.path=to", "--retention.raw=0", "--match={job=\"none\"}",
		"--checkpoint=other")
	cassia("backup", "--storage.path=to", "--to=backups")
	require.Equal(t, 1+2*60, imported(), "after a backup")
	require.NoError(t, os.RemoveAll("to"))
	cassia("restore", "--storage.path=to", "--from=backups")
	require.Equal(t, 1+2*60, imported(), "the backup was restored")
}

// TestImportOfADamagedBlock checks that the readable samples are imported, the unreadable ones are reported, and the
// import fails each time it is run.
func TestImportOfADamagedBlock(t *testing.T) {
	t.Chdir(t.TempDir())
	var stderr bytes.Buffer
	require.Zero(t, run(
		[]string{"export", "--storage.path=" + cassiatest.StoreWith(t, 2), "--format=blocks", "--output=blocks"},
		&stderr,
	), stderr.String())
	files, err := filepath.Glob("blocks/*/chunks/000001")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	text[20] ^= 1
	require.NoError(t, os.WriteFile(files[0], text, 0o600))
	for range 2 {
		stderr.Reset()
		require.Equal(
			t, 1, run([]string{"import", "blocks", "blocks", "--storage.path=to", "--retention.raw=0"}, &stderr),
		)
		require.Contains(t, stderr.String(), "the source is damaged: 1 part was skipped, the rest was imported")
	}
}
