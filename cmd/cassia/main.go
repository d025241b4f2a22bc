// Command cassia is a long-term store for Prometheus data: it stores samples and evaluates queries on them.
//
// Each subcommand has its own file. To add one, write a function like addServe, which declares the command and its
// flags on the application and returns a subcommand, and add it to the list in subcommands.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/cli"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
)

// subcommand is a command of cassia's command line.
type subcommand struct {
	// name is the name on the command line.
	name string
	// run runs the command until it is done or ctx ends. If it returns an error, cassia prints the error in one line
	// and exits with status 1.
	run func(ctx context.Context) error
}

// subcommands declares all subcommands.
func subcommands(app *kingpin.Application) []subcommand {
	schema, imports, backup := addSchema(app), addImport(app), addBackup(app)
	return []subcommand{
		addServe(app),
		addCheck(app),
		addInspect(app),
		addDoctor(app),
		addHealthcheck(app),
		addDownsample(app),
		addRetention(app),
		addRelabel(app),
		addExport(app),
		addImportBlocks(imports), addImportKairosDB(imports),
		addImportOpenMetrics(imports), addImportRemoteRead(imports), addImportVictoriaMetrics(imports),
		addSchemaPrint(schema), addSchemaAlter(schema),
		addSetPeriod(schema),
		addBackupCreate(backup), addBackupList(backup), addBackupVerify(backup), addBackupDelete(backup),
		addRestore(app),
		addBench(app),
		addVersion(app), addCompletion(app), addMan(app),
	}
}

func main() {
	status, _ := runCassia(os.Args[1:], os.Stderr)
	os.Exit(status)
}

// runCassia runs cassia with these arguments and returns its exit status. Until restore is called, the first SIGINT or
// SIGTERM doesn't kill the process. It only cancels the command, so that the process can exit with this status.
func runCassia(args []string, stderr io.Writer) (status int, restore func()) {
	command, err := parse(args)
	restore = func() {}
	if err == nil {
		// After the first signal, stop catching signals, so that a second signal kills the process immediately.
		interrupted, stopWaiting := signal.NotifyContext(context.Background(), os.Interrupt)
		context.AfterFunc(interrupted, stopWaiting)
		ctx, stop := signal.NotifyContext(interrupted, syscall.SIGTERM)
		context.AfterFunc(ctx, stop)
		restore = func() { stop(); stopWaiting() }
		err = stdout.withError(command.run(ctx))
		if ctx.Err() != nil && isInterruption(err) {
			fmt.Fprintf(stderr, "cassia: %s\n", interruptionText(err))
			if interrupted.Err() != nil {
				return exitStatus(syscall.SIGINT), restore
			}
			return exitStatus(syscall.SIGTERM), restore
		}
	}
	if err != nil {
		printError(stderr, err)
		return 1, restore
	}
	return 0, restore
}

// printError prints an error in one line.
func printError(stderr io.Writer, err error) {
	fmt.Fprintf(stderr, "cassia: %s\n", storage.PlainText(strings.ReplaceAll(err.Error(), "\n", "; ")))
}

// exitWith exits the process after kingpin has printed help or the version.
func exitWith(status int) {
	if err := stdout.withError(nil); err != nil {
		printError(os.Stderr, err)
		status = max(status, 1)
	}
	os.Exit(status)
}

// exitStatus returns the exit status that shells report for a process that was killed by a signal.
func exitStatus(s syscall.Signal) int { return 128 + int(s) }

// serveError marks an error of the server command. Unlike other commands, a server normally ends with a signal, so an
// error that it returns after a signal wasn't caused by the signal.
type serveError struct{ error }

func (e serveError) Unwrap() error { return e.error }

// isInterruption reports whether a command failed because it was interrupted by a signal.
func isInterruption(err error) bool {
	return err != nil && (!errors.As(err, new(serveError)) || errors.Is(err, context.Canceled))
}

// interruptionText returns the error text for a command that was interrupted by a signal. If the command can be
// resumed, the text says how.
func interruptionText(err error) string {
	if errors.Is(err, errInterrupted) {
		return oneLine(err)
	}
	return errInterrupted.Error()
}

// newApplication declares the command line and returns the subcommands.
func newApplication() (*kingpin.Application, []subcommand) {
	app := kingpin.New("cassia", "A long-term store for Prometheus data.")
	app.HelpFlag.Short('h').Help("Show help for all commands, or the flags of a command.")
	app.Version(versionText())
	app.UsageWriter(stdout.forUsage())
	app.Terminate(exitWith)
	cli.SetUsage(app, topicList)
	addTopics(app, stdout.forUsage(), exitWith)
	return app, subcommands(app)
}

// parse returns the subcommand that the arguments select.
func parse(args []string) (subcommand, error) {
	app, commands := newApplication()
	return parseWith(app, commands, args)
}

func parseWith(app *kingpin.Application, commands []subcommand, args []string) (subcommand, error) {
	name, err := app.Parse(args)
	if err != nil {
		return subcommand{}, cmp.Or(config.WrongValue(app, args), cli.ExplainError(app, args, err))
	}
	if err := config.WrongValue(app, args); err != nil {
		return subcommand{}, err
	}
	for _, c := range app.Model().FlattenedCommands() {
		if c.FullCommand == name {
			if err := cmp.Or(config.CheckRanges(c.Flags), config.CheckNeeds(app, c, args)); err != nil {
				return subcommand{}, err
			}
		}
	}
	for _, c := range commands {
		if c.name == name {
			return c, nil
		}
	}
	return subcommand{}, fmt.Errorf("unknown command %q; see cassia --help", name)
}
