package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"
)

// testApplication returns an application with commands and flags in multiple groups.
func testApplication(out *bytes.Buffer) *kingpin.Application {
	app := kingpin.New("prog", "Does things.")
	app.UsageWriter(out).Terminate(nil)
	odd := app.Command("odd", "Does something else. At length.")
	odd.Arg("file", "Which file.").Required().String()
	odd.Flag("depth", "How deep.").Default("3").Int()
	serve := app.Command("serve", "Runs.")
	serve.Flag("storage.path", `Where. Written as C:\data.`).Default("data").String()
	serve.Flag("web.listen-address", "On what.").Strings()
	serve.Flag("web.secret", "Nobody sees it.").Hidden().String()
	serve.Flag("web.enable", ".begins with a dot").Bool()
	app.Command("import", "Brings.").Command("blocks", "TSDB blocks: as they are.").Flag(
		"to", "Whereto.",
	).Required().String()
	SetUsage(app, func() string { return "\nTopics: one" })
	return app
}

func TestUsageInGroups(t *testing.T) {
	var out bytes.Buffer
	_, err := testApplication(&out).Parse([]string{"--help"})
	require.Error(t, err) // The usage was printed, but Terminate didn't exit.
	text := out.String()
	for _, want := range []string{
		"usage: prog <command> [<flags>]\n\nDoes things.\n\nRun and operate a server:\n  serve  Runs.\n",
		"  import blocks  TSDB blocks.\n", "\n  odd   Does something else.\n", "\nTopics: one\n",
	} {
		require.Contains(t, text, want)
	}
	require.Less(t, strings.Index(text, "serve  "), strings.Index(text, "odd  "))

	out.Reset()
	_, _ = testApplication(&out).Parse([]string{"serve", "--help"})
	text = out.String()
	require.Contains(t, text,
		"\nWeb:\n  --web.listen-address=VALUE ...  \n                     On what.\n  --[no-]web.enable  .begins with a dot\n")
	require.Contains(t, text, "\nStorage:\n  --storage.path=data  ")
	require.NotContains(t, text, "secret")
	require.Less(t, strings.Index(text, "\nStorage:"), strings.Index(text, "\nGeneral:"))
}

func TestExplainNamesTheNearest(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--storage.pth=x"}, "unknown flag --storage.pth; did you mean --storage.path? See prog serve --help"},
		{[]string{"serve", "--stroage.path=x"}, "unknown flag --stroage.path; did you mean --storage.path? See prog serve --help"},
		{[]string{"serve", "--listen-address=x"}, "unknown flag --listen-address; did you mean --web.listen-address? See prog serve --help"},
		{[]string{"serve", "--no-web.enabel"}, "unknown flag --no-web.enabel; did you mean --no-web.enable? See prog serve --help"},
		{[]string{"serve", "--web.secrt=1"}, "unknown flag --web.secrt; see prog serve --help"},
		{[]string{"serve", "--xyzzy"}, "unknown flag --xyzzy; see prog serve --help"},
		{[]string{"serv"}, `unknown command "serv"; did you mean serve? See prog --help`},
		{[]string{"plugh"}, `unknown command "plugh"; see prog --help`},
		{[]string{"import", "block"}, `unknown command "block"; did you mean blocks? See prog import --help`},
		{[]string{"odd"}, "required argument 'file' not provided; see prog odd --help"},
	} {
		app := testApplication(&bytes.Buffer{})
		_, err := app.Parse(c.args)
		require.Error(t, err, c.args)
		require.EqualError(t, ExplainError(app, c.args, err), c.want)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"path", "pth", 1}, {"path", "apth", 1}, {"path", "bath", 1},
		{"kitten", "sitting", 3},
	} {
		require.Equal(t, c.want, editDistance(c.a, c.b), "%q %q", c.a, c.b)
		require.Equal(t, c.want, editDistance(c.b, c.a), "%q %q", c.b, c.a)
	}
}

func TestManPage(t *testing.T) {
	var out bytes.Buffer
	app := testApplication(&out)
	require.NoError(
		t, ManPage(&out, app.Model(), "1.2.3", []Variable{{"PROG_X", "What it does."}}, []string{"one", "two"}),
	)
	for _, want := range []string{
		".TH PROG 1", "1.2.3", "prog \\- Does things\n", `C:\edata`, "\n\\&.begins with a dot\n",
		".SS prog import blocks \\-\\-to=VALUE\n", "PROG_X", "Topics: one, two.",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "secret")
	if groff, err := exec.LookPath("groff"); err == nil { // groff must print no warnings.
		file := filepath.Join(t.TempDir(), "prog.1")
		require.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
		said, err := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z", file).CombinedOutput()
		require.NoError(t, err, string(said))
		require.Empty(t, string(said))
	}
}

func TestCompletion(t *testing.T) {
	app := testApplication(&bytes.Buffer{})
	for _, shell := range Shells {
		var out bytes.Buffer
		require.NoError(t, WriteCompletion(&out, app.Model(), shell))
		require.Contains(t, out.String(), "--completion-bash")
		require.NotContains(t, out.String(), "NAME")
		if path, err := exec.LookPath(shell); err == nil {
			check := exec.Command(path, "-n")
			check.Stdin = &out
			said, err := check.CombinedOutput()
			require.NoError(t, err, "%s: %s", shell, said)
		}
	}
	require.ErrorContains(t, WriteCompletion(&bytes.Buffer{}, app.Model(), "tcsh"),
		`no completion for "tcsh"; supported shells: bash, zsh, fish`)
}
