package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// trialSamples is the number of samples at the start of the source that a dry run stores in memory, to estimate the
// time and the space of the import.
const trialSamples = 2_000_000

// runDry reads the source and prints its contents and the estimated time and space of an import.
func (c *importCommand) runDry(ctx context.Context, source importer.Source) error {
	bar := newProgressBar(os.Stderr, time.Now)
	printer, samples, t := &importPrinter{bar: bar}, 0, &trialImport{tenant: c.tenant}
	found, err := importer.ReadContents(ctx, importer.ReadOptions{
		Source: source, Kept: c.old.kept, Now: c.old.now(),
		Batch: func(b importer.Batch) error {
			for _, s := range b.Series {
				samples += s.Samples.Len()
			}
			printer.printProgress(importer.Progress{Done: b.Done,
				Stats: storage.ImportStats{Known: samples}, Skipped: b.Skipped})
			return t.add(ctx, b.Series)
		},
	})
	bar.clearLine()
	switch {
	case err != nil && ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return errors.New(oneLine(err))
	}
	c.printContents(stdout, &found, t.estimate(&found, bar.now().Sub(bar.began)))
	printer.printSkipped(stdout)
	return nil
}

// printContents prints the result of a dry run.
func (c *importCommand) printContents(w io.Writer, found *importer.Contents, e importEstimate) {
	if found.Downsampled > 0 {
		fmt.Fprintf(w, "%s in downsampled blocks", countNoun(int(found.Downsampled), "sample"))
		if found.TooCoarse > 0 {
			fmt.Fprintf(w, "; %d of these would be skipped, because finer data are kept of their time", found.TooCoarse)
		}
		fmt.Fprintln(w)
	}
	if found.DamagedParts > 0 {
		fmt.Fprintf(w, "%s of the source would be skipped\n", countNoun(found.DamagedParts, "damaged part"))
	}
	if found.Samples == 0 {
		if found.Downsampled > 0 {
			return
		}
		fmt.Fprintln(w, "no samples in the selected series and time range")
		return
	}
	series := countNoun(found.Series, "series")
	if found.Series >= importer.MaxCounted {
		series = "at least " + series
	}
	fmt.Fprintf(w, "%s, %s, %s – %s\n", series, countNoun(int(found.Samples), "sample"), shortInstant(found.MinMS),
		shortInstant(found.MaxMS))
	past := 0
	for i := range found.Past {
		p := &found.Past[i]
		past += p.Samples
		fmt.Fprintln(w, describePast(p))
	}
	for _, f := range []struct {
		n    int
		what string
	}{
		{int(found.Ahead), "would be skipped, because of timestamps in the future"},
		{e.refused, "of the tested part would be skipped, because they can't be stored"},
	} {
		if f.n > 0 {
			fmt.Fprintf(w, "%s %s\n", countNoun(f.n, "sample"), f.what)
		}
	}
	fmt.Fprintf(w, "an import takes about %s on this machine, and about %s of disk space\n",
		roundDuration(e.took), dayBytes(e.bytes))
	if !c.old.isAccepted && past > 0 {
		fmt.Fprintf(w, "to import samples past the retention, set --retention.raw explicitly, %s\n", c.old.remedy)
	}
}

// describePast describes the samples of a class that are older than its retention of raw samples.
func describePast(p *importer.PastSamples) string {
	parts := []string{}
	for _, f := range []struct {
		n    int
		what string
	}{
		{p.Samples - p.RollupsOnly - p.Expired, "stored as raw samples until 7 days after their retention"},
		{p.RollupsOnly - p.HoursOnly, "stored as rollups only"},
		{p.HoursOnly, "stored as 1h rollups only"},
		{p.Expired, "skipped, past the retention of 1h rollups, " + model.Duration(p.OneHour).String()},
	} {
		if f.n > 0 {
			parts = append(parts, fmt.Sprintf("%d would be %s", f.n, f.what))
		}
	}
	return fmt.Sprintf("%s past %s: %s", countNoun(p.Samples, "sample"), pastWhat(p), strings.Join(parts, "; "))
}

// trialImport stores the first batches of a source in memory, to measure the time and the space that they take.
type trialImport struct {
	tenant string
	took   time.Duration
	// samples is the number of stored samples, and refused the number of rejected samples. rawBytes and rollupBytes are
	// the sizes of the stored samples and of their rollups.
	samples, refused      int
	rawBytes, rollupBytes int64
}

// add stores a batch, unless trialSamples samples have already been stored.
func (t *trialImport) add(ctx context.Context, list []storage.ImportedSeries) (err error) {
	if t.samples >= trialSamples || len(list) == 0 {
		return nil
	}
	o := storage.DefaultOptions()
	o.Logger, o.Elapsed = slog.New(slog.DiscardHandler), elapsedTime
	config.Retention{}.SetOptions(&o) // Keep all samples both as raw rows and as rollups, so that both can be measured.
	s, err := storage.Open(ctx, memory.New(), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	began := time.Now()
	stats, err := s.Import(ctx, t.tenant, list)
	if err != nil {
		return err
	}
	t.took += time.Since(began)
	t.samples += stats.Samples
	t.refused += stats.Refused
	checked, err := s.Check(ctx, func(string) {})
	t.rawBytes += checked.Bytes
	t.rollupBytes += checked.RollupBytes
	return err
}

// importEstimate is the estimated time and space of an import.
type importEstimate struct {
	took    time.Duration
	bytes   float64
	refused int
}

// estimate extrapolates from the trial to the whole source. reading is the time taken to read the source. The estimated
// time is the larger of the times for reading and storing, because an import does both concurrently.
func (t *trialImport) estimate(found *importer.Contents, reading time.Duration) importEstimate {
	e := importEstimate{refused: t.refused}
	n := float64(max(t.samples, 1))
	rollupsOnly, expired := 0, 0
	for _, p := range found.Past {
		rollupsOnly += p.RollupsOnly
		expired += p.Expired
	}
	kept := float64(found.Samples - int64(expired) - found.Ahead)
	storing := t.took.Seconds() / n * kept
	e.took = time.Duration(math.Max(storing, (reading-t.took).Seconds()) * float64(time.Second))
	e.bytes = float64(t.rawBytes)/n*(kept-float64(rollupsOnly)) + float64(t.rollupBytes)/n*kept
	return e
}
