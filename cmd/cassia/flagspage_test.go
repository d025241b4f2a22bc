package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/cli"
)

// flagsPage returns the manual's page of flags in Markdown: first the flags of serve in groups, then additional flags
// of other commands.
func flagsPage(app *kingpin.ApplicationModel, variables []cli.Variable) string {
	var b strings.Builder
	b.WriteString("# Flags\n\nRead this page to find a flag, its default and its effect. Boolean flags are disabled " +
		"with the prefix `--no-`. The page is generated from the program: `cassia COMMAND --help` prints the same " +
		"text.\n\n## Flags of serve\n")
	commands := app.FlattenedCommands()
	serve := commands[slices.IndexFunc(commands, func(c *kingpin.CmdModel) bool { return c.FullCommand == "serve" })]
	shared := map[string]bool{}
	for _, group := range cli.FlagGroups(serve.Flags) {
		fmt.Fprintf(&b, "\n### %s\n\n%s", group.Title, flagTable(group.Flags))
		for _, f := range group.Flags {
			shared[f.Name] = true
		}
	}
	b.WriteString(
		"\n## Flags of other commands\n\nFlags that a command shares with `serve` have the same meaning and are listed only above.\n",
	)
	for _, group := range cli.CommandGroups(app) {
		for _, c := range group.Commands {
			if c == serve || c.FullCommand == "serve" {
				continue
			}
			own := slices.DeleteFunc(slices.Clone(c.Flags), func(f *kingpin.FlagModel) bool {
				return f.Hidden || shared[f.Name]
			})
			if len(own) > 0 {
				fmt.Fprintf(&b, "\n### cassia %s\n\n%s", c.FullCommand, flagTable(own))
			}
		}
	}
	b.WriteString("\n## Environment variables\n\n| variable | effect |\n|---|---|\n")
	for _, v := range variables {
		fmt.Fprintf(&b, "| `%s` | %s |\n", v.Name, escapeCell(v.Effect))
	}
	return b.String()
}

// statedDefault matches a default at the end of a flag's help text. Defaults that are computed from the machine's
// memory are described there, so that the page doesn't depend on the machine.
var statedDefault = regexp.MustCompile(`\s*Default: (.+?)\.(\s|$)`)

func flagTable(flags []*kingpin.FlagModel) string {
	var b strings.Builder
	b.WriteString("| flag | default | effect |\n|---|---|---|\n")
	for _, f := range flags {
		help, fallback := f.Help, ""
		if m := statedDefault.FindStringSubmatch(help); m != nil {
			help, fallback = strings.TrimSpace(strings.Replace(help, m[0], " ", 1)), m[1]
		} else if len(f.Default) > 0 && f.Default[0] != "" {
			fallback = "`" + strings.ReplaceAll(strings.Join(f.Default, ", "), "|", `\|`) + "`"
		} else if f.Required {
			fallback = "required"
		} else if f.IsBoolFlag() {
			fallback = "off"
		}
		if f.IsBoolFlag() {
			fallback = strings.NewReplacer("`true`", "on", "`false`", "off").Replace(fallback)
		}
		if c, ok := f.Value.(interface{ IsCumulative() bool }); ok && c.IsCumulative() &&
			!strings.Contains(help, "Repeatable") {
			help += " Repeatable."
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.Name, fallback, escapeCell(help))
	}
	return b.String()
}

// escapeCell escapes text for a cell of a Markdown table.
func escapeCell(text string) string {
	return strings.NewReplacer("\n", " ", `\`, `\\`, "|", `\|`, "<", `\<`, "*", `\*`).Replace(text)
}
