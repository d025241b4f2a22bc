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

// garbage is a list of files to which no manifest referred. It is stored as a record.
type garbage struct {
	// Noted is the time of the list, by the clock of the process that stored it.
	Noted time.Time `json:"noted"`
	Files []string  `json:"files"`

	object     string
	modified   time.Time // by the bucket's clock
	unreadable error     // the reason why its content can't be read, or nil
}

const garbageSuffix = ".list"

// readGarbage returns the lists of garbage of a set, without lists that are deleted concurrently.
func readGarbage(ctx context.Context, b Bucket, s set, k *Key) (out []garbage, err error) {
	objects, err := b.List(ctx, s.folder("garbage"))
	if err != nil {
		return nil, err
	}
	missing := map[string]bool{}
	for _, o := range objects {
		if !strings.HasSuffix(o.Name, garbageSuffix) {
			continue
		}
		g := garbage{object: o.Name, modified: o.Modified}
		err := getRecord(ctx, b, o.Name, &g, k)
		if isGone(err) {
			missing[o.Name] = true
		} else if err != nil && !errors.Is(err, pebble.ErrBackup) {
			return nil, err
		}
		if err != nil {
			g.Files, g.unreadable = nil, err
		}
		out = append(out, g)
	}
	if len(missing) > 0 {
		if objects, err = b.List(ctx, s.folder("garbage")); err != nil {
			return nil, err
		}
		for _, o := range objects {
			delete(missing, o.Name) // It was listed before, and is still unreadable.
		}
	}
	return slices.DeleteFunc(out, func(g garbage) bool { return missing[g.object] }), nil
}

// removeOld removes the backups of the set that Keep doesn't select, and files to which no backup has referred for at
// least Grace.
func (b *backup) removeOld(ctx context.Context) error {
	if b.Keep.KeepsAll() {
		return nil
	}
	all, err := b.survey(ctx)
	if err != nil {
		return err
	}
	var dated []pebble.DatedBackup
	for _, l := range all {
		if missing := b.missingFile(l); missing != "" { // Such a backup doesn't count and isn't removed.
			b.stats.Unreadable = append(b.stats.Unreadable, fmt.Sprintf(
				"backup %s can't be restored, because %s is missing; if it isn't needed, remove the object %s", l.Name,
				missing, l.object,
			))
			continue
		}
		dated = append(dated, l.DatedBackup)
	}
	surplus, future := b.Keep.Surplus(dated, b.Now())
	b.stats.Future = future
	for _, l := range all {
		if l.Name != b.stats.Name && slices.Contains(surplus, l.Name) {
			if err := b.bucket.Delete(ctx, l.object); err != nil {
				return err
			}
			b.deleted[l.object] = true
			b.stats.Removed++
		}
	}
	return b.sweep(ctx)
}

// missingFile returns the name of an object of a backup's file that is missing in the listing or has a wrong size, or
// "".
func (b *backup) missingFile(l listed) string {
	for _, f := range b.manifests[l.object].Files {
		if size, ok := b.sizes[f.Object]; !ok || size != b.Key.size(f.Size) {
			return b.folder("files") + f.Object
		}
	}
	return ""
}

