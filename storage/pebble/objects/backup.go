package objects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/pebble"
)

// Options set how backups are made and restored.
type Options struct {
	// Key encrypts and decrypts; nil: nothing is encrypted.
	Key *Key
	// Keep selects which backups of the same store and key stay after one was made.
	Keep pebble.Keep
	// Workers is how many files are copied at the same time.
	Workers int
	// Grace is how long a file that no backup refers to stays at least. It must be longer than storing a manifest takes.
	Grace time.Duration
	// Now is the clock.
	Now func() time.Time
	// Change is called by Restore as by pebble.Restored.Finish; nil: nothing is changed.
	Change func(dir string) error
}

// DefaultOptions encrypt nothing and keep everything.
func DefaultOptions() Options {
	return Options{Workers: 4, Grace: 24 * time.Hour, Now: time.Now}
}

// manifestTimeout bounds how long storing a manifest may take after the last look at the lists of garbage.
const manifestTimeout = 15 * time.Minute

// maxListings bounds how often files are uploaded again because they became garbage meanwhile.
const maxListings = 3

// backup is one that is being made.
type backup struct {
	Options
	set
	bucket Bucket
	dir    string
	known  map[string]file // of the newest backup, by name

	mu    sync.Mutex
	have  map[string]Object // files that may be used, by the last part of their names
	bySum map[string]string // one of them, by hash
	stats pebble.BackupStats
}

// Backup copies a checkpoint, which nobody changes, into a bucket under a name. Files whose content is there already aren't
// uploaded again. When Backup returns without an error the backup is complete, and its source was verified: damaged files are named
// in its statistics. When it returns an error before the backup was made, there is none, unless the bucket stored the
// manifest and the answer was lost. An error that is a pebble.RetentionError means that the backup was made.
func Backup(ctx context.Context, bucket Bucket, checkpoint, name string, o Options) (pebble.BackupStats, error) {
	if !backupName.MatchString(name) {
		return pebble.BackupStats{}, fmt.Errorf("objects: %q is no name of a backup", name)
	}
	store, err := pebble.StoreOf(checkpoint)
	if err != nil {
		return pebble.BackupStats{}, err
	}
	b := &backup{Options: o, set: setOf(store, o.Key), bucket: bucket, dir: checkpoint}
	b.stats.Name, b.stats.Taken = name, o.Now()
	m := manifest{Version: manifestVersion, Name: name, Store: store, Taken: b.stats.Taken.UTC()}
	if err := b.readNewest(ctx); err != nil {
		return b.stats, err
	}
	if err := b.listFiles(ctx); err != nil {
		return b.stats, err
	}
	looked, err := b.copyAll(ctx, &m)
	if err != nil {
		return b.stats, err
	}
	putting, cancel := context.WithDeadline(ctx, looked.Add(manifestTimeout))
	defer cancel()
	if err := m.write(putting, bucket, b.set, o.Key); err != nil {
		return b.stats, fmt.Errorf("storing the manifest: %w", err)
	}
	if len(m.Damaged) > 0 {
		return b.stats, nil // Older backups may be needed.
	}
	if err := b.retain(ctx); err != nil {
		return b.stats, &pebble.RetentionError{Err: err}
	}
	return b.stats, nil
}

// readNewest learns the files of the newest backup of the set. One that can't be used isn't needed.
func (b *backup) readNewest(ctx context.Context) error {
	b.known = map[string]file{}
	all, err := list(ctx, b.bucket, b.folder("backups"))
	if err != nil || len(all) == 0 {
		return err
	}
	m, err := readManifest(ctx, b.bucket, all[len(all)-1], b.Key)
	if errors.Is(err, pebble.ErrBackup) || isGone(err) {
		return nil
	}
	for _, f := range m.Files {
		b.known[f.Name] = f
	}
	return err
}

// listFiles lists which files are there and may be used. Lists of garbage are read first: one that is gone by then has none of its files left.
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
	condemned := map[string]bool{}
	for _, l := range lists {
		for _, name := range l.Files {
			condemned[name] = true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.have, b.bySum = map[string]Object{}, map[string]string{}
	for _, o := range objects {
		name := o.Name[len(folder):]
		if hash, ok := hashOf(name); ok && !condemned[name] {
			b.have[name], b.bySum[hash] = o, name
		}
	}
	return nil
}

// copyAll has all files of the checkpoint in the bucket, and notes them in the manifest. It returns a time after which none of them was
// garbage, by a clock that goes on while the machine is suspended.
func (b *backup) copyAll(ctx context.Context, m *manifest) (listed time.Time, err error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return listed, fmt.Errorf("objects: checkpoint: %w", err)
	}
	damaged := make([][]string, 0, len(entries))
	for _, e := range entries {
		if e.Name() != pebble.StoreFile {
			m.Files, damaged = append(m.Files, file{Name: e.Name()}), append(damaged, nil)
		}
	}
	for range maxListings {
		g, copying := errgroup.WithContext(ctx)
		g.SetLimit(max(1, b.Workers))
		for i := range m.Files {
			g.Go(func() (err error) {
				if b.isThere(m.Files[i]) {
					return copying.Err()
				}
				m.Files[i], damaged[i], err = b.copy(copying, m.Files[i].Name)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return listed, err
		}
		listed = time.Now().Round(0)
		if err := b.listFiles(ctx); err != nil {
			return listed, err
		}
		if b.allThere(m.Files) {
			b.count(m, damaged)
			return listed, nil
		}
	}
	return listed, fmt.Errorf("objects: files were removed from the bucket while they were backed up, %d times", maxListings)
}

// isThere reports whether a file's object is there and may be used.
func (b *backup) isThere(f file) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.have[f.Object]
	return ok && o.Size == b.Key.size(f.Size)
}

func (b *backup) allThere(files []file) bool {
	for _, f := range files {
		if !b.isThere(f) {
			return false
		}
	}
	return true
}

// count notes what there is in the manifest and the statistics.
func (b *backup) count(m *manifest, damaged [][]string) {
	for i, f := range m.Files {
		b.stats.Files++
		b.stats.Bytes += f.Size
		m.Damaged = append(m.Damaged, damaged[i]...)
	}
	m.Damaged = append(m.Damaged, pebble.VerifyLogs(filepath.Clean(b.dir))...)
	b.stats.Damaged = m.Damaged
}
