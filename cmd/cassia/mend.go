package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/backups"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage/pebble"
)

// repairFlags holds the flags for repairing damaged files in a directory.
type repairFlags struct{ onlyDamaged, discardsLog bool }

func addMending(cmd *kingpin.CmdClause) *repairFlags {
	m := &repairFlags{}
	cmd.Flag(
		"damaged",
		"Repair only damaged or missing files of a data directory: files that can be rebuilt without loss and, with "+
			"--from, files with an undamaged copy in a backup. Newer data is kept. Deletes no files. Stop the server "+
			"first.",
	).BoolVar(&m.onlyDamaged)
	cmd.Flag("give-up-log", "With --damaged: if a log is damaged, discard the part after the damage. Acknowledged "+
		"samples and deletes in that part are lost; repeat the deletes.").BoolVar(&m.discardsLog)
	return m
}

// run repairs a directory and prints the result. If verify is set, it then reads every row.
func (r *repairFlags) run(ctx context.Context, from *backups.Location, backup, dir string, verify bool) error {
	if backup != "" {
		return errors.New(
			"--backup can't be combined with --damaged, which takes each file from the newest backup that has an " +
				"undamaged copy",
		)
	}
	begun := time.Now()
	spares := func(func(pebble.Spare, error) bool) {}
	if from.At != "" {
		found, err := from.SpareBackups(ctx)
		if err != nil {
			return withOperation("--from="+from.String(), from, err)
		}
		spares = found
	}
	mctx, bar := withMeterBar(ctx, "examining")
	stats, err := pebble.Repair(mctx, spares, dir, r.discardsLog)
	bar.clearBar()
	printMended(&stats)
	if err != nil {
		return fmt.Errorf("repairing %s: %s", dir, oneLine(err))
	}
	fmt.Fprintf(stdout, "%s: examined %s (%d bytes), repaired %d, %s still damaged, in %s\n", dir,
		countNoun(stats.Files, "file"), stats.Bytes,
		len(stats.Mended), countNoun(len(stats.Left), "part"), time.Since(begun).Round(time.Millisecond))
	var marked error
	if len(stats.Lost) > 0 { // Record the loss now, because another repair wouldn't detect it.
		marked = markRestored(ctx, dir, "")
	}
	if len(stats.Left) > 0 {
		return errors.Join(stillDamaged(from, dir, &stats), marked)
	}
	if marked != nil {
		return marked
	}
	if !verify {
		return nil
	}
	o := offlineStore{Engine: &config.Engine{Kind: config.EnginePebble, Path: dir}}
	return checkAll(ctx, o, false)
}

// printMended prints the result of a repair, one line per file.
func printMended(stats *pebble.RepairStats) {
	for _, text := range stats.Mended {
		fmt.Fprintln(stdout, "repaired: "+text)
	}
	for _, text := range stats.Lost {
		fmt.Fprintln(stdout, "lost: "+text)
	}
	if len(stats.Lost) > 0 {
		fmt.Fprintln(
			stdout, "Deleted samples may be visible again. Deletes made after the damage are lost; repeat them.",
		)
	}
	for _, text := range stats.Left {
		fmt.Fprintln(stdout, "still damaged: "+text)
	}
	if stats.Aside != "" {
		fmt.Fprintf(stdout, "the replaced files are in %s; remove them when they are no longer needed\n", stats.Aside)
	}
}

// stillDamaged returns the error for a repair after which damage remains. The error names the remedy.
func stillDamaged(from *backups.Location, dir string, stats *pebble.RepairStats) error {
	if stats.IsLost {
		return fmt.Errorf(
			"%s: can't be repaired; restore a whole backup to a new directory: cassia restore --from=%s "+
				"--storage.path=NEW_DIRECTORY",
			dir, cmp.Or(from.String(), "BACKUPS"),
		)
	}
	if from.At == "" {
		return fmt.Errorf(
			"%s: still damaged: %s; set --from to the folder or bucket of the backups, or restore a whole backup "+
				"(cassia restore)",
			dir, countNoun(len(stats.Left), "part"),
		)
	}
	if stats.CantOpen {
		return fmt.Errorf("%s: no backup in %s has these files, and the directory can't be opened without them; "+
			"restore a whole backup (cassia restore), or continue without the lost data if a line above names "+
			"--give-up-log",
			dir, from)
	}
	return fmt.Errorf("%s: no backup in %s has these files. cassia check lists the missing data; recover it with "+
		"cassia export from an intact backup and cassia import. If the directory can't be opened, restore a whole "+
		"backup (cassia restore)",
		dir, from)
}