// survey lists the backups of the set and reads their manifests into b.manifests. It returns an error if the listing or
// a manifest isn't reliable, so that nothing may be removed. A reliable listing has the manifest that was just stored,
// and no unreadable manifests. It also has each manifest that was read before, or that this manifest or the newest
// other one names, unless a request by name confirms that the manifest doesn't exist.
func (b *backup) survey(ctx context.Context) ([]listed, error) {
	all, err := b.readManifests(ctx)
	if err != nil {
		return nil, err
	}
	unlisted, own, newest := map[string]bool{}, "", ""
	for object := range b.manifests {
		unlisted[object] = true
	}
	for _, l := range all {
		if l.Name == b.stats.Name {
			own = l.object
		} else {
			newest = l.object
		}
	}
	if own == "" {
		return nil, fmt.Errorf(
			"objects: backup %s was stored but isn't listed: the listing of %s is unreliable; nothing is removed",
			b.stats.Name, b.folder("backups"),
		)
	}
	for _, object := range slices.Concat(b.manifests[own].Others, b.manifests[newest].Others) {
		unlisted[object] = true
	}
	for _, l := range all {
		delete(unlisted, l.object)
	}
	for object := range unlisted {
		if err := b.verifyDeleted(ctx, object); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// isDeleted reports whether a manifest that isn't listed is also missing when it is requested by name.
func (b *backup) isDeleted(ctx context.Context, object string) (bool, error) {
	if b.deleted[object] {
		return true, nil
	}
	body, err := b.bucket.Get(ctx, object)
	if isGone(err) {
		b.deleted[object] = true
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, body.Close()
}

// verifyDeleted returns an error unless isDeleted returns true.
func (b *backup) verifyDeleted(ctx context.Context, object string) error {
	is, err := b.isDeleted(ctx, object)
	if err == nil && !is {
		err = fmt.Errorf("objects: %s exists but isn't listed: the listing is unreliable; nothing is removed", object)
	}
	return err
}

// readManifests lists the backups of the set and reads manifests that weren't read before. It leaves out backups that
// another process deletes concurrently.
func (b *backup) readManifests(ctx context.Context) (all []listed, err error) {
	if all, err = listBackups(ctx, b.bucket, b.folder("backups")); err != nil {
		return nil, err
	}
	missing := map[string]bool{}
	for _, l := range all {
		if _, ok := b.manifests[l.object]; ok {
			continue
		}
		m, err := readManifest(ctx, b.bucket, l, b.Key)
		if isGone(err) {
			missing[l.object] = true
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w; no files are removed while it exists; if it isn't needed, remove the object",
				err)
		}
		b.manifests[l.object] = m
	}
	if len(missing) == 0 {
		return all, nil
	}
	again, err := listBackups(ctx, b.bucket, b.folder("backups"))
	if err != nil {
		return nil, err
	}
	for _, l := range again {
		if missing[l.object] {
			return nil, fmt.Errorf(
				"objects: %s is listed but can't be read: the listing is unreliable; nothing is removed", l.object,
			)
		}
	}
	return slices.DeleteFunc(all, func(l listed) bool { return missing[l.object] }), nil
}

// sweep removes old garbage, and records new garbage. The age of garbage is determined before the manifests are listed,
// so no manifest that refers to it can be stored later. A list is kept until all of its files are deleted. An
// unreadable list is also kept, and reported in the statistics.
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
	used, err := b.usedFiles(ctx)
	if err != nil {
		return err
	}
	there, unused := map[string]bool{}, map[string]bool{} // the values of unused report whether a file is old
	for _, o := range files {
		name := o.Name[len(b.folder("files")):]
		if there[name] = true; !used[name] {
			unused[name] = now.Sub(o.Modified) >= b.Grace
		}
	}
	if err := b.verifyUploaders(ctx, unused); err != nil {
		return err
	}
	for _, g := range lists {
		if g.unreadable != nil {
			b.stats.Unreadable = append(b.stats.Unreadable, fmt.Sprintf(
				"garbage list %s is unreadable (%s), so its files are uploaded again if needed; remove the object",
				g.object, g.unreadable,
			))
			continue
		}
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
			delete(unused, name) // It is already in a list.
		}
		if !left {
			if err := b.bucket.Delete(ctx, g.object); err != nil {
				return err
			}
		}
	}
	return b.recordGarbage(ctx, unused)
}

// verifyUploaders returns an error if a backup that uploaded one of the old unused files still has a manifest. The
// listing missed this manifest, which may refer to the file. Young files are skipped: they may belong to a backup in
// progress.
func (b *backup) verifyUploaders(ctx context.Context, unused map[string]bool) error {
	verified := map[string]bool{}
	for name, old := range unused {
		_, backup, ok := parseObject(name)
		if !ok || !old || verified[backup] {
			continue
		}
		verified[backup] = true
		for _, object := range []string{b.manifest(backup, false), b.manifest(backup, true)} {
			if _, ok := b.manifests[object]; ok {
				continue // This manifest was read: it doesn't refer to the file, or was removed.
			}
			if err := b.verifyDeleted(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordGarbage stores a list of garbage with the unused files that are at least as old as Grace. Younger files may
// belong to a backup in progress. A longer backup may also need a listed file: it reads the list before it stores its
// manifest, and uploads the file again.
func (b *backup) recordGarbage(ctx context.Context, unused map[string]bool) error {
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
	return putRecord(
		ctx, b.bucket, b.folder("garbage")+g.Noted.Format(nameLayout)+"-"+randomName()+garbageSuffix, g, b.Key,
	)
}

// usedFiles returns the files to which manifests of the set refer. An error means that nothing may be removed.
func (b *backup) usedFiles(ctx context.Context) (map[string]bool, error) {
	all, err := b.survey(ctx)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, l := range all {
		for _, f := range b.manifests[l.object].Files {
			used[f.Object] = true
		}
	}
	return used, nil
}

// bucketNow returns the time by the bucket's clock, which is the modification time of an object that it stores.
func (b *backup) bucketNow(ctx context.Context) (time.Time, error) {
	name := b.folder("clock") + b.stats.Name
	if err := putRecord(ctx, b.bucket, name, struct{}{}, nil); err != nil {
		return time.Time{}, err
	}
	found, err := b.bucket.List(ctx, name)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("objects: %s was stored but isn't listed", name)
	}
	if err != nil {
		return time.Time{}, err
	}
	return found[0].Modified, b.bucket.Delete(ctx, name)
}
