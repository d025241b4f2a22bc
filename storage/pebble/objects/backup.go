package objects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/pebble"
)

// Options configure backups and restores.
type Options struct {
	// Key encrypts and decrypts. If it is nil, nothing is encrypted.
	Key *Key
	// Keep selects the backups of the same store and key that are kept after one was made.
	Keep pebble.Keep
	// Workers is the number of files that are copied concurrently.
	Workers int
	// Grace is the min time for which a file to which no backup refers is kept. It must be longer than the time of
	// storing a manifest.
	Grace time.Duration
	// Now is the clock.
	Now func() time.Time
	// Change, if set, is called by Restore with the name of the backup, before the directory can be opened: see
	// pebble.Restored.Finish.
	Change func(dir, backup string) error
	// TakeOver permits a backup even if the newest one in the bucket was made from another copy of the store.
	TakeOver bool
}

// DefaultOptions returns options without encryption that keep all backups.
func DefaultOptions() Options {
	return Options{Workers: 4, Grace: 24 * time.Hour, Now: time.Now}
}

// manifestTimeout is the max time between the last read of the lists of garbage and the end of storing a manifest.
const manifestTimeout = 15 * time.Minute

// maxListings is the max number of times that files are uploaded again because they became garbage. It is also the max
// number of times that a manifest is stored.
const maxListings = 3

// errNotStored means that the bucket acknowledged an object but doesn't return it.
var errNotStored = errors.New("objects: the bucket acknowledged an object but doesn't return it")

// backup is a backup in progress.
type backup struct {
	Options
	set
	bucket Bucket
	dir    string
	known  map[string]file // of the newest readable backup, by name
	// manifests are the manifests read so far, by object. They never change. deleted has the objects of manifests that
	// don't exist.
	manifests map[string]manifest
	deleted   map[string]bool
	// damaged describes the damaged parts of each file of the manifest.
	damaged [][]string

	mu    sync.Mutex
	sizes map[string]int64  // of all existing files, by the last part of their names
	have  map[string]Object // the existing files that may be used
	bySum map[string]string // a file that may be used, by hash
	stats pebble.BackupStats
}

// Backup copies a checkpoint, which no process changes, into a bucket under a name. Files whose content already exists
// there aren't uploaded again. When Backup returns without an error, the backup is complete and its source was
// verified; damaged files are listed in its statistics. A pebble.RetentionError means that the backup was made, but
// removing older backups failed. After any other error there is no backup, unless the bucket stored the manifest and
// the response was lost.
func Backup(ctx context.Context, bucket Bucket, checkpoint, name string, o Options) (pebble.BackupStats, error) {
	if !backupName.MatchString(name) {
		return pebble.BackupStats{}, fmt.Errorf("objects: %q is not a backup name", name)
	}
	lineage, err := pebble.LineageOf(checkpoint)
	if err != nil {
		return pebble.BackupStats{}, err
	}
	store := lineage.Store
	b := &backup{
		Options: o, set: setOf(store, o.Key), bucket: bucket, dir: checkpoint, manifests: map[string]manifest{},
		deleted: map[string]bool{},
	}
	b.stats.Name, b.stats.Taken = name, o.Now()
	m := manifest{
		Version: manifestVersion, Name: name, Store: store, Copy: lineage.Copy, Host: lineage.Host,
		Tenants: lineage.TenantList(), Taken: b.stats.Taken.UTC(),
	}
	if err := b.readNewest(ctx, &m, lineage); err != nil {
		return b.stats, err
	}
	if err := b.completeBackup(ctx, &m); err != nil {
		return b.stats, err
	}
	if len(m.Damaged) > 0 {
		return b.stats, nil // Older backups may still be needed.
	}
	if err := b.removeOld(ctx); err != nil {
		return b.stats, &pebble.RetentionError{Err: err}
	}
	return b.stats, nil
}

