package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runPrinted runs a command with the given standard input. It returns the standard output, the standard error and the
// exit status. The test must not run in parallel with others.
func runPrinted(t *testing.T, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "stdin"), filepath.Join(dir, "stdout")
	require.NoError(t, os.WriteFile(in, []byte(stdin), 0o600))
	r, err := os.Open(in)
	require.NoError(t, err)
	w, err := os.Create(out)
	require.NoError(t, err)
	oldIn, oldOut := os.Stdin, os.Stdout
	os.Stdin, os.Stdout = r, w
	defer func() { os.Stdin, os.Stdout = oldIn, oldOut }()
	var errs bytes.Buffer
	status = run(args, io.Writer(&errs))
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	return string(text), errs.String(), status
}

// daysOld returns a text with samples of a series, one per age in days. The format is OpenMetrics or JSON lines.
func daysOld(format, series string, ages ...int) string {
	var b strings.Builder
	for _, age := range ages {
		at := time.Now().AddDate(0, 0, -age)
		if format == "openmetrics" {
			fmt.Fprintf(&b, "%s 1 %d\n", series, at.Unix())
		} else {
			name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
			job, _ := strings.CutPrefix(labels, "job=")
			fmt.Fprintf(&b, `{"metric":{"__name__":%q,"job":%s},"values":[1],"timestamps":[%d]}`+"\n",
				name, job, at.UnixMilli())
		}
	}
	return b.String()
}

// TestTextImportsAskBeforeTheyKeepOnlyRollups checks that old samples are rejected unless the user accepts that only
// their rollups are stored. It covers all sources whose plans don't contain the times of the samples.
func TestTextImportsAskBeforeTheyKeepOnlyRollups(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ name, format, end, command string }{
		{"a file of OpenMetrics", "openmetrics", "# EOF\n", "openmetrics"},
		{"OpenMetrics from standard input", "openmetrics", "# EOF\n", "openmetrics"},
		{"a file of VictoriaMetrics", "jsonl", "", "victoriametrics"},
		{"VictoriaMetrics from standard input", "jsonl", "", "victoriametrics"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			text := daysOld(c.format, `up{job="a"}`, 50, 2) + c.end
			from := "-"
			if strings.HasPrefix(c.name, "a file") {
				from = filepath.Join(dir, "text")
				require.NoError(t, os.WriteFile(from, []byte(text), 0o600))
			}
			args := []string{
				"import", c.command, from, "--storage.path=" + filepath.Join(dir, "data"),
				"--checkpoint=" + filepath.Join(dir, "checkpoint"),
			}
			out, errs, status := runPrinted(t, text, args...)
			require.Equal(t, 1, status, out)
			require.Contains(t, errs,
				"are past the retention of raw samples, 30d; of days (UTC) that ended more than 7 days earlier, only rollups are stored, unless the store still has older raw samples; to accept this, set --retention.raw explicitly, or set it to the retention of the servers")
			require.Equal(t, 1, strings.Count(errs, "\n"), errs)

			out, errs, status = runPrinted(t, text, append(args, "--retention.raw=30d")...)
			require.Zero(t, status, errs)
			require.Equal(t, 1,
				strings.Count(
					out,
					"are past the retention of raw samples, 30d; of days (UTC) that ended more than 7 days earlier, only rollups are stored, unless the store still has older raw samples\n",
				),
				out)
			require.Contains(t, out, "imported 1 sample in")
			require.Contains(t, out, "; 1 only in the rollups\n")

			out, errs, status = runPrinted(t, text, append(args, "--retention.raw=90d")...)
			require.Zero(t, status, errs)
			require.Contains(t, out, "1 of its samples were past a retention; if it is longer now, remove "+
				filepath.Join(dir, "checkpoint")+" and run again\n")
		})
	}
}

// TestImportsAskForTheRetentionOfTheSeries checks that the retention of the tenant and of each series' class is
// applied.
func TestImportsAskForTheRetentionOfTheSeries(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("retention.yml", []byte(
		"tenants: {long: {raw: 90d}, short: {raw: 3d}}\nclasses: [{name: ci, match: '{job=\"ci\"}', raw: 3d}]\n",
	), 0o600))
	for _, c := range []struct {
		tenant, job string
		says        string // part of the error; "" if the samples are imported
	}{
		{"default", "a", ""},
		{"long", "a", ""},
		{"short", "a", "are past the retention of raw samples, 3d"},
		{"default", "ci", `are past the retention of raw samples of class "ci", 3d; of days (UTC) that ended more than 7 days earlier, only rollups are stored, unless the store still has older raw samples; to accept this, set --retention.raw explicitly`},
		{"long", "ci", `are past the retention of raw samples of class "ci", 3d`},
	} {
		dir := t.TempDir()
		_, errs, status := runPrinted(t, daysOld("openmetrics", `up{job="`+c.job+`"}`, 20)+"# EOF\n", "import",
			"openmetrics", "-", "--storage.path="+filepath.Join(dir, "data"),
			"--checkpoint="+filepath.Join(dir, "checkpoint"), "--retention.file=retention.yml", "--tenant="+c.tenant)
		require.Contains(t, errs, c.says)
		require.Equal(t, c.says != "", status == 1, "%v: %s", c, errs)
	}
}

