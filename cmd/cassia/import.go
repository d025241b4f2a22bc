package main

import (
	"context"
	"crypto/sha256"
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

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/query"
)

// addImport declares the import command, which has a subcommand per source.
func addImport(app *kingpin.Application) *kingpin.CmdClause {
	return app.Command("import", "Import samples from other systems. They are sealed directly, with their rollups. "+
		"An import can be interrupted and run again. With --url, samples go to the store of a running server. "+
		"Without --url, stop the server of a data directory first; servers of a cluster may be running.")
}

// importCommand holds the flags and steps that all import commands share.
type importCommand struct {
	offlineStore
	name               string // the command's name, such as "import blocks"
	kept               func() (config.Retention, error)
	old                oldSamples
	tenant, checkpoint string
	dryRun, verify     bool
	matches, add       []string
	start, end         string
	within             query.Span
	source             string
	checkpointSet      bool
	to                 *urlFlags
}

func newImportCommand(cmd *kingpin.CmdClause) *importCommand {
	c := &importCommand{offlineStore: offlineFlags(cmd), kept: config.RetentionFlags(cmd), name: cmd.FullCommand()}
	c.createsMissing, c.to = true, newURLFlags(cmd)
	c.old.now, c.old.printed, c.old.hours, c.old.expired = time.Now, map[string]bool{},
		map[string]bool{}, map[string]bool{}
	cmd.GetFlag("retention.raw").IsSetByUser(&c.old.isAccepted)
	cmd.Flag("tenant", "Tenant to import into.").Default("default").StringVar(&c.tenant)
	cmd.Flag("checkpoint", "Checkpoint file, which records the progress of the import. Default: a file in the "+
		"current directory, named after the source and the destination.").
		IsSetByUser(&c.checkpointSet).StringVar(&c.checkpoint)
	cmd.Flag("dry-run", "Only read the source, and print: its series, samples and time range, the samples past the "+
		"retention, and the estimated duration and size of the import.").BoolVar(&c.dryRun)
	cmd.Flag(
		"verify",
		"After the import, read the source again and compare it with the stored samples. If the source was imported completely before, only its new samples are imported.",
	).BoolVar(&c.verify)
	cmd.Flag(
		"match", `Selector of the series to import, such as '{job="node"}'. Repeatable. Default: all series.`,
	).StringsVar(&c.matches)
	cmd.Flag(
		"start", "Start of the time range, RFC 3339 or Unix seconds. Default: the oldest sample.",
	).StringVar(&c.start)
	cmd.Flag("end", "End of the time range, RFC 3339 or Unix seconds. Default: the newest sample.").StringVar(&c.end)
	cmd.Flag("label", "Label to add to every series, as name=value. Repeatable.").StringsVar(&c.add)
	return c
}

// parseSelection parses the flags that select series and a time range of the source.
func (c *importCommand) parseSelection() (sel importer.Selection, err error) {
	sel = importer.Everything()
	if sel.Matchers, err = parseSelectors(c.matches); err != nil {
		return sel, err
	}
	for _, text := range c.add {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !model.UTF8Validation.IsValidLabelName(name) || value == "" {
			return sel, fmt.Errorf("--label=%s: must be a label such as cluster=a", text)
		}
		sel.Add = append(sel.Add, labels.Label{Name: name, Value: value})
	}
	for _, f := range []struct {
		name, text string
		into       *int64
	}{{"start", c.start, &sel.MinMS}, {"end", c.end, &sel.MaxMS}} {
		if f.text == "" {
			continue
		}
		at, err := parseInstant(f.text)
		if err != nil {
			return sel, fmt.Errorf("--%s=%s: must be a time such as 2027-01-01T00:00:00Z or 1798761600", f.name, f.text)
		}
		*f.into = at.UnixMilli()
	}
	if sel.MinMS > sel.MaxMS {
		return sel, fmt.Errorf("--start=%s --end=%s: the end must not be before the start", c.start, c.end)
	}
	return sel, nil
}

// fromSource returns the subcommand that imports from a source. what returns a description of the source, including all
// flags that affect its samples. open opens the source. If the source implements io.Closer, it is closed afterwards.
func (c *importCommand) fromSource(what func() string,
	open func(context.Context, importer.Selection) (importer.Source, error)) subcommand {
	return subcommand{c.name, func(ctx context.Context) (err error) {
		sel, err := c.parseSelection()
		if err != nil {
			return err
		}
		c.within = query.Span{MinT: sel.MinMS, MaxT: sel.MaxMS}
		c.source = strings.Join(append([]string{what(), c.start, c.end}, slices.Concat(c.matches, c.add)...), " ")
		source, err := open(ctx, sel)
		if err != nil {
			return fmt.Errorf("%s", oneLine(err))
		}
		if closer, ok := source.(io.Closer); ok {
			defer func() { err = errors.Join(err, closer.Close()) }()
		}
		plan, err := source.Plan(ctx)
		if err != nil {
			return fmt.Errorf("%s", oneLine(err))
		}
		fmt.Fprintln(stdout, plan.Describe())
		if c.to.url != "" {
			return c.importOverHTTP(ctx, plan, source)
		}
		return c.importLocally(ctx, plan, source)
	}}
}

