package main

import (
	"context"
	"fmt"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/cli"
)

// variables are what cassia reads of its environment.
var variables = []cli.Variable{
	{Name: "CASSIA_CASSANDRA_PASSWORD", Effect: "The password of --cassandra.username, where --cassandra.password-file isn't given."},
	{Name: "CASSIA_KAIROSDB_PASSWORD", Effect: "The password of --kairosdb.username, where --kairosdb.password-file isn't given."},
	{Name: "GOMEMLIMIT", Effect: "Memory above which Go collects garbage harder. Default: three quarters of the machine's, or of the control group's."},
	{Name: "GOGC", Effect: "How much the heap grows between collections, in percent of all of it. Default: by what is in use besides write buffers and caches of the embedded store."},
}

func addVersion(app *kingpin.Application) subcommand {
	cmd := app.Command("version", "Print which version this is.")
	return subcommand{cmd.FullCommand(), func(context.Context) error {
		_, err := fmt.Println(versionText())
		return err
	}}
}

func addCompletion(app *kingpin.Application) subcommand {
	cmd := app.Command("completion", "Print a script with which a shell completes commands and flags: source <(cassia completion bash).")
	shell := cmd.Arg("shell", "bash, zsh or fish.").Required().HintOptions(cli.Shells...).Enum(cli.Shells...)
	return subcommand{cmd.FullCommand(), func(context.Context) error {
		return cli.Completion(os.Stdout, app.Model(), *shell)
	}}
}

func addMan(app *kingpin.Application) subcommand {
	cmd := app.Command("man", "Print the man page: cassia man > cassia.1; man -l cassia.1.")
	return subcommand{cmd.FullCommand(), func(context.Context) error {
		return cli.ManPage(os.Stdout, app.Model(), buildVersion().Cassia, variables, nil)
	}}
}