// TestDryRunOfText checks that a dry run reports the contents of a text and the samples that the retention would
// exclude, and stores nothing.
func TestDryRunOfText(t *testing.T) {
	t.Chdir(t.TempDir())
	text := daysOld("openmetrics", `up{job="a"}`, 400, 50, 45, 2, 1) + daysOld("openmetrics", `up{job="b"}`, 1, -3) +
		"# EOF\n"
	require.NoError(t, os.WriteFile("a.om", []byte(text), 0o600))
	for _, from := range []string{"a.om", "-"} {
		out, errs, status := runPrinted(t, text, "import", "openmetrics", from, "--dry-run", "--storage.path=data")
		require.Zero(t, status, errs)
		require.Contains(t, out, "\n2 series, 7 samples, "+time.Now().AddDate(0, 0, -400).UTC().Format(time.DateOnly))
		require.Contains(t, out,
			"\n3 samples past the retention of raw samples, 30d: 2 would be stored as rollups only; 1 would be stored as 1h rollups only\n")
		require.Contains(t, out, "\n1 sample would be skipped, because of timestamps in the future\n")
		require.Regexp(t, `\nan import takes about \S+ on this machine, and about \S+ K?i?B of disk space\n`, out)
		require.Contains(t, out, "set --retention.raw explicitly, or set it to the retention of the servers\n")
		require.NoDirExists(t, "data")
	}
	out, errs, status := runPrinted(
		t, text, "import", "openmetrics", "a.om", "--dry-run", "--storage.path=data", `--match=up{job="x"}`,
	)
	require.Zero(t, status, errs)
	require.Contains(t, out, "no samples in the selected series and time range")
	require.NoError(t, os.WriteFile("bad.om", []byte("a 1 1\nb 2\n# EOF\n"), 0o600))
	_, errs, status = runPrinted(t, "", "import", "openmetrics", "bad.om", "--dry-run", "--storage.path=data")
	require.Equal(t, 1, status)
	require.Contains(t, errs, "line 2: b has no timestamp")
}

// TestDryRunAgreesWithTheImport compares a dry run with an import. For each class, the dry run must report the numbers
// of samples that are stored as raw samples, only as rollups, only as 1h rollups, and not at all. The samples are close
// to the retention boundaries.
func TestDryRunAgreesWithTheImport(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile(
		"retention.yml", []byte("classes: [{name: ci, match: '{job=\"ci\"}', raw: 10d, 5m: 20d, 1h: 30d}]\n"), 0o600,
	))
	var ages []int
	for age := 1; age < 100; age++ {
		ages = append(ages, age)
	}
	for _, c := range []struct {
		job, past string
		keptDays  int
		notes     []string
		skips     bool
	}{
		{"ci", `the retention of raw samples of class "ci", 10d`, 10, []string{
			`are past the retention of raw samples of class "ci", 10d; of days (UTC) that ended more than 7 days earlier, only rollups are stored, unless the store still has older raw samples`,
			`only 1h rollups are stored of samples whose week, of 5m rollups, ended more than 7 days before the retention of class "ci", 20d`,
			`samples are skipped if their 30 days, of 1h rollups, ended more than 7 days before the retention of class "ci", 30d`,
		}, true},
		{
			"a", "the retention of raw samples, 30d", 30,
			[]string{
				"are past the retention of raw samples, 30d; of days (UTC) that ended more than 7 days earlier, only rollups are stored, unless the store still has older raw samples",
			},
			false,
		},
	} {
		text := daysOld("openmetrics", `up{job="`+c.job+`"}`, ages...) + "# EOF\n"
		args := []string{
			"import", "openmetrics", "-", "--storage.path=" + c.job, "--retention.file=retention.yml",
			"--retention.raw=30d", "--checkpoint=" + c.job + ".json",
		}
		out, errs, status := runPrinted(t, text, append(args, "--dry-run")...)
		require.Zero(t, status, errs)
		_, line, found := strings.Cut(out, " samples past "+c.past+": ")
		require.True(t, found, out)
		var raw, rollups, hours, skipped int
		_, err := fmt.Sscanf(line,
			"%d would be stored as raw samples until 7 days after their retention; %d would be stored as rollups only",
			&raw, &rollups)
		require.NoError(t, err, out)
		if _, rest, found := strings.Cut(line, " rollups only; "); found {
			_, err = fmt.Sscanf(rest,
				"%d would be stored as 1h rollups only; %d would be skipped, past the retention of 1h rollups, 30d",
				&hours, &skipped)
			require.NoError(t, err, out)
		}
		require.Equal(t, c.skips, skipped > 0 && hours > 0, out)
		require.InDelta(t, len(ages)-c.keptDays, raw+rollups+hours+skipped, 1, out)
		out, errs, status = runPrinted(t, text, args...)
		require.Zero(t, status, errs)
		require.Contains(t, out, fmt.Sprintf("imported %d samples in ", len(ages)-rollups-hours-skipped))
		only := fmt.Sprintf("; %d only in the rollups\n", rollups)
		if hours > 0 {
			only = fmt.Sprintf("; %d only in the rollups, %d of these only in 1h rollups\n", rollups+hours, hours)
		}
		require.Contains(t, out, only)
		if skipped > 0 {
			require.Contains(t, out, fmt.Sprintf(
				"\n%d samples were skipped: rollups of their time are past the retention, or expired under an earlier one\n",
				skipped,
			))
		}
		for _, note := range c.notes {
			require.Equal(t, 1, strings.Count(out, note), out)
		}
	}
}

