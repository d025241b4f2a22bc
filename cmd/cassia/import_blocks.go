package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/blocks"
)

// addImportBlocks declares the import of TSDB blocks.
func addImportBlocks(imports *kingpin.CmdClause) subcommand {
	cmd := imports.Command("blocks", "Import TSDB blocks written by Prometheus, Thanos or Mimir.")
	c := newImportCommand(cmd)
	var o blocks.Options
	external := cmd.Flag(
		"external-labels",
		"Add the external labels that Thanos and Mimir keep per block to every series. --no-external-labels omits them.",
	).Default("true").Bool()
	cmd.Flag("drop-external-label", "External label to omit, such as replica. Repeatable.").StringsVar(&o.Without)
	dirs := cmd.Arg(
		"directory", "Block, or folder of blocks such as the data directory of Prometheus. Repeatable.",
	).Required().Strings()
	return c.fromSource(func() string {
		return fmt.Sprintf("blocks %s %t %s", strings.Join(*dirs, " "), *external, strings.Join(o.Without, " "))
	}, func(_ context.Context, sel importer.Selection) (importer.Source, error) {
		o.Dirs, o.Selection, o.NoExternal = *dirs, sel, !*external
		return blocks.New(o), nil
	})
}
