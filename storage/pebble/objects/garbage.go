package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/pebble"
)

// garbage is a list of files that no manifest referred to. It is stored as a record.
type garbage struct {
	// Noted is when, by the clock of the process that noted it.
	Noted time.Time `json:"noted"`
	Files []string  `json:"files"`

	object   string
	modified time.Time // by the bucket's clock
}

const garbageSuffix = ".list"

// readGarbage returns the lists of garbage of a set.
func readGarbage(ctx context.Context, b Bucket, s set, k *Key) (out []garbage, err error) {
	objects, err := b.List(ctx, s.folder("garbage"))
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if !strings.HasSuffix(o.Name, garbageSuffix) {
			continue
		}
		g := garbage{object: o.Name, modified: o.Modified}
		if err := getRecord(ctx, b, o.Name, &g, k); isGone(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

// retain removes the backups of the set that Keep doesn't name, and files that no backup has referred to for long enough.
func (b *backup) retain(ctx context.Context) error {
	if b.Keep.All() {
		return nil
	}
	all, err := list(ctx, b.bucket, b.folder("backups"))
	if err != nil {
		return err
	}
	var dated []pebble.DatedBackup
	for _, l := range all {
		dated = append(dated, l.DatedBackup)
	}
	surplus, future := b.Keep.Surplus(dated, b.Now())
	b.stats.Future = future
	for _, l := range all {
		if l.Name != b.stats.Name && slices.Contains(surplus, l.Name) {
			if err := b.bucket.Delete(ctx, l.object); err != nil {
				return err
			}
			b.stats.Removed++
		}
	}
	return b.sweep(ctx)
}

// sweep removes old garbage, and notes what has become garbage. Its age is determined before the manifests are read: no manifest
// that refers to it can be stored later. A list stays until all of its files are gone.
func (b *backup) sweep(ctx context.Context) error {
	lists, err := readGarbage(ctx, b.bucket, b.set, b.Key)
	if err != nil {
		return err
	}
	now, err := b.bucketNow(ctx)
	if err != nil {
		return err
	}
	files, err := b.bucket.List(ctx, b.folder("files"))
	if err != nil {
		return err
	}
	used, err := b.used(ctx)
	if err != nil {
		return err
	}
	there, unused := map[string]bool{}, map[string]bool{} // unused: and whether they are old
	for _, o := range files {
		name := o.Name[len(b.folder("files")):]
		if there[name] = true; !used[name] {
			unused[name] = now.Sub(o.Modified) >= b.Grace
		}
	}
	for _, g := range lists {
		old := now.Sub(g.modified) >= b.Grace && b.Now().Sub(g.Noted) >= b.Grace
		left := !old
		for _, name := range g.Files {
			if _, is := unused[name]; old && is {
				if err := b.bucket.Delete(ctx, b.folder("files")+name); err != nil {
					return err
				}
			} else if there[name] {
				left = true
			}
			delete(unused, name) // It is noted.
		}
		if !left {
			if err := b.bucket.Delete(ctx, g.object); err != nil {
				return err
			}
		}
	}
	return b.note(ctx, unused)
}

// note stores a list of garbage: of the unused files those that are as old as Grace. Younger ones may belong to a backup that is being
// made. Where one that takes longer still needs a file, it sees the list before it stores its manifest, and uploads the file again.
func (b *backup) note(ctx context.Context, unused map[string]bool) error {
	g := garbage{Noted: b.Now().UTC()}
	for name, old := range unused {
		if old {
			g.Files = append(g.Files, name)
		}
	}
	if len(g.Files) == 0 {
		return nil
	}
	slices.Sort(g.Files)
	return putRecord(ctx, b.bucket, b.folder("garbage")+g.Noted.Format(nameLayout)+"-"+random()+garbageSuffix, g, b.Key)
}

// used returns the files that manifests of the set refer to. Its error names the one that can't be read: then nothing may be
// removed.
func (b *backup) used(ctx context.Context) (map[string]bool, error) {
	all, err := list(ctx, b.bucket, b.folder("backups"))
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, l := range all {
		m, err := readManifest(ctx, b.bucket, l, b.Key)
		if isGone(err) {
			continue // Another process removed the backup.
		}
		if errors.Is(err, pebble.ErrBackup) {
			return nil, fmt.Errorf("%w; no files are removed as long as it is there", err)
		}
		if err != nil {
			return nil, err
		}
		for _, f := range m.Files {
			used[f.Object] = true
		}
	}
	return used, nil
}

// bucketNow returns the time of the bucket's clock: when an object is stored.
func (b *backup) bucketNow(ctx context.Context) (time.Time, error) {
	name := b.folder("clock") + b.stats.Name
	if err := putRecord(ctx, b.bucket, name, struct{}{}, nil); err != nil {
		return time.Time{}, err
	}
	found, err := b.bucket.List(ctx, name)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("objects: %s was stored, and isn't listed", name)
	}
	if err != nil {
		return time.Time{}, err
	}
	return found[0].Modified, b.bucket.Delete(ctx, name)
}
