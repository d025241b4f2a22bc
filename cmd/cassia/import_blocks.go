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
	cmd := imports.Command("blocks", "TSDB blocks, as Prometheus, Thanos and Mimir write them.")
	c := newImportCommand(cmd)
	var o blocks.Options
	external := cmd.Flag("external-labels", "Give every series the labels that Thanos and Mimir keep for the whole block; with --no-external-labels, leave them out.").Default("true").Bool()
	cmd.Flag("drop-external-label", "One of those labels to leave out, such as the replica's. May be given several times.").StringsVar(&o.Without)
	dirs := cmd.Arg("directory", "A block, or a folder of blocks such as Prometheus' data. May be several.").Required().Strings()
	return c.from(func() string {
		return fmt.Sprintf("blocks %s %t %s", strings.Join(*dirs, " "), *external, strings.Join(o.Without, " "))
	}, func(_ context.Context, sel importer.Selection) (importer.Source, error) {
		o.Dirs, o.Selection, o.NoExternal = *dirs, sel, !*external
		return blocks.New(o), nil
	})
}