// TestImportKeepsTheClassesOfANewStore imports with a retention class into three directories: one that doesn't exist,
// one created by an import without the class, and one created by another import with the class. Raw samples that only
// their class retains must be stored, as the dry run reports.
func TestImportKeepsTheClassesOfANewStore(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(
		t, os.WriteFile("retention.yml", []byte("classes: [{name: audit, match: audit, raw: 2y}]\n"), 0o600),
	)
	text := func(age int) string { return daysOld("openmetrics", "audit", age) + "# EOF\n" }
	_, errs, status := runPrinted(
		t, daysOld("openmetrics", "up", 1)+"# EOF\n", "import", "openmetrics", "-", "--storage.path=made",
	)
	require.Zero(t, status, errs)
	for _, c := range []struct {
		dir string
		age int
	}{{"new", 100}, {"made", 100}, {"new", 101}} {
		args := []string{
			"import", "openmetrics", "-", "--storage.path=" + c.dir, "--retention.file=retention.yml",
			"--checkpoint=" + filepath.Join(t.TempDir(), "checkpoint"),
		}
		out, errs, status := runPrinted(t, text(c.age), append(args, "--dry-run")...)
		require.Zero(t, status, errs)
		require.NotContains(t, out, "past")
		out, errs, status = runPrinted(t, text(c.age), args...)
		require.Zero(t, status, errs)
		require.Contains(t, out, "imported 1 sample in ")
		require.NotContains(t, out, "rollups")
	}
	out, errs, status := runPrinted(t, "", "export", "--storage.path=new", "--format=csv", "--rollups=leave")
	require.Zero(t, status, errs)
	require.Equal(t, 2, strings.Count(out, "audit,{}"), out)
}

// TestImportWhereRawSamplesWereRemoved increases the retention of a store that has only rollups for some days. No raw
// samples are added to these days, and each import of them fails with the reason. Raw samples of days without stored
// samples are imported.
func TestImportWhereRawSamplesWereRemoved(t *testing.T) {
	t.Chdir(t.TempDir())
	into := func(retention, checkpoint string, more ...string) []string {
		return append([]string{
			"import", "openmetrics", "-", "--storage.path=data", "--retention.raw=" + retention,
			"--checkpoint=" + checkpoint,
		}, more...)
	}
	out, errs, status := runPrinted(t, daysOld("openmetrics", `m{i="1"}`, 60, 59)+"# EOF\n", into("30d", "a")...)
	require.Zero(t, status, errs)
	require.Contains(t, out, "2 only in the rollups")
	text := daysOld("openmetrics", `m{i="2"}`, 60) + "# EOF\n"
	for range 2 {
		_, errs, status = runPrinted(t, text, into("2y", "b")...)
		require.Equal(t, 1, status)
		require.Contains(t, errs,
			"only rollups of 1 sample were stored, although the retention keeps raw samples of their time")
	}
	for i, age := range []int{65, 40} {
		out, errs, status = runPrinted(
			t, daysOld("openmetrics", `m{i="1"}`, age)+"# EOF\n", into("2y", fmt.Sprint("c", i))...,
		)
		require.Zero(t, status, errs)
		require.Contains(t, out, "imported 1 sample in ")
	}
}

