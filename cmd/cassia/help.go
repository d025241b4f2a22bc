package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/cli"
	"github.com/cassia-db/cassia/cmd/internal/manual"
)

// environmentVariables are the environment variables that cassia reads.
var environmentVariables = []cli.Variable{
	{
		Name:   "CASSIA_CASSANDRA_PASSWORD",
		Effect: "Password of --cassandra.username, used if --cassandra.password-file is not set.",
	},
	{
		Name:   "CASSIA_KAIROSDB_PASSWORD",
		Effect: "Password of --kairosdb.username, used if --kairosdb.password-file is not set.",
	},
	{Name: "GOMEMLIMIT", Effect: "Soft memory limit of the Go runtime. Default: three quarters of --memory.max-bytes."},
	{
		Name: "GOGC",
		Effect: "Garbage collection target: growth of the heap between collections, in percent of the live " +
			"heap. Default: computed from the heap in use, without the write buffers and caches of the embedded store.",
	},
}

// addTopics makes `cassia help TOPIC` print a page of the manual. Help on commands remains kingpin's.
func addTopics(app *kingpin.Application, out io.Writer, terminate func(int)) {
	app.PreAction(func(c *kingpin.ParseContext) error {
		if c.SelectedCommand == nil || c.SelectedCommand != app.HelpCommand {
			return nil
		}
		var words []string
		for _, e := range c.Elements {
			if _, ok := e.Clause.(*kingpin.ArgClause); ok && e.Value != nil {
				words = append(words, *e.Value)
			}
		}
		if len(words) == 0 || app.GetCommand(words[0]) != nil {
			return nil
		}
		page, ok := manual.FindPage(words[0])
		if !ok || len(words) > 1 {
			return cli.UnknownTopic{Name: strings.Join(words, " "), Topics: manual.Topics()}
		}
		_, err := io.WriteString(out, page.Text(terminalWidth))
		if err == nil {
			terminate(0)
		}
		return err
	})
}

// terminalWidth is the max line width of a page on a terminal, in characters. Nearly all terminals are at least this
// wide.
const terminalWidth = 80

// topicList returns the list of topics, which is printed after the list of commands.
func topicList() string {
	var b strings.Builder
	b.WriteString("\n`cassia help TOPIC` prints a page of the manual. A server shows the manual at /manual. Topics:\n")
	for _, g := range manual.Groups() {
		var names []string
		for _, p := range g.Pages {
			names = append(names, p.Topic)
		}
		fmt.Fprintf(&b, "  %s: %s\n", g.Title, strings.Join(names, ", "))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func addVersion(app *kingpin.Application) subcommand {
	cmd := app.Command("version", "Print the version.")
	return subcommand{cmd.FullCommand(), func(context.Context) error {
		_, err := fmt.Fprintln(stdout, versionText())
		return err
	}}
}

func addCompletion(app *kingpin.Application) subcommand {
	cmd := app.Command("completion", "Print a shell completion script: source <(cassia completion bash).")
	shell := cmd.Arg("shell", "Shell: bash, zsh or fish.").Required().HintOptions(cli.Shells...).Enum(cli.Shells...)
	return subcommand{cmd.FullCommand(), func(context.Context) error {
		return cli.WriteCompletion(stdout, app.Model(), *shell)
	}}
}

func addMan(app *kingpin.Application) subcommand {
	cmd := app.Command("man", "Print the man page: cassia man > cassia.1; man -l cassia.1.")
	return subcommand{cmd.FullCommand(), func(context.Context) error {
		return cli.ManPage(stdout, app.Model(), buildVersion().Cassia, environmentVariables, manual.Topics())
	}}
}