// readNewest reads the files of the newest readable backup of the set, and adds the other backups to the manifest. It
// adds damaged manifests to the statistics.
func (b *backup) readNewest(ctx context.Context, m *manifest, lineage pebble.Lineage) error {
	b.known = map[string]file{}
	all, err := listBackups(ctx, b.bucket, b.folder("backups"))
	if err != nil {
		return err
	}
	for _, l := range all {
		m.Others = append(m.Others, l.object)
	}
	for _, l := range slices.Backward(all) {
		newest, err := readManifest(ctx, b.bucket, l, b.Key)
		if errors.Is(err, pebble.ErrBackup) {
			b.stats.Unreadable = append(b.stats.Unreadable,
				fmt.Sprintf("backup %s was skipped: %s; if it isn't needed, remove the object", l.Name, err))
			continue
		}
		if isGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := lineage.CheckNewest(newest.Name, newest.Copy); err != nil && !b.TakeOver {
			return err
		}
		for _, f := range newest.Files {
			b.known[f.Name] = f
		}
		return b.addUnlisted(ctx, m, newest.Others)
	}
	return nil
}

// addUnlisted adds to a manifest the other manifests that exist and weren't listed.
func (b *backup) addUnlisted(ctx context.Context, m *manifest, others []string) error {
	for _, object := range others {
		if slices.Contains(m.Others, object) {
			continue
		}
		is, err := b.isDeleted(ctx, object)
		if err != nil {
			return err
		}
		if !is {
			m.Others = append(m.Others, object)
		}
	}
	return nil
}

