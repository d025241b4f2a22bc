package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/cli"
	"github.com/cassia-db/cassia/cmd/internal/manual"
)

// cassia runs the real program with these arguments and returns its output.
func cassia(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(builtCassia(t), args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", args, out)
	return string(out)
}

func TestCommandsThatDescribeTheProgram(t *testing.T) {
	t.Parallel()
	require.Equal(t, cassia(t, "--version"), cassia(t, "version"))
	page := cassia(t, "man")
	for _, want := range []string{
		".TH CASSIA 1", ".SS cassia serve\n", `\-\-storage.path=data`, "CASSIA_CASSANDRA_PASSWORD",
	} {
		require.Contains(t, page, want)
	}
	for _, shell := range cli.Shells {
		require.Contains(t, cassia(t, "completion", shell), "cassia")
	}
	usage := cassia(t, "--help")
	require.Equal(t, usage, cassia(t, "help"))
	require.True(t, strings.HasPrefix(usage, "usage: cassia <command>"), usage)
	require.Less(t, strings.Index(usage, "\n  serve "), strings.Index(usage, "\n  inspect "))
	require.Equal(t, cassia(t, "serve", "--help"), cassia(t, "help", "serve"))
	for _, title := range []string{
		"Web", "Storage", "Retention", "Queries", "Tenants", "High availability (pairs of Prometheus)",
		"Rules and alerts", "Writes", "Cassandra",
	} {
		require.Contains(t, cassia(t, "serve", "--help"), "\n"+title+":\n")
	}
}

func TestHelpOnTopics(t *testing.T) {
	t.Parallel()
	for _, topic := range manual.Topics() {
		page, _ := manual.FindPage(topic)
		require.Equal(t, page.Text(80), cassia(t, "help", topic))
		require.Contains(t, cassia(t, "help"), topic)
	}
	for words, want := range map[string]string{
		"help rolups":        `unknown command or topic "rolups"; did you mean rollups? See cassia help`,
		"help srve":          `unknown command or topic "srve"; did you mean serve? See cassia help`,
		"help rollups again": `unknown command or topic "rollups again"; see cassia help`,
		"help plugh":         `unknown command or topic "plugh"; see cassia help`,
	} {
		_, stderr, status := cassiatest.Command(t, builtCassia(t), strings.Fields(words)...)
		require.Equal(t, 1, status)
		require.Equal(t, "cassia: "+want+"\n", stderr)
	}
}

func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	program := builtCassia(t)
	for words, want := range map[string]string{
		"serve --web.conf": "--web.config.file",
		"che":              "check",
		"import block":     "blocks",
		"completion z":     "zsh",
	} {
		typed := strings.Fields(words)
		script := `source <("$1" completion bash); shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cassia_complete; echo "${COMPREPLY[@]}"`
		out, err := exec.Command(
			bash, append([]string{"-c", script, "bash", program, program}, typed...)...,
		).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, want, strings.TrimSpace(string(out)), words)
	}
}
