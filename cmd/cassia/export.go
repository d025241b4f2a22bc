package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/adapter/exporter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
)

// exportBytes replaces the store's limit on the bytes that one query may read. An export may read more because it
// streams samples and holds few of them in memory.
const exportBytes = 1 << 50

// exportCommand holds the flags of an export.
type exportCommand struct {
	offlineStore
	format, output, width string
	match                 []string
	start, end, rollups   string
	server                *serverOfDirectory
	exporter.Options
}

// addExport declares the command that exports samples in the file formats of other programs.
func addExport(app *kingpin.Application) subcommand {
	cmd := app.Command("export", "Export samples for other programs: as Prometheus TSDB blocks, OpenMetrics, JSON "+
		"lines in the format of VictoriaMetrics, or CSV. Changes nothing. Servers may be running: a server that uses "+
		"the data directory takes a snapshot, which is exported and then removed.")
	e := &exportCommand{offlineStore: offlineFlags(cmd), server: serverOfDirectoryFlags(cmd)}
	e.isReadOnly = true
	cmd.Flag("format", "Output format: blocks, openmetrics, jsonl or csv.").Required().EnumVar(&e.format, "blocks",
		"openmetrics", "jsonl", "csv")
	cmd.Flag("output", "Where to write: a new file; an empty or new folder, ending in /, for one file per day "+
		"(required for blocks); or - for standard output, the default.").
		Short('o').Default("-").StringVar(&e.output)
	cmd.Flag("match", `Series selector, such as up{job="node"}. Repeatable. Default: all series.`).StringsVar(&e.match)
	cmd.Flag(
		"start", "Start of the time range, RFC 3339 or Unix seconds. Default: the oldest sample.",
	).StringVar(&e.start)
	cmd.Flag(
		"end", "End of the time range (inclusive), RFC 3339 or Unix seconds. Default: the newest sample.",
	).StringVar(&e.end)
	cmd.Flag("tenant", "Tenant to export.").Default("default").StringVar(&e.Tenant)
	cmd.Flag(
		"block-width", "Block duration: 2h, 6h or 18h, for blocks that Prometheus compacts further, or 1d.",
	).Default("18h").EnumVar(&e.width, "2h", "6h", "18h", "1d")
	cmd.Flag(
		"start-timestamps", "Keep start timestamps in blocks. The blocks then need a recent Prometheus.",
	).BoolVar(&e.StartTimestamps)
	cmd.Flag("rollups", "How to export time ranges whose raw samples have expired: expand writes the original number "+
		"of samples, reconstructed from rollups; leave skips them.").
		Default("expand").EnumVar(&e.rollups, "expand", "leave")
	return subcommand{cmd.FullCommand(), e.run}
}

func (e *exportCommand) run(ctx context.Context) error {
	if err := e.parse(); err != nil {
		return err
	}
	e.queryBytes = exportBytes
	err := e.exportSamples(ctx)
	if errors.Is(err, engine.ErrLocked) {
		return e.exportSnapshot(ctx)
	}
	return err
}

// exportSnapshot exports from a snapshot, which the server that uses the directory makes.
func (e *exportCommand) exportSnapshot(ctx context.Context) (err error) {
	return e.server.withSnapshot(ctx, e.Path, func(snapshot string) error {
		e.Path = snapshot
		return e.exportSamples(ctx)
	})
}

// exportSamples exports the samples of a directory that no other process uses, or of a cluster.
func (e *exportCommand) exportSamples(ctx context.Context) error {
	return e.withStore(ctx, func(s *storage.Store) error {
		bar := newProgressBar(os.Stderr, time.Now)
		e.Now, e.Progress = time.Now, bar.showExport
		e.Warn = func(err error) { bar.printLine(oneLine(err)) }
		stats, err := e.write(ctx, s)
		bar.clearLine()
		if ctx.Err() != nil {
			return fmt.Errorf("%w; all partial output was removed", errInterrupted)
		}
		if errors.Is(err, exporter.ErrNothing) {
			return fmt.Errorf("%s: %w", e.Location(), err)
		}
		if err != nil {
			return err
		}
		printExported(os.Stderr, stats, e.format, bar.now().Sub(bar.began))
		if stats.Corrupt > 0 {
			return fmt.Errorf("%s can't be read and were skipped; run cassia check to list them",
				countNoun(stats.Corrupt, "row"))
		}
		if n := s.Damaged(); n > 0 {
			return fmt.Errorf("%s of the store can't be read, so samples may be missing; run cassia check to list them",
				countNoun(n, "part"))
		}
		if stats.Missing != nil {
			return errors.New(oneLine(stats.Missing))
		}
		return nil
	})
}

