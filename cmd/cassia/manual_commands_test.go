package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// TestManualCommands checks that every cassia command line in the manual's code blocks can be parsed.
func TestManualCommands(t *testing.T) {
	parsed := 0
	for name, text := range cassiatest.ManualPages(t, toRoot) {
		for _, line := range commandLines(text) {
			app, _ := newApplication()
			app.Terminate(func(int) {})
			_, err := app.Parse(line)
			require.NoError(t, err, "%s: cassia %s", name, strings.Join(line, " "))
			parsed++
		}
	}
	require.Greater(t, parsed, 30)
}

// commandLines returns the arguments of the cassia command lines in a page's code blocks.
func commandLines(text string) (lines [][]string) {
	inBlock := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inBlock = !inBlock
			continue
		}
		m := commandLine.FindStringSubmatch(line)
		if !inBlock || m == nil {
			continue
		}
		var words []string
		for _, word := range shellWord.FindAllString(m[1], -1) {
			if strings.HasPrefix(word, "#") || word == ">" || word == "|" || word == "…" {
				break
			}
			words = append(words, strings.NewReplacer("'", "", `"`, "").Replace(word))
		}
		lines = append(lines, words)
	}
	return lines
}

var (
	// commandLine matches a line that runs cassia, possibly in a pipeline.
	commandLine = regexp.MustCompile(`^(?:\$ )?(?:.*\| |source <\()?(?:bin/)?cassia ([a-z-][^)]*)\)?$`)
	// shellWord matches a word of a command line, including quoted parts.
	shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
)

// TestManualCommandsInText checks the commands mentioned in the manual's text: the commands and flags in `cassia
// COMMAND --flag`, and the targets in `make TARGET`, must exist.
func TestManualCommandsInText(t *testing.T) {
	app, _ := newApplication()
	model := app.Model()
	makefile := cassiatest.ReadText(t, toRoot+"Makefile")
	spans, targets := 0, 0
	for name, text := range cassiatest.ManualPages(t, toRoot) {
		for _, m := range codeSpan.FindAllStringSubmatch(withoutBlocks(text), -1) {
			words := strings.Fields(m[1])
			switch {
			case len(words) < 2:
			case words[0] == "cassia":
				requireKnown(t, model, words[1:], name+": "+m[1])
				spans++
			case words[0] == "make":
				require.Regexp(t, `(?m)^`+regexp.QuoteMeta(words[1])+`:`, makefile, "%s: %s", name, m[1])
				targets++
			}
		}
	}
	require.Greater(t, spans, 50)
	require.Greater(t, targets, 15)
}

// codeSpan matches inline code.
var codeSpan = regexp.MustCompile("`([^`]+)`")

func withoutBlocks(text string) string {
	var b strings.Builder
	inBlock := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inBlock = !inBlock
		} else if !inBlock {
			b.WriteString(line)
		}
	}
	return b.String()
}

// requireKnown requires that the words start with a command and that its flags exist. Required flags may be missing.
func requireKnown(t *testing.T, app *kingpin.ApplicationModel, words []string, where string) {
	t.Helper()
	group, flags, commands := app.CmdGroupModel, app.Flags, 0
	for _, word := range words {
		if word == "|" || word == ">" {
			break
		}
		if long, ok := strings.CutPrefix(word, "--"); ok {
			long, _, _ = strings.Cut(long, "=")
			require.True(t, hasFlag(flags, long) || hasSubcommandFlag(group, long),
				"%s: there is no flag --%s", where, long)
			continue
		}
		for _, c := range group.Commands {
			if c.Name == word {
				group, commands = c.CmdGroupModel, commands+1
				flags = append(flags[:len(flags):len(flags)], c.Flags...)
				break
			}
		}
		if word == "COMMAND" || word == "help" { // kingpin adds help while it parses.
			commands++
		}
		require.NotZero(t, commands, "%s: there is no command %s", where, word)
	}
}

// hasSubcommandFlag reports whether any subcommand of a command has a flag, such as --url in `cassia import --url`.
func hasSubcommandFlag(group *kingpin.CmdGroupModel, name string) bool {
	for _, c := range group.Commands {
		if hasFlag(c.Flags, name) {
			return true
		}
	}
	return false
}

func hasFlag(flags []*kingpin.FlagModel, name string) bool {
	for _, f := range flags {
		if f.Name == name || f.IsBoolFlag() && "no-"+f.Name == name {
			return true
		}
	}
	return false
}
