package main

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/lines"
	"github.com/cassia-db/cassia/adapter/importer/victoria"
)

// addImportOpenMetrics declares the import of OpenMetrics text.
func addImportOpenMetrics(imports *kingpin.CmdClause) subcommand {
	cmd := imports.Command("openmetrics", "Import OpenMetrics text in which every sample has a timestamp.")
	c := newImportCommand(cmd)
	path := cmd.Arg("file", "File, or - for standard input.").Required().String()
	return c.fromSource(func() string { return "openmetrics " + dashIfEmpty(*path) },
		func(_ context.Context, sel importer.Selection) (importer.Source, error) {
			if err := c.checkFile(*path); err != nil {
				return nil, err
			}
			return lines.New(lines.Options{Path: dashIfEmpty(*path), Stdin: os.Stdin,
				Format: lines.OpenMetrics, Selection: sel}), nil
		})
}

// checkFile returns an error if the flags require reading the source twice and the source is the standard input, which
// can be read only once.
func (c *importCommand) checkFile(path string) error {
	if dashIfEmpty(path) == "-" && c.verify {
		return errors.New("--verify reads the source again, but standard input can be read only once; import a file")
	}
	return nil
}

// fileOfVictoria returns a source that reads a file exported from VictoriaMetrics.
func fileOfVictoria(path, format string, sel importer.Selection) importer.Source {
	path = dashIfEmpty(path)
	if format == "native" {
		return &victoria.Native{Path: path, Stdin: os.Stdin, Selection: sel}
	}
	return lines.New(lines.Options{Path: path, Stdin: os.Stdin, Format: lines.JSONLines, Selection: sel})
}

// dashIfEmpty returns "-" for an empty path, because kingpin parses a single dash as an empty argument.
func dashIfEmpty(path string) string { return cmp.Or(path, "-") }
