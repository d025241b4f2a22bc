package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/pebble"
)

// Restore restores a backup to dir, which must be empty or not exist. The empty name selects the newest backup without
// known damage; if the bucket has backups of multiple stores, the name is required. Every file is compared with the
// manifest. An interrupted restore leaves a directory that can't be opened, and to which a backup can be restored
// again.
func Restore(ctx context.Context, bucket Bucket, name, dir string, o Options) (stats pebble.BackupStats, err error) {
	all, err := listBackups(ctx, bucket, "backups/")
	if err != nil {
		return stats, err
	}
	l, err := chooseBackup(all, name, o.Key)
	if err != nil {
		return stats, err
	}
	m, err := readManifest(ctx, bucket, l, o.Key)
	if err != nil {
		return stats, orOlder(err, all, l)
	}
	var files []string
	for _, f := range m.Files {
		files = append(files, f.Name)
	}
	defer func() { err = pebble.NoRoom(err, dir, m.bytes()) }()
	to, err := pebble.BeginRestore(dir, files)
	if err != nil {
		return stats, err
	}
	stats = pebble.BackupStats{Name: m.Name, Taken: m.Taken}
	for _, f := range m.Files {
		engine.MeterOf(ctx).AddExpected(f.Size)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, o.Workers))
	for _, f := range m.Files {
		stats.Files++
		stats.Bytes += f.Size
		g.Go(panics.WrapError("restoring", func() error {
			write := func(from io.Reader) error { return to.Write(f.Name, from) }
			return downloadFile(gctx, bucket, l.folder("files"), f, write, o.Key)
		}))
	}
	if err := g.Wait(); err != nil {
		err = errors.Join(err, to.Undo())
		if errors.Is(err, pebble.ErrBackup) {
			err = orOlder(err, all, l)
		}
		return stats, err
	}
	stats.Copied, stats.CopiedBytes = stats.Files, stats.Bytes
	return stats, to.Finish(pebble.BindChange(m.Name, o.Change))
}

// chooseBackup returns the backup to restore.
func chooseBackup(all []listed, name string, k *Key) (l listed, err error) {
	if name != "" {
		i := slices.IndexFunc(all, func(l listed) bool { return l.Name == name })
		if i < 0 {
			return l, fmt.Errorf("%w named %s", pebble.ErrNoBackup, name)
		}
		return all[i], nil
	}
	if len(all) == 0 {
		return l, pebble.ErrNoBackup
	}
	newest := map[string]string{}
	for _, l := range all {
		newest[l.store] = l.Name
	}
	if len(newest) > 1 {
		return l, &pebble.MultipleStoresError{At: "the bucket", Newest: slices.Sorted(maps.Values(newest))}
	}
	l, ok := newestWhole(all)
	if !ok {
		return l, fmt.Errorf("%w that is undamaged; --backup=%s is the newest damaged one",
			pebble.ErrNoBackup, all[len(all)-1].Name)
	}
	if l.key == k.set() {
		return l, nil
	}
	err = wrongKey(l)
	own := slices.DeleteFunc(slices.Clone(all), func(l listed) bool { return l.key != k.set() })
	if other, ok := newestWhole(own); ok {
		err = fmt.Errorf("%w; or restore --backup=%s, the newest readable one", err, other.Name)
	}
	return listed{}, err
}

func newestWhole(all []listed) (l listed, ok bool) {
	for _, l := range slices.Backward(all) {
		if !l.Damaged {
			return l, true
		}
	}
	return l, false
}

// orOlder adds the name of the set's previous backup to the error for a backup that can't be restored.
func orOlder(err error, all []listed, l listed) error {
	var before []listed
	for _, other := range all {
		if other.object == l.object {
			break
		}
		if other.set == l.set {
			before = append(before, other)
		}
	}
	if older, ok := newestWhole(before); ok {
		return fmt.Errorf("%w; the previous backup is --backup=%s", err, older.Name)
	}
	return fmt.Errorf("%w; there is no older backup", err)
}

// downloadFile passes the content of a backup's file to write, and compares it with the manifest.
func downloadFile(ctx context.Context, b Bucket, folder string, f file, write func(io.Reader) error, k *Key) error {
	in, err := b.Get(ctx, folder+f.Object)
	if isGone(err) {
		return fmt.Errorf("%w: %s, which contains %s, is missing", pebble.ErrBackup, folder+f.Object, f.Name)
	}
	if err != nil {
		return err
	}
	defer in.Close()
	sum, read := sha256.New(), &pebble.ReaderWithError{R: pebble.Cancelable(ctx, in)}
	plain, err := k.decrypt(read)
	if err == nil {
		err = write(io.TeeReader(io.LimitReader(plain, f.Size+1), sum))
	}
	switch {
	case read.Err != nil: // The error is from reading and not from the content.
		return read.Err
	case errors.Is(err, errDecrypt) || err == nil && hex.EncodeToString(sum.Sum(nil)) != f.SHA256:
		return fmt.Errorf("%w: %s differs from the file %s that was backed up",
			pebble.ErrBackup, folder+f.Object, f.Name)
	}
	return err
}
