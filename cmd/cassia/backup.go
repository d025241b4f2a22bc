package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/backups"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
)

// backupCommand copies a data directory. A server may be using the directory.
type backupCommand struct {
	dir    string
	to     backups.Location
	server *serverOfDirectory
}

// addBackup declares the backup command and its subcommands, which make, list, verify and delete backups. Without a
// subcommand it makes a backup.
func addBackup(app *kingpin.Application) *kingpin.CmdClause {
	return app.Command("backup",
		"Back up a data directory to a folder or a bucket, and list, verify and delete backups. Without a further "+
			"command, cassia backup makes a backup, as cassia backup create does. For a cluster, see "+
			"docker/cassandra/snapshot.")
}

func addBackupCreate(backup *kingpin.CmdClause) subcommand {
	cmd := backup.Command("create",
		"Back up a data directory to a folder or a bucket, with or without a running server. The backup contains "+
			"every write acknowledged before it started. Files that an earlier backup already copied are not copied "+
			"again. This is the default: cassia backup --to=PLACE does the same.").Default()
	var c backupCommand
	cmd.Flag("storage.path", "Data directory.").Default("data").StringVar(&c.dir)
	placeFlag(cmd, &c.to, "Where to write backups: a folder, preferably on another disk, or a bucket, as "+
		"s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION with credentials from the environment. Each "+
		"backup is a complete directory in it.")
	c.server = serverOfDirectoryFlags(cmd)
	c.to.KeepFlags(cmd, "")
	c.to.KeyFlag(cmd, "")
	cmd.Flag("take-over", "Back up even if the newest backup belongs to another copy of this store, such as the one "+
		"it was restored from. Set this once, after the other copy is no longer in use.").
		BoolVar(&c.to.TakeOver)
	return subcommand{cmd.FullCommand(), c.run}
}

// placeFlag declares the flag for the location of backups.
func placeFlag(cmd *kingpin.CmdClause, p *backups.Location, help string) {
	cmd.Flag("to", help).Required().StringVar(&p.At)
}

func (c *backupCommand) run(ctx context.Context) (err error) {
	if err := c.to.Validate(); err != nil {
		return fmt.Errorf("--to, --keep, --key-file: %w", err)
	}
	if err := c.checkStore(); err != nil { // Check the store before changing anything.
		return err
	}
	if err := c.to.CheckBeside(c.dir); err != nil {
		return fmt.Errorf("--to: %s", oneLine(err))
	}
	begun := time.Now()
	name := backupName(begun)
	snapshots := filepath.Join(c.dir, snapshotsFolder)
	claim, err := backups.ClaimSnapshot(ctx, snapshots, name)
	if err != nil {
		return fmt.Errorf("%s: %s", c.dir, oneLine(err))
	}
	defer func() { err = errors.Join(err, claim.Remove()) }()
	if err := c.snapshot(ctx, name); err != nil {
		return err
	}
	made := filepath.Join(snapshots, name)
	if warning := c.to.LocationWarning(snapshots, made); warning != "" {
		fmt.Fprintln(os.Stderr, "warning: "+warning)
	}
	mctx, bar := withMeterBar(ctx, "backing up")
	stats, err := c.to.Backup(mctx, made, name, begun)
	bar.clearBar()
	var retention *pebble.RetentionError
	if err != nil && !errors.As(err, &retention) {
		return withOperation("backup to "+c.to.String(), &c.to, err)
	}
	fmt.Fprintf(stdout, "backup %s: %s, %d bytes; copied %s, %d bytes, in %s\n", c.to.Name(name),
		countNoun(stats.Files, "file"), stats.Bytes,
		countNoun(stats.Copied, "file"), stats.CopiedBytes, time.Since(begun).Round(time.Millisecond))
	if stats.Removed > 0 {
		fmt.Fprintf(stdout, "removed %s\n", countNoun(stats.Removed, "older backup"))
	}
	if stats.Future != "" {
		fmt.Fprintf(
			stdout, "no older backup was removed: the time of %s is in the future; check this machine's clock\n",
			c.to.Name(stats.Future),
		)
	}
	if err := c.to.RecordBackup(snapshots, name); err != nil {
		fmt.Fprintln(os.Stderr, "warning: can't record the location of the backup: "+oneLine(err))
	}
	return errors.Join(err, c.printVerified(stats))
}

// checkStore returns an error if the directory contains no store, contains a backup, or contains a store that a server
// couldn't open.
func (c *backupCommand) checkStore() error {
	return withDirectory(c.dir, pebble.CheckStore(c.dir))
}

// withDirectory adds the path of the directory to an error that occurred when the directory was opened.
func withDirectory(dir string, err error) error {
	switch {
	case errors.Is(err, pebble.ErrNoData):
		return fmt.Errorf("%s: no Cassia data found", dir)
	case err != nil:
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// snapshot makes the snapshot with the given name. It opens the directory itself if no server uses it; otherwise the
// server makes the snapshot.
func (c *backupCommand) snapshot(ctx context.Context, name string) error {
	err := c.snapshotAlone(ctx, name)
	if errors.Is(err, engine.ErrLocked) {
		return c.server.snapshot(ctx, c.dir, name)
	}
	return err
}

// snapshotAlone opens the directory and makes a snapshot. If another command has the directory open to make a snapshot,
// snapshotAlone waits for that command.
func (c *backupCommand) snapshotAlone(ctx context.Context, name string) (err error) {
	folder := filepath.Join(c.dir, snapshotsFolder)
	done, err := backups.WaitTurn(ctx, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	eng, err := openExisting(c.dir)
	if err != nil {
		return err
	}
	return errors.Join(makeCheckpoint(ctx, eng, filepath.Join(folder, name)), eng.Close())
}

// openExisting opens the engine of an existing directory. The store may have been created with any settings.
func openExisting(dir string) (*pebble.Engine, error) {
	o := pebbleOptions()
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	o.MustExist, o.Admit = true, storage.CheckDescription(storage.Options{AnySettings: true})
	eng, err := pebble.Open(dir, o)
	return eng, withDirectory(dir, err)
}

// backupName returns the name for a backup made at the given time. Names sort by time, and two backups made at the same
// moment have different names.
func backupName(at time.Time) string {
	return fmt.Sprintf("%s-%08x%08x", at.UTC().Format("20060102T150405Z"), at.Nanosecond(), rand.Uint32())
}