// TestVerifyOfBucketsWithOtherSamples imports two sources with samples in the same buckets. The samples are stored only
// as rollups. Verification of one source ignores the additional samples in a bucket, but reports missing samples.
func TestVerifyOfBucketsWithOtherSamples(t *testing.T) {
	t.Chdir(t.TempDir())
	day := time.Now().AddDate(0, 0, -60).Unix() / 86400 * 86400
	write := func(name string, times ...int64) {
		var text strings.Builder
		for _, at := range times {
			fmt.Fprintf(&text, "m %d %d\n", at, day+at)
		}
		require.NoError(t, os.WriteFile(name, []byte(text.String()+"# EOF\n"), 0o600))
	}
	imported := func(name string, args ...string) (out, errs string, status int) {
		return runPrinted(t, "",
			append([]string{"import", "openmetrics", name, "--storage.path=data", "--retention.raw=30d"}, args...)...)
	}
	write("a.om", 30, 60, 330, 360, 630)
	write("b.om", 90, 120, 390)
	for _, name := range []string{"a.om", "b.om"} {
		out, errs, status := imported(name)
		require.Zero(t, status, errs)
		require.Contains(t, out, "only in the rollups")
	}
	for name, verified := range map[string]string{
		"a.om": "1 by the counts and sums of their rollups; 4 can't be compared", "b.om": "3 can't be compared",
	} {
		out, errs, status := imported(name, "--verify")
		require.Zero(t, status, out+errs)
		require.Contains(t, out, verified)
		require.Contains(t, out, "rollup bucket with other samples: 0 differences")
	}
	write("a.om", 30, 60, 90, 120, 150, 330, 631) // 5 samples in a bucket that has 4; 631 isn't stored
	out, _, status := imported("a.om", "--verify")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "1 difference\n")
}

// TestVerifyOfBucketsFilledByTwoImports imports twice into buckets that are stored only as rollups. Verification
// ignores sums that differ only because floats were added in another order.
func TestVerifyOfBucketsFilledByTwoImports(t *testing.T) {
	t.Chdir(t.TempDir())
	day := time.Now().AddDate(0, 0, -60).Unix() / 86400 * 86400
	var text strings.Builder
	var args []string
	for _, values := range [][]float64{{0.1, 0.2, 0.3}, {0.7, 0.3, 0.1}} {
		for _, v := range values {
			fmt.Fprintf(&text, "m %v %d\n", v, day+int64(strings.Count(text.String(), "\n")+1)*30)
		}
		args = []string{"import", "openmetrics", "a.om", "--storage.path=data", "--retention.raw=30d"}
		require.NoError(t, os.WriteFile("a.om", []byte(text.String()+"# EOF\n"), 0o600))
		out, errs, status := runPrinted(t, "", args...)
		require.Zero(t, status, errs)
		require.Contains(t, out, "only in the rollups")
	}
	out, errs, status := runPrinted(t, "", append(args, "--verify")...)
	require.Zero(t, status, out+errs)
	require.Contains(t, out, "6 by the counts and sums of their rollups: 0 differences")
}

// TestImportAfterClassesWereDropped checks that an import into a store with a retention class fails without a retention
// file. It must succeed with an empty file, which servers have after all classes were removed.
func TestImportAfterClassesWereDropped(t *testing.T) {
	t.Chdir(t.TempDir())
	classes := []byte(`classes: [{name: ci, match: ['{job="ci"}'], raw: 30d}]`)
	require.NoError(t, os.WriteFile("classes.yml", classes, 0o600))
	require.NoError(t, os.WriteFile("empty.yml", nil, 0o600))
	text := daysOld("openmetrics", "up", 1) + "# EOF\n"
	args := []string{"import", "openmetrics", "-", "--storage.path=data", "--retention.raw=30d", "--checkpoint=c.json"}
	_, errs, status := runPrinted(t, text, append(args, "--retention.file=classes.yml")...)
	require.Zero(t, status, errs)
	_, errs, status = runPrinted(t, text, args...)
	require.NotZero(t, status)
	require.Contains(t, errs, "this store has retention classes (ci); set --retention.file")
	_, errs, status = runPrinted(t, text, append(args, "--retention.file=empty.yml")...)
	require.Zero(t, status, errs)
}
