// Package backups makes, lists, verifies, deletes and restores backups of a data directory, in folders and in buckets,
// on request or on a schedule. cmd/cassia uses it. Package pebble copies the data from a snapshot on the store's disk,
// so a server can continue to write. A claim protects a snapshot while it is copied; see claimSuffix.
package backups

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/s3"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/pebble/objects"
)

// Location is the location of backups: a folder or a bucket.
type Location struct {
	// At is the folder, or the URL of the bucket.
	At   string
	Keep pebble.Keep
	// TakeOver allows backups to a location that has newer backups of another copy of the store.
	TakeOver bool
	// KeyFile is the file with the encryption key. If it is empty, backups aren't encrypted.
	KeyFile string
}

// KeepFlags declares the flags that set which backups are kept. The names of the flags start with the prefix.
func (l *Location) KeepFlags(cmd *kingpin.CmdClause, prefix string) {
	cmd.Flag(prefix+"keep", "Number of most recent backups to keep. If no flag that starts with --"+prefix+
		"keep is set, all backups are kept.").Default("0").IntVar(&l.Keep.Last)
	for _, f := range []struct {
		period, periods string
		into            *int
	}{{"hourly", "hours", &l.Keep.Hourly}, {"daily", "days", &l.Keep.Daily}, {"weekly", "weeks", &l.Keep.Weekly}} {
		cmd.Flag(prefix+"keep-"+f.period, "Number of most recent "+f.periods+" for which to keep the newest backup; "+
			f.periods+" without backups don't count.").Default("0").IntVar(f.into)
	}
}

// KeyFlag declares the flag for the encryption key. Its name starts with the prefix.
func (l *Location) KeyFlag(cmd *kingpin.CmdClause, prefix string) {
	cmd.Flag(prefix+"key-file", "File with a key, in the format of age-keygen, that encrypts backups in a bucket. "+
		"Backups can't be restored without it; keep a copy elsewhere.").
		PlaceHolder("FILE").StringVar(&l.KeyFile)
}

// Validate checks the settings without accessing the location.
func (l *Location) Validate() error {
	if err := l.Keep.Validate(); err != nil {
		return err
	}
	if !s3.IsURL(l.At) {
		if l.KeyFile != "" {
			return errors.New(
				"the key encrypts backups in a bucket (s3://…) only; backups in a folder aren't encrypted",
			)
		}
		return nil
	}
	_, _, err := l.openBucket(context.Background())
	return err
}

// InBucket reports whether the location is a bucket.
func (l *Location) InBucket() bool { return s3.IsURL(l.At) }

// Backup copies a checkpoint to the location as a backup with the given name.
func (l *Location) Backup(ctx context.Context, checkpoint, name string, begun time.Time) (pebble.BackupStats, error) {
	if !l.InBucket() {
		if err := pebble.CheckCopy(checkpoint, l.At); err != nil &&
			!(l.TakeOver && errors.Is(err, pebble.ErrOtherCopy)) {
			return pebble.BackupStats{}, err
		}
		return pebble.Backup(ctx, checkpoint, l.At, name, l.Keep, begun)
	}
	bucket, o, err := l.openBucket(ctx)
	if err != nil {
		return pebble.BackupStats{}, err
	}
	since := time.Now()
	o.Now = func() time.Time { return begun.Add(time.Since(since)) }
	stats, err := objects.Backup(ctx, bucket, checkpoint, name, o)
	if err == nil && !l.Keep.KeepsAll() {
		if err := bucket.AbortAbandoned(ctx, begun.Add(-o.Grace)); err != nil {
			return stats, &pebble.RetentionError{Err: err}
		}
	}
	return stats, err
}

// Restore restores a backup to a directory. An empty name selects the newest backup without known damage.
func (l *Location) Restore(ctx context.Context, name, dir string) (pebble.BackupStats, error) {
	return l.RestoreAndChange(ctx, name, dir, nil)
}

