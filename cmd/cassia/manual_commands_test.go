package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// Command lines in the manual are understood by the program: each line of a block of code that runs cassia.
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

// commandLines returns the arguments of cassia's command lines in the code blocks of a page.
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
	// commandLine is a line that runs cassia, alone or with something before it.
	commandLine = regexp.MustCompile(`^(?:\$ )?(?:.*\| |source <\()?(?:bin/)?cassia ([a-z-][^)]*)\)?$`)
	// shellWord is a word of a command line: with quotes, or up to a space.
	shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
)

// The text between blocks is right about commands: `cassia COMMAND --flag` names commands and flags that there are, and
// `make TARGET` a target.
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

// codeSpan is code in a line of text.
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

// requireKnown requires that words start with a command, and that its flags exist. A text may omit required flags.
func requireKnown(t *testing.T, app *kingpin.ApplicationModel, words []string, where string) {
	t.Helper()
	group, flags, commands := app.CmdGroupModel, app.Flags, 0
	for _, word := range words {
		if word == "|" || word == ">" {
			break
		}
		if long, ok := strings.CutPrefix(word, "--"); ok {
			long, _, _ = strings.Cut(long, "=")
			require.True(t, hasFlag(flags, long) || belowHas(group, long), "%s: there is no flag --%s", where, long)
			continue
		}
		for _, c := range group.Commands {
			if c.Name == word {
				group, commands = c.CmdGroupModel, commands+1
				flags = append(flags[:len(flags):len(flags)], c.Flags...)
				break
			}
		}
		if word == "COMMAND" || word == "help" { // kingpin adds help when it parses.
			commands++
		}
		require.NotZero(t, commands, "%s: there is no command %s", where, word)
	}
}

// belowHas reports whether a flag is one of the commands below a command, as in `cassia import --url`.
func belowHas(group *kingpin.CmdGroupModel, name string) bool {
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