// parse checks the flags.
func (e *exportCommand) parse() error {
	r, err := parseRange(e.start, e.end, "0s")
	if err != nil {
		return err
	}
	e.MinT, e.MaxT = r.MinMS, r.MaxMS
	if e.Selectors, err = parseSelectors(e.match); err != nil {
		return err
	}
	d, err := model.ParseDuration(e.width)
	if err != nil {
		return err
	}
	e.output, e.LeaveRollups = dashIfEmpty(e.output), e.rollups == "leave"
	e.BlockWidth = time.Duration(d).Milliseconds()
	if e.format == "blocks" && e.output == "-" {
		return errors.New("--output is missing; blocks need a new or empty folder")
	}
	return nil
}

// parseSelectors parses series selectors.
func parseSelectors(list []string) (all [][]*labels.Matcher, err error) {
	for _, text := range list {
		ms, err := promengine.NewParser(promengine.Options{}).ParseMetricSelector(text)
		if err != nil {
			return nil, fmt.Errorf("--match=%s: %s", text, oneLine(err))
		}
		all = append(all, ms)
	}
	return all, nil
}

// write exports the samples that the flags select.
func (e *exportCommand) write(ctx context.Context, s *storage.Store) (exporter.Stats, error) {
	info, err := os.Stat(e.output)
	isFolder := e.format == "blocks" || strings.HasSuffix(e.output, "/") || err == nil && info.IsDir()
	var folder *exporter.Folder
	if isFolder {
		if folder, err = exporter.NewFolder(e.output); err != nil {
			return exporter.Stats{}, err
		}
	}
	if e.format == "blocks" {
		return exporter.Blocks(ctx, s, e.Options, folder)
	}
	formats := []exporter.Format{exporter.OpenMetrics, exporter.JSONLines, exporter.CSV}
	f := formats[slices.IndexFunc(formats, func(f exporter.Format) bool { return f.Name == e.format })]
	switch {
	case isFolder:
		return exporter.TextFolder(ctx, s, f, e.Options, folder)
	case e.output == "-":
		return exporter.Text(ctx, s, f, e.Options, stdout)
	default:
		return exporter.TextFile(ctx, s, f, e.Options, e.output)
	}
}

// printExported prints how many samples were exported, how many were skipped, and how many are inexact.
func printExported(w io.Writer, s exporter.Stats, format string, took time.Duration) {
	what := "file"
	if format == "blocks" {
		what = "block"
	}
	series := countNoun(s.Series, "series")
	if s.Series >= exporter.MaxCounted {
		series = "at least " + series
	}
	fmt.Fprintf(w, "exported %s of %s, %d bytes in %s; took %s\n", countNoun(int(s.Samples), "sample"), series, s.Bytes,
		countNoun(s.Files, what), took.Round(time.Millisecond))
	if n := s.Made - s.Estimated; n > 0 {
		fmt.Fprintf(w, "%d of the samples are reconstructed from rollups, because raw samples have expired: first, "+
			"last, min and max of each bucket are exact, sums unless values are infinite, NaN, extremely "+
			"large or of extremely different sizes; of stale markers, only the last one of a bucket is "+
			"reconstructed; of native histograms, sums unless counters are reset or change their buckets; "+
			"--rollups=leave skips them\n", n)
	}
	if s.Estimated > 0 {
		fmt.Fprintf(w, "%d of the samples are reconstructed from imported downsampled blocks: min, max and sum of "+
			"each bucket are exact, first and last are estimates; --rollups=leave skips them\n", s.Estimated)
	}
	out := s.LeftOut
	for _, l := range []struct {
		n    int64
		what string
	}{
		{out.Histograms, fmt.Sprintf("native histograms were skipped, such as %s; only blocks support them",
			out.Example)},
		{
			out.Buckets,
			"rollup buckets may be exported without some of their samples: raw samples have expired, and the native histograms of a bucket were too large for a row, or its values can't be added up",
		},
		{out.Stale, "stale markers were skipped; this format can't represent them"},
		{out.NaNs, "NaN values lost their exact bits"},
		{out.StartTimestamps, "samples lost their start timestamps" + startsHelp(format)},
	} {
		if l.n > 0 {
			fmt.Fprintf(w, "%d %s\n", l.n, l.what)
		}
	}
}

func startsHelp(format string) string {
	if format == "blocks" {
		return ": --start-timestamps keeps them"
	}
	return ""
}