// listFiles lists the existing files to which the backup may refer. It reads the lists of garbage before it lists the
// files: if a list was already deleted, its files were deleted before it, and aren't listed. Files that may be in an
// unreadable list aren't used. These are the files that were at least as old as Grace when the list was stored.
func (b *backup) listFiles(ctx context.Context) error {
	lists, err := readGarbage(ctx, b.bucket, b.set, b.Key)
	if err != nil {
		return err
	}
	folder := b.folder("files")
	objects, err := b.bucket.List(ctx, folder)
	if err != nil {
		return err
	}
	condemned, newest := map[string]bool{}, time.Time{}
	for _, l := range lists {
		for _, name := range l.Files {
			condemned[name] = true
		}
		if l.unreadable != nil && l.modified.After(newest) {
			newest = l.modified
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes, b.have, b.bySum = map[string]int64{}, map[string]Object{}, map[string]string{}
	for _, o := range objects {
		name := o.Name[len(folder):]
		b.sizes[name] = o.Size
		mayBeListed := condemned[name] || !newest.IsZero() && !o.Modified.After(newest.Add(-b.Grace))
		if hash, _, ok := parseObject(name); ok && !mayBeListed {
			b.have[name], b.bySum[hash] = o, name
		}
	}
	return nil
}

// completeBackup makes sure that all files are in the bucket, and stores the manifest last. The backup is valid once
// its manifest has been read back and, after that, all of its files were found in the bucket and in no list of garbage.
// So it doesn't matter how long storing the manifest takes, for example on a machine that was suspended: files that
// were removed in the meantime are uploaded again.
func (b *backup) completeBackup(ctx context.Context, m *manifest) error {
	if err := b.readCheckpoint(m); err != nil {
		return err
	}
	if err := b.listFiles(ctx); err != nil {
		return err
	}
	for range maxListings {
		looked, err := b.copyAll(ctx, m)
		if err != nil {
			return err
		}
		if err := b.storeManifest(ctx, m, looked.Add(manifestTimeout)); err != nil {
			return err
		}
		if err := b.listFiles(ctx); err != nil {
			return err
		}
		if b.allThere(m.Files) {
			b.countFiles(m)
			return nil
		}
	}
	err := b.bucket.Delete(ctx, b.manifest(m.Name, len(m.Damaged) > 0))
	return errors.Join(
		fmt.Errorf("objects: files were removed from the bucket %d times before the manifest was stored", maxListings),
		err,
	)
}

// storeManifest stores the manifest and reads it back.
func (b *backup) storeManifest(ctx context.Context, m *manifest, deadline time.Time) error {
	putting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := m.write(putting, b.bucket, b.set, b.Key); err != nil {
		return fmt.Errorf("storing the manifest: %w", err)
	}
	object := b.manifest(m.Name, len(m.Damaged) > 0)
	lost := func(why string) error {
		err := fmt.Errorf("%w: %s (%s): backup %s doesn't exist; check the storage, then back up again",
			errNotStored, object, why, m.Name)
		return errors.Join(err, b.bucket.Delete(ctx, object)) // An incomplete manifest must not count as a backup.
	}
	all, err := listBackups(ctx, b.bucket, b.folder("backups"))
	if err != nil {
		return fmt.Errorf("reading back the manifest: %w", err)
	}
	i := slices.IndexFunc(all, func(l listed) bool { return l.object == object })
	if i < 0 {
		return lost("it isn't listed")
	}
	got, err := readManifest(ctx, b.bucket, all[i], b.Key)
	if isGone(err) || errors.Is(err, pebble.ErrBackup) {
		return lost(err.Error())
	}
	if err != nil {
		return fmt.Errorf("reading back the manifest: %w", err)
	}
	if same, err := got.equal(m); err != nil {
		return err
	} else if !same {
		return lost("its content differs")
	}
	b.manifests[object] = got
	return nil
}

// readCheckpoint adds the files of the checkpoint to the manifest.
func (b *backup) readCheckpoint(m *manifest) error {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return fmt.Errorf("objects: checkpoint: %w", err)
	}
	for _, e := range entries {
		if e.Name() != pebble.StoreFile {
			m.Files = append(m.Files, file{Name: e.Name()})
		}
	}
	b.damaged = make([][]string, len(m.Files))
	return nil
}

// copyAll makes sure that all files of the checkpoint are in the bucket, and adds them to the manifest. The lists of
// garbage that were read last contain none of these files. listed is the time right before those lists were read, by a
// clock that advances while the machine is suspended.
func (b *backup) copyAll(ctx context.Context, m *manifest) (listed time.Time, err error) {
	for i := range m.Files {
		if info, err := os.Lstat(filepath.Join(b.dir, m.Files[i].Name)); err == nil {
			// copyFile returns the error of a file that isn't accessible.
			engine.MeterOf(ctx).AddExpected(b.workOf(info))
		}
	}
	for range maxListings {
		g, copying := errgroup.WithContext(ctx)
		g.SetLimit(max(1, b.Workers))
		for i := range m.Files {
			g.Go(panics.WrapError("backing up", func() (err error) {
				if b.hasObject(m.Files[i]) {
					return copying.Err()
				}
				m.Files[i], b.damaged[i], err = b.copyFile(copying, m.Files[i].Name)
				return err
			}))
		}
		if err := g.Wait(); err != nil {
			return listed, err
		}
		listed = time.Now().Round(0)
		if err := b.listFiles(ctx); err != nil {
			return listed, err
		}
		if b.allThere(m.Files) {
			m.Damaged = slices.Concat(append(b.damaged, pebble.VerifyLogs(filepath.Clean(b.dir)))...)
			return listed, nil
		}
	}
	return listed, fmt.Errorf("objects: files were removed from the bucket %d times while they were backed up",
		maxListings)
}

// hasObject reports whether a file's object exists and may be used.
func (b *backup) hasObject(f file) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.have[f.Object]
	return ok && o.Size == b.Key.size(f.Size)
}

func (b *backup) allThere(files []file) bool {
	for _, f := range files {
		if !b.hasObject(f) {
			return false
		}
	}
	return true
}

// countFiles adds the manifest's files to the statistics.
func (b *backup) countFiles(m *manifest) {
	for _, f := range m.Files {
		b.stats.Files++
		b.stats.Bytes += f.Size
	}
	b.stats.Damaged = m.Damaged
}