// importLocally opens a store and imports into it.
func (c *importCommand) importLocally(ctx context.Context, plan importer.Plan, source importer.Source) error {
	if err := c.parseRetention(); err != nil {
		return err
	}
	if c.dryRun {
		return c.runDry(ctx, source)
	}
	if err := c.old.admitPlan(plan); err != nil {
		return err
	}
	err := c.withStore(ctx, func(s *storage.Store) error {
		if err := c.checkClasses(s); err != nil {
			return err
		}
		return c.run(ctx, importer.NewLocal(s, time.Now), c.Location(), source)
	})
	if errors.Is(err, engine.ErrLocked) {
		return fmt.Errorf(
			"%w; if that process is Cassia, import through it while it runs: use --url=http://localhost:9201 instead of --storage.path",
			err,
		)
	}
	return err
}

// parseRetention parses the retention flags. If the engine expires rows by their TTL, the flags are required, because
// rows are written with a TTL computed from them.
func (c *importCommand) parseRetention() (err error) {
	if c.retention, err = c.kept(); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if !c.old.isAccepted && c.Kind == config.EngineCassandra {
		return errors.New("--retention.raw is missing; set it, --retention.5m, --retention.1h and --retention.file " +
			"to the values that the servers use, because they become the TTL of the rows written")
	}
	c.old.remedy = "or set it to the retention of the servers"
	c.old.kept = c.retention.KeptOf(c.tenant)
	return nil
}

// run imports the source and prints the result. where describes the destination.
func (c *importCommand) run(ctx context.Context, into importer.Destination, where string,
	source importer.Source) error {
	if !c.checkpointSet {
		sum := sha256.Sum256([]byte(c.source + "\x00" + where + "\x00" + c.tenant))
		c.checkpoint = fmt.Sprintf("cassia-import-%x.json", sum[:4])
	}
	bar := newProgressBar(os.Stderr, time.Now)
	t := &importPrinter{bar: bar}
	o := importer.Options{
		Into: into, Tenant: c.tenant, Source: source, Name: c.source, Target: where, Checkpoint: c.checkpoint,
		Progress: t.printProgress, Within: c.within,
		Admit: func(list []storage.ImportedSeries) error {
			return c.old.checkBatch(list, func(note string) { bar.clearLine(); fmt.Fprintln(stdout, note) })
		},
	}
	report, err := importer.Run(ctx, o)
	bar.clearLine()
	t.printReport(stdout, report, bar.now().Sub(bar.began))
	if report.Complete && err == nil && !c.verify {
		why := "to import all of it again"
		if n := report.All.Expired + report.All.RollupsOnly; n > 0 {
			why = fmt.Sprintf("%d of its samples were past a retention; if it is longer now", n)
		}
		fmt.Fprintf(stdout,
			"no new samples were found: an earlier run has imported this source completely; %s, remove %s and run again\n",
			why, c.checkpoint)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w; imported samples are kept. Run it again to continue", errInterrupted)
	case errors.As(err, new(oldSamplesError)):
		return fmt.Errorf("%w. Samples imported so far are kept; the next run continues", err)
	case err != nil && report.All.Samples+report.All.Known+report.All.RollupsOnly == 0:
		return fmt.Errorf("%s; this run imported no samples. Fix the problem and run the same command again",
			oneLine(err))
	case err != nil:
		return fmt.Errorf(
			"%s; imported samples are kept. Fix the problem and run the same command again: it continues from the checkpoint %s (remove that file to start from the beginning)",
			oneLine(err), c.checkpoint,
		)
	case c.verify:
		err = c.compare(ctx, o, stdout)
	}
	if n := report.All.RawGone; n > 0 {
		err = errors.Join(err, fmt.Errorf("only rollups of %s were stored, although the retention keeps raw samples "+
			"of their time: the store contains rollups of this time, for example from a shorter retention, and raw "+
			"samples of this import alone would hide that others are missing. To store them, import into a new "+
			"directory", countNoun(n, "sample")))
	}
	if report.Damaged > 0 {
		err = errors.Join(err, fmt.Errorf(
			"the source is damaged: %s skipped, the rest was imported; to import all of it after a repair, remove %s and run again",
			countParts(report.Damaged), c.checkpoint,
		))
	}
	return err
}

func countParts(n int) string { return countNoun(n, "part") + " " + wasOrWere(n) }

func wasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// compare reads the source again and prints every difference from the stored samples.
func (c *importCommand) compare(ctx context.Context, o importer.Options, w io.Writer) error {
	bar := newProgressBar(os.Stderr, time.Now)
	o.Progress = (&importPrinter{bar: bar}).printProgress
	told := 0
	stats, err := importer.Verify(ctx, o, func(d importer.Difference) {
		if told++; told <= maxListed {
			bar.clearLine()
			fmt.Fprintln(w, d)
		}
	})
	bar.clearLine()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w during verification; the import is complete", errInterrupted)
	}
	if err != nil {
		return fmt.Errorf("verifying: %s", oneLine(err))
	}
	fmt.Fprintf(w, "verified %s of %d series (each counted once per day) bit for bit",
		countNoun(int(stats.Samples), "sample"), stats.SeriesDays)
	if stats.RolledUp > 0 {
		fmt.Fprintf(w, ", %d by the counts and sums of their rollups", stats.RolledUp)
	}
	if stats.Left > 0 {
		fmt.Fprintf(w,
			"; %d can't be compared, because they are too old or too new, or share a rollup bucket with other samples",
			stats.Left)
	}
	if stats.Newer > 0 {
		fmt.Fprintf(w, "; %d are newer than the import", stats.Newer)
	}
	fmt.Fprintf(w, ": %s\n", countNoun(int(stats.Differences), "difference"))
	if stats.Differences > 0 {
		return fmt.Errorf("%s: %s", o.Target, countNoun(int(stats.Differences), "difference"))
	}
	return nil
}

// importPrinter prints the progress of an import.
type importPrinter struct {
	bar     *progressBar
	skipped []importer.Skip
}

// maxListed is the max number of skipped parts that are printed.
const maxListed = 20

func (i *importPrinter) printProgress(p importer.Progress) {
	i.skipped = append(i.skipped, p.Skipped[:min(len(p.Skipped), maxListed-len(i.skipped))]...)
	i.bar.showFraction(p.Done, func(took time.Duration) string {
		n := p.Stats.Samples + p.Stats.Known + p.Stats.RollupsOnly
		line := fmt.Sprintf("%5.1f%%  %d samples, %s/s", 100*p.Done, n,
			threeDigits(float64(n)/max(took.Seconds(), 0.001)))
		if left, ok := remainingTime(took, (p.Done-p.Before)/max(1-p.Before, 1e-9)); ok {
			line += fmt.Sprintf(", %s left", roundDuration(left))
		}
		return line
	})
}

// notNewRaw returns a text that counts the samples that were read but not newly stored as raw samples: those that were
// already stored, and those that are only in rollups.
func notNewRaw(s *storage.ImportStats) (text string) {
	if s.Known > 0 {
		text = fmt.Sprintf("; %d %s already stored", s.Known, wasOrWere(s.Known))
	}
	if n := s.RollupsOnly - s.LeftOut; n > 0 {
		text += fmt.Sprintf("; %d only in the rollups", n)
	}
	if s.HoursOnly > 0 {
		text += fmt.Sprintf(", %d of these only in 1h rollups", s.HoursOnly)
	}
	return text
}

// printReport prints the result of an import.
func (i *importPrinter) printReport(w io.Writer, r importer.Report, took time.Duration) {
	s := &r.Stats
	n := s.Samples + s.Known + s.RollupsOnly
	fmt.Fprintf(w, "imported %s in %s, %s/s%s\n", countNoun(s.Samples, "sample"), took.Round(time.Millisecond),
		threeDigits(float64(n)/max(took.Seconds(), 0.001)), notNewRaw(s))
	if r.OtherStore {
		fmt.Fprintln(w,
			"started from the beginning: the checkpoint belongs to another store, or to this store before it was restored")
	}
	if r.Changed {
		fmt.Fprintln(w, "started from the beginning: the part of the source that earlier runs read has changed")
	}
	if r.Resumed {
		fmt.Fprintf(w, "including earlier runs: %s%s\n", countNoun(r.All.Samples, "sample"), notNewRaw(&r.All))
	}
	for _, f := range []struct {
		n    int
		what string
	}{
		{s.LeftOut, "not added to the rollups: finer data of their time are past the retention, and their " +
			"buckets already contain data of the same time, both earlier and later samples, or downsampled windows " +
			"that may overlap them"},
		{
			s.TooCoarse,
			"skipped: they are in downsampled blocks, and finer data are kept of their time; import finer blocks of it, or shorten --retention.raw or --retention.5m first",
		},
		{s.Expired, "skipped: rollups of their time are past the retention, or expired under an earlier one"},
		{s.Ahead, "skipped, because of timestamps in the future"},
		{s.Refused, "skipped, because they can't be stored"},
	} {
		if f.n > 0 {
			fmt.Fprintf(w, "%s %s %s\n", countNoun(f.n, "sample"), wasOrWere(f.n), f.what)
		}
	}
	if s.Ahead > n {
		fmt.Fprintln(w,
			"most timestamps are in the future: are they in the unit that the source's format requires (OpenMetrics: seconds, not milliseconds)?")
	}
	for _, x := range s.Refusals {
		fmt.Fprintf(w, "  %s of %s: %s\n", countNoun(x.Samples, "sample"), x.Labels, oneLine(x.Err))
	}
	i.printSkipped(w)
}

// printSkipped lists the parts of the source that were skipped.
func (i *importPrinter) printSkipped(w io.Writer) {
	for _, x := range i.skipped {
		fmt.Fprintf(w, "  skipped %s: %s\n", x.What, x.Why)
	}
}
