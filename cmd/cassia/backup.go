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
	"github.com/cassia-db/cassia/storage/pebble/objects"
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
	return subcommand{cmd.FullCommand(), c.run}
}

func (c *backupCommand) run(ctx context.Context) (err error) {
	if err := c.to.Validate(); err != nil {
		return fmt.Errorf("--to, --keep, --key-file: %w", err)
	}
	begun := time.Now()
	name, err := c.snapshot(ctx)
	if err != nil {
		return err
	}
	snapshots := filepath.Join(c.dir, snapshotsFolder)
	made := filepath.Join(snapshots, name)
	claim, err := backups.ClaimSnapshot(snapshots, name)
	if err != nil {
		return errors.Join(err, os.RemoveAll(made))
	}
	defer func() { err = errors.Join(err, claim.Remove()) }()
	stats, err := c.to.Backup(ctx, made, name, begun)
	var retention *objects.RetentionError
	if err != nil && !errors.As(err, &retention) {
		return fmt.Errorf("backup to %s: %s", &c.to, oneLine(err))
	}
	for _, left := range stats.LeftOver { // Backups that were killed have left their snapshots, too.
		if err := os.RemoveAll(filepath.Join(snapshots, filepath.Base(left))); err != nil {
			return err
		}
	}
	fmt.Printf("backup %s: %d files, %d bytes, of which %d files, %d bytes were copied, in %s\n", c.to.Name(name), stats.Files, stats.Bytes,
		stats.Copied, stats.CopiedBytes, time.Since(begun).Round(time.Millisecond))
	if stats.Removed > 0 {
		fmt.Printf("removed %d older backups\n", stats.Removed)
	}
	if stats.Future != "" {
		fmt.Printf("no older backup was removed: %s is of the future by this machine's clock, which is wrong, or was\n", c.to.Name(stats.Future))
	}
	return errors.Join(err, c.printVerified(stats))
}

// snapshot makes one and returns its name: by itself where no server uses the directory, else the server does.
func (c *backupCommand) snapshot(ctx context.Context) (name string, err error) {
	eng, err := openExisting(c.dir)
	if errors.Is(err, engine.ErrLocked) {
		return c.server.snapshot(ctx, c.dir)
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	name = backupName(time.Now())
	if err := os.MkdirAll(filepath.Join(c.dir, snapshotsFolder), 0o755); err != nil {
		return "", err
	}
	return name, checkpoint(ctx, eng, filepath.Join(c.dir, snapshotsFolder, name))
}

// openExisting opens the engine of a directory, whatever the settings of its store.
func openExisting(dir string) (*pebble.Engine, error) {
	o := pebble.DefaultOptions()
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	o.MustExist, o.Admit = true, storage.Admit(storage.Options{AnySettings: true})
	eng, err := pebble.Open(dir, o)
	switch {
	case errors.Is(err, pebble.ErrNoData):
		return nil, fmt.Errorf("%s: there are no data of Cassia's", dir)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return eng, nil
}

// backupName names a backup after a time. Two of one second have different names, as those have that a server makes.
func backupName(at time.Time) string {
	return fmt.Sprintf("%s-%016x", at.UTC().Format("20060102T150405Z"), rand.Uint64())
}
