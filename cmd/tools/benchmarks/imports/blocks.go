package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/cassia-db/cassia/cmd/internal/bench"
)

const dayMS = 24 * 3600 * 1000

// writeBlocks writes the samples of a workload as TSDB blocks, one per day, with Prometheus' own writer.
func writeBlocks(ctx context.Context, w bench.Workload, days int, dir string) error {
	g, err := bench.NewGenerator(w)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir+".new", 0o755); err != nil {
		return err
	}
	all := make([]labels.Labels, w.Series)
	for i := range all {
		all[i] = g.Labels(i, 0)
	}
	for day := range days {
		fmt.Fprintf(os.Stderr, "\rwriting block %d of %d", day+1, days)
		if err := writeBlock(ctx, g, all, day, w.Steps/days, dir+".new"); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stderr)
	return os.Rename(dir+".new", dir)
}

// writeBlock writes the block of one day.
func writeBlock(ctx context.Context, g *bench.Generator, all []labels.Labels, day, steps int, dir string) (err error) {
	// The writer accepts samples that are older than the newest sample by up to half of this size, which must include a
	// whole day.
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, 3*dayMS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for i, ls := range all {
		app, ref := w.Appender(ctx), promstorage.SeriesRef(0)
		for k := day * steps; k < (day+1)*steps; k++ {
			if ref, err = app.Append(ref, ls, g.Time(i, k), g.Value(i, k)); err != nil {
				return errors.Join(err, app.Rollback())
			}
		}
		if err := app.Commit(); err != nil {
			return err
		}
	}
	_, err = w.Flush(ctx)
	return err
}
