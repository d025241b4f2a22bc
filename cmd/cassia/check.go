package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/check"
	"github.com/cassia-db/cassia/storage/inspect"
)

func addCheck(app *kingpin.Application) subcommand {
	cmd := app.Command("check", "Verify all stored data and report every problem. Changes nothing. On a data "+
		"directory, stop the server first; on a cluster, servers may be running.")
	o := offlineFlags(cmd)
	asJSON := cmd.Flag("json", "Print the problems and the totals as JSON.").Bool()
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error { return checkAll(ctx, o, *asJSON) }}
}

// checkAll checks every row and, if the store is in a directory, every file. It prints the problems and a summary line,
// or both as JSON. The JSON is printed even if the store can't be opened.
func checkAll(ctx context.Context, o offlineStore, asJSON bool) error {
	o.isReadOnly, o.logsNothing = true, true
	result := checkResult{Store: o.Location(), Problems: []string{}}
	err := o.withStore(ctx, func(s *storage.Store) error { return result.check(ctx, s, asJSON) })
	if asJSON {
		if err != nil {
			result.Error = storage.PlainText(oneLine(err))
		}
		if ctx.Err() != nil {
			result.Error = errInterrupted.Error()
		}
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = errors.Join(err, e.Encode(&result))
	}
	if n := result.Totals.Problems; n > 0 {
		problems := fmt.Errorf("%s: %s", o.Location(), countNoun(n, "problem"))
		if result.damagedParts > 0 {
			problems = fmt.Errorf("%w; `cassia restore --damaged` repairs damaged files from a backup", problems)
		}
		err = errors.Join(err, problems)
	}
	return err
}

// checkResult is the result of a check in JSON.
type checkResult struct {
	// Store is the location of the store.
	Store string `json:"store"`
	// Error is the reason why the check is incomplete, or empty if it is complete. If the check is incomplete, Problems
	// and Totals cover the part that was checked.
	Error    string   `json:"error,omitempty"`
	Problems []string `json:"problems"`
	Totals   struct {
		Problems       int   `json:"problems"`
		UnsealedBlobs  int   `json:"unsealed_blobs"`
		Tenants        int   `json:"tenants"`
		Windows        int   `json:"windows"`
		Metrics        int   `json:"metrics"`
		WindowedSeries int   `json:"windowed_series"`
		Chunks         int   `json:"chunks"`
		ChunkBytes     int64 `json:"chunk_bytes"`
		Samples        int   `json:"samples"`
		Exemplars      int   `json:"exemplars"`
		RollupChunks   int   `json:"rollup_chunks"`
		RollupBytes    int64 `json:"rollup_bytes"`
		Files          int   `json:"files"`
		FileBytes      int64 `json:"file_bytes"`
	} `json:"totals"`
	// damagedParts is the number of damaged parts of files.
	damagedParts int
}

// check checks a store. Unless asJSON is set, it prints each problem when it is found, and a summary line.
func (r *checkResult) check(ctx context.Context, s *storage.Store, asJSON bool) error {
	mctx, bar := withMeterBar(ctx, "checking")
	stats, err := s.Check(mctx, func(problem string) {
		problem = storage.PlainText(problem)
		r.Problems = append(r.Problems, problem)
		if !asJSON {
			bar.printLine(problem)
		}
	})
	bar.clearBar()
	r.set(&stats)
	if err == nil && !asJSON {
		printChecked(&stats)
	}
	return err
}

func (r *checkResult) set(s *check.Totals) {
	t := &r.Totals
	r.damagedParts = s.DamagedParts
	t.Problems, t.UnsealedBlobs, t.Tenants, t.Windows, t.Metrics = s.Problems, s.Blobs, s.Tenants, s.Windows, s.Metrics
	t.WindowedSeries, t.Chunks, t.ChunkBytes, t.Samples, t.Exemplars = s.Series, s.Chunks,
		s.Bytes, s.Samples, s.Exemplars
	t.RollupChunks, t.RollupBytes, t.Files, t.FileBytes = s.Rollups, s.RollupBytes, s.Files, s.FileBytes
}

func printChecked(stats *check.Totals) {
	fmt.Fprintf(stdout,
		"%s not yet sealed; %s, %s, %s and %d series (counted once per window), %s of %d bytes with %s, %s of %d "+
			"bytes, %s of %d bytes: %s\n",
		countNoun(stats.Blobs, "blob"), countNoun(stats.Tenants, "tenant"), countNoun(stats.Windows, "window"),
		countNoun(stats.Metrics, "metric"), stats.Series, countNoun(stats.Chunks, "chunk"), stats.Bytes,
		countNoun(stats.Samples, "sample"), countNoun(stats.Rollups, "rollup chunk"), stats.RollupBytes,
		countNoun(stats.Files, "file"), stats.FileBytes, countNoun(stats.Problems, "problem"))
}

func addInspect(app *kingpin.Application) subcommand {
	cmd := app.Command("inspect", "Print stored rows in readable form. Without a table, print a summary of the "+
		"store. Changes nothing. On a data directory, stop the server first; on a cluster, servers may be running.")
	o := offlineFlags(cmd)
	table := cmd.Arg("table", "Table whose rows to print, such as raw or stage.").String()
	fields := cmd.Arg(
		"field=value",
		"Partition key, optionally followed by the first fields of the row key, such as window=20578 class=0 "+
			"tenant=default metric=up shard=0.",
	).StringMap()
	o.isReadOnly = true
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		line := func(s string) { fmt.Fprintln(stdout, s) }
		return o.withStore(ctx, func(s *storage.Store) error {
			if *table == "" {
				return inspect.Overview(ctx, s.View(), line)
			}
			return inspect.Rows(ctx, s.View().Engine(), *table, *fields, line)
		})
	}}
}
