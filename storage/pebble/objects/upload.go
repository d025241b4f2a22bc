package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
)

// copyFile makes sure that a file of the checkpoint is in the bucket. A sorted file that is in the newest backup with
// the same name, size and time isn't read, because sorted files never change under the same name, and a checkpoint
// links them, so their time doesn't change either. All other files are read.
func (b *backup) copyFile(ctx context.Context, name string) (f file, damaged []string, err error) {
	path := filepath.Join(b.dir, name)
	info, err := os.Lstat(path)
	if err != nil {
		return f, nil, fmt.Errorf("objects: checkpoint: %w", err)
	}
	if !info.Mode().IsRegular() {
		return f, nil, fmt.Errorf("%w: %s is not a file", pebble.ErrBackup, path)
	}
	if f = b.known[name]; isSorted(name) && f.Verified && f.Size == info.Size() &&
		f.Changed == info.ModTime().UnixNano() && b.hasObject(f) {
		return f, nil, nil
	}
	f = file{Name: name, Changed: info.ModTime().UnixNano()}
	if f.SHA256, f.Size, err = pebble.SHA256Of(ctx, path); err != nil {
		return f, nil, fmt.Errorf("objects: checkpoint: %w", err)
	}
	if isSorted(name) {
		if damaged, err = pebble.VerifyFile(ctx, b.dir, name); err != nil {
			return f, nil, err
		}
		engine.MeterOf(ctx).Add(f.Size)
		f.Verified = len(damaged) == 0
		b.mu.Lock()
		b.stats.Verified++
		b.mu.Unlock()
	}
	f.Object = b.withSum(f)
	if f.Object == "" {
		err = b.uploadFile(ctx, path, &f)
	} else {
		engine.MeterOf(ctx).Add(f.Size) // The upload was expected, but isn't needed.
	}
	return f, damaged, err
}

// workOf returns the number of bytes that copyFile reads to hash a file, to verify it if it is a sorted file, and to
// upload it.
func (b *backup) workOf(info os.FileInfo) int64 {
	switch f := b.known[info.Name()]; {
	case !isSorted(info.Name()):
		return 2 * info.Size()
	case f.Verified && f.Size == info.Size() && f.Changed == info.ModTime().UnixNano():
		return 0
	}
	return 3 * info.Size()
}

func isSorted(name string) bool { return strings.HasSuffix(name, ".sst") }

// withSum returns the name of an object with a file's content, or "" if there is none.
func (b *backup) withSum(f file) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := b.bySum[b.Key.hash(f.SHA256)]
	if o, ok := b.have[name]; !ok || o.Size != b.Key.size(f.Size) {
		return ""
	}
	return name
}

// uploadFile stores a file in an object with a new name.
func (b *backup) uploadFile(ctx context.Context, path string, f *file) error {
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("objects: checkpoint: %w", err)
	}
	defer in.Close()
	sum := sha256.New()
	from, err := b.Key.encrypt(io.TeeReader(pebble.Cancelable(ctx, in), sum))
	if err != nil {
		return err
	}
	object := b.Key.hash(f.SHA256) + "-" + b.stats.Name + "-" + randomName()
	if err := b.bucket.Put(ctx, b.folder("files")+object, from, b.Key.size(f.Size)); err != nil {
		return fmt.Errorf("uploading %s: %w", f.Name, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%w: %s changed while it was uploaded", pebble.ErrBackup, path)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f.Object = object
	b.stats.Copied++
	b.stats.CopiedBytes += f.Size
	return nil
}

// parseObject returns the hash and the backup in the name of a file's object.
func parseObject(name string) (hash, backup string, ok bool) {
	hash, rest, _ := strings.Cut(name, "-")
	last := max(0, strings.LastIndex(rest, "-"))
	backup = rest[:last]
	return hash, backup, len(hash) == 2*sha256.Size && backupName.MatchString(backup) && isName(name)
}
