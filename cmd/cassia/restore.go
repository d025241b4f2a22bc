package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/backups"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
)

func addRestore(app *kingpin.Application) subcommand {
	cmd := app.Command("restore",
		"Restore a backup to a new data directory and verify all of it. With --damaged, repair an existing directory.")
	dir := cmd.Flag(
		"storage.path", "Directory to create; it must be empty or not exist. With --damaged: the directory to repair.",
	).Default("data").String()
	var from backups.Location
	cmd.Flag(
		"from", "Folder or bucket of the backups, as in cassia backup --to. Optional with --damaged.",
	).StringVar(&from.At)
	from.KeyFlag(cmd, "")
	name := cmd.Flag("backup", "Name of the backup. Default: the newest undamaged backup.").String()
	verify := cmd.Flag("check", "After the restore, verify every row, as cassia check does.").Default("true").Bool()
	m := addMending(cmd)
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		if from.At == "" && !m.onlyDamaged {
			return errors.New("--from is missing; set it to the folder or bucket of the backups")
		}
		if err := from.Validate(); err != nil {
			return fmt.Errorf("--from, --key-file: %w", err)
		}
		if m.onlyDamaged {
			return m.run(ctx, &from, *name, *dir, *verify)
		}
		if err := from.CheckRestoreTo(*dir); err != nil {
			return fmt.Errorf("--storage.path: %s", oneLine(err))
		}
		begun := time.Now()
		// A backup of a damaged store is restored even if it can't be opened, because cassia restore --damaged may
		// repair it.
		var damaged error
		mctx, bar := withMeterBar(ctx, "restoring")
		stats, err := from.RestoreAndChange(mctx, *name, *dir, func(dir, backup string) error {
			err := markRestored(ctx, dir, backup)
			if errors.Is(err, engine.ErrCorrupt) {
				damaged, err = err, nil
			}
			return err
		})
		bar.clearBar()
		if err != nil {
			return withOperation("restoring from "+from.String(), &from, err)
		}
		fmt.Fprintf(stdout, "restored %s, of %s, to %s: %s, %d bytes, all verified, in %s\n", stats.Name,
			stats.Taken.Format(time.RFC3339), *dir,
			countNoun(stats.Files, "file"), stats.Bytes, time.Since(begun).Round(time.Millisecond))
		fmt.Fprintln(stdout,
			"the restored store is a copy; while the original is in use, back up this one to another destination "+
				"(--to, --backup.to)")
		if damaged != nil || !*verify {
			return damaged
		}
		o := offlineStore{Engine: &config.Engine{Kind: config.EnginePebble, Path: *dir}}
		return checkAll(ctx, o, false)
	}}
}

// markRestored gives the restored store a new identity. An import that was run between the backup and the restore has a
// checkpoint with the old identity. When the import is run again, it detects the difference and starts from the
// beginning.
func markRestored(ctx context.Context, dir, backup string) (err error) {
	eng, err := openExisting(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	return storage.MarkRestored(ctx, eng, backup, time.Now())
}
