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
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
)

// backupCommand copies a data directory, while a server uses it or not.
type backupCommand struct {
	dir    string
	to     backups.Place
	server *serverOfDirectory
}

func addBackup(app *kingpin.Application) subcommand {
	cmd := app.Command("backup", "Copy all that is stored into a folder or a bucket, while a server uses it or not: what was acknowledged before is in the copy. "+
		"Files that are there already aren't copied again. For a cluster, see docker/cassandra/snapshot.")
	var c backupCommand
	cmd.Flag("storage.path", "Directory of the data.").Default("data").StringVar(&c.dir)
	cmd.Flag("to", "Folder of the backups, best on another disk: each is a directory in it, complete by itself. Or a bucket, as s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION, with credentials from the environment.").
		Required().StringVar(&c.to.At)
	c.server = serverOfDirectoryFlags(cmd)
	c.to.KeepFlags(cmd, "")
	c.to.KeyFlag(cmd, "")
	cmd.Flag("take-over", "Back up even if the newest backup there is of another copy of this store, such as the one that it was restored from. Give it once, when the other copy is no longer used.").
		BoolVar(&c.to.TakeOver)
	return subcommand{cmd.FullCommand(), c.run}
}

func (c *backupCommand) run(ctx context.Context) (err error) {
	if err := c.to.Validate(); err != nil {
		return fmt.Errorf("--to, --keep, --key-file: %w", err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "LOCK")); err != nil {
		return fmt.Errorf("%s: there are no data of Cassia's", c.dir)
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
	if warning := c.to.Warning(snapshots, made); warning != "" {
		fmt.Fprintln(os.Stderr, "warning: "+warning)
	}
	stats, err := c.to.Backup(ctx, made, name, begun)
	var retention *pebble.RetentionError
	if err != nil && !errors.As(err, &retention) {
		return fmt.Errorf("backup to %s: %s", &c.to, oneLine(err))
	}
	fmt.Printf("backup %s: %d files, %d bytes, of which %d files, %d bytes were copied, in %s\n", c.to.Name(name), stats.Files, stats.Bytes,
		stats.Copied, stats.CopiedBytes, time.Since(begun).Round(time.Millisecond))
	if stats.Removed > 0 {
		fmt.Printf("removed %d older backups\n", stats.Removed)
	}
	if stats.Future != "" {
		fmt.Printf("no older backup was removed: %s is of the future by this machine's clock, which is wrong, or was\n", c.to.Name(stats.Future))
	}
	if err := c.to.Remember(snapshots, name); err != nil {
		fmt.Fprintln(os.Stderr, "warning: where the backup is can't be noted: "+oneLine(err))
	}
	return errors.Join(err, c.printVerified(stats))
}

// snapshot makes one of the name: by itself where no server uses the directory, else the server does.
func (c *backupCommand) snapshot(ctx context.Context, name string) error {
	err := c.snapshotAlone(ctx, name)
	if errors.Is(err, engine.ErrLocked) {
		return c.server.snapshot(ctx, c.dir, name)
	}
	return err
}

// snapshotAlone opens the directory and makes a snapshot. Another command that does so at the same time is waited for.
func (c *backupCommand) snapshotAlone(ctx context.Context, name string) (err error) {
	folder := filepath.Join(c.dir, snapshotsFolder)
	done, err := backups.Turn(ctx, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	o := pebble.DefaultOptions()
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	eng, err := pebble.Open(c.dir, o)
	if err != nil {
		return fmt.Errorf("%s: %w", c.dir, err)
	}
	return errors.Join(checkpoint(ctx, eng, filepath.Join(folder, name)), eng.Close())
}

// backupName names a backup after a time. Two of one second have different names.
func backupName(at time.Time) string {
	return fmt.Sprintf("%s-%016x", at.UTC().Format("20060102T150405Z"), rand.Uint64())
}