// RestoreAndChange is like Restore. Before the directory can be opened, it calls change with the folder that contains
// the restored files.
func (l *Location) RestoreAndChange(ctx context.Context, name, dir string,
	change func(dir, backup string) error) (pebble.BackupStats, error) {
	if !l.InBucket() {
		return pebble.RestoreAndChange(ctx, l.At, name, dir, change)
	}
	bucket, o, err := l.openBucket(ctx)
	if err != nil {
		return pebble.BackupStats{}, err
	}
	o.Change = change
	return objects.Restore(ctx, bucket, name, dir, o)
}

// SpareBackups returns the backups from which damaged files can be restored, the newest first.
func (l *Location) SpareBackups(ctx context.Context) (iter.Seq2[pebble.Spare, error], error) {
	if !l.InBucket() {
		return pebble.Spares(l.At), nil
	}
	bucket, o, err := l.openBucket(ctx)
	if err != nil {
		return nil, err
	}
	return objects.Spares(ctx, bucket, o.Key), nil
}

// List returns the backups of a store, the oldest first.
func (l *Location) List(ctx context.Context, store string) ([]pebble.DatedBackup, error) {
	if !l.InBucket() {
		return pebble.Backups(l.At, store)
	}
	bucket, o, err := l.openBucket(ctx)
	if err != nil {
		return nil, err
	}
	return objects.Backups(ctx, bucket, store, o.Key)
}

// StoredBackups returns all backups at the location, of all stores, the oldest first.
func (l *Location) StoredBackups(ctx context.Context) ([]pebble.StoredBackup, error) {
	if !l.InBucket() {
		return pebble.StoredBackups(l.At)
	}
	bucket, o, err := l.openBucket(ctx)
	if err != nil {
		return nil, err
	}
	return objects.StoredBackups(ctx, bucket, o.Key)
}

// NewVerifier returns a function that reads all files of a backup and returns the damaged ones. A file that multiple
// backups share is read only once. An engine.WorkMeter in the context counts the bytes.
func (l *Location) NewVerifier(
	ctx context.Context,
) (func(ctx context.Context, name string) (damaged []string, err error),
	error) {
	if !l.InBucket() {
		return (&pebble.FolderVerifier{Folder: l.At}).Verify, nil
	}
	bucket, o, err := l.openBucket(ctx)
	if err != nil {
		return nil, err
	}
	return (&objects.BucketVerifier{Bucket: bucket, Key: o.Key}).Verify, nil
}

// Delete deletes backups.
func (l *Location) Delete(ctx context.Context, names []string) error {
	if !l.InBucket() {
		return pebble.DeleteBackups(ctx, l.At, names)
	}
	bucket, _, err := l.openBucket(ctx)
	if err != nil {
		return err
	}
	return objects.DeleteBackups(ctx, bucket, names)
}

// NewSizer returns a function that returns the number and the total size in bytes of a backup's files, including files
// shared with other backups.
func (l *Location) NewSizer(
	ctx context.Context, store string,
) (func(pebble.DatedBackup) (files int, bytes int64, err error),
	error) {
	if !l.InBucket() {
		return func(b pebble.DatedBackup) (int, int64, error) { return pebble.SizeOf(l.At, b.Name) }, nil
	}
	bucket, o, err := l.openBucket(ctx)
	if err != nil {
		return nil, err
	}
	return func(b pebble.DatedBackup) (int, int64, error) { return objects.SizeOf(ctx, bucket, store, b, o.Key) }, nil
}

func (l *Location) openBucket(ctx context.Context) (*s3.Bucket, objects.Options, error) {
	o := objects.DefaultOptions()
	o.Keep, o.TakeOver = l.Keep, l.TakeOver
	if l.KeyFile != "" {
		var err error
		if o.Key, err = objects.ReadKey(l.KeyFile); err != nil {
			return nil, o, fmt.Errorf("backup key: %w", err)
		}
	}
	bucket, err := s3.Open(ctx, l.At)
	return bucket, o, err
}

// String returns the location for display, without parameters.
func (l *Location) String() string {
	if l.InBucket() {
		return s3.Name(l.At)
	}
	return l.At
}

// Name returns the name of a backup for display.
func (l *Location) Name(backup string) string {
	if l.InBucket() {
		return l.String() + "/" + backup
	}
	return filepath.Join(l.At, backup)
}
