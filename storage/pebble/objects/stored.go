package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
)

// StoredBackups returns the backups in a bucket, of all stores, the oldest first. Of backups with another key, only the
// names are known.
func StoredBackups(ctx context.Context, bucket Bucket, k *Key) (out []pebble.StoredBackup, err error) {
	all, err := listBackups(ctx, bucket, "backups/")
	if err != nil {
		return nil, err
	}
	var sizes map[string]int64 // of all files, by the names of their objects
	for _, l := range all {
		b := pebble.StoredBackup{Name: l.Name, Taken: l.Taken}
		m, err := readManifest(ctx, bucket, l, k)
		switch {
		case errors.Is(err, pebble.ErrBackup), errors.Is(err, ErrKey):
			b.Unreadable = err.Error()
		case isGone(err):
			continue // It is being deleted.
		case err != nil:
			return nil, err
		default:
			b.Store, b.Host, b.Tenants = m.Store, m.Host, m.Tenants
			b.Damaged, b.Files, b.Taken = m.Damaged, len(m.Files), m.Taken
			b.Bytes = m.bytes()
			if sizes == nil { // Listed after the manifests, whose files were uploaded before.
				if sizes, err = fileSizes(ctx, bucket); err != nil {
					return nil, err
				}
			}
			b.Incomplete = m.incomplete(l.folder("files"), sizes, k)
		}
		out = append(out, b)
	}
	return out, nil
}

// fileSizes returns the sizes of the files of all backups, by the names of their objects.
func fileSizes(ctx context.Context, bucket Bucket) (map[string]int64, error) {
	objects, err := bucket.List(ctx, "files/")
	if err != nil {
		return nil, err
	}
	sizes := make(map[string]int64, len(objects))
	for _, o := range objects {
		sizes[o.Name] = o.Size
	}
	return sizes, nil
}

// incomplete describes each file whose object in folder is missing or has a wrong size.
func (m *manifest) incomplete(folder string, sizes map[string]int64, k *Key) (texts []string) {
	for _, f := range m.Files {
		object := folder + f.Object
		if size, ok := sizes[object]; !ok {
			texts = append(texts, object+" is missing")
		} else if want := k.size(f.Size); size != want {
			texts = append(texts, fmt.Sprintf("%s has %d of %d bytes", object, size, want))
		}
	}
	return texts
}

// BucketVerifier downloads the files of backups and compares them with the manifests. An object that multiple backups
// share is downloaded once. If the context contains an engine.WorkMeter, it counts the bytes of all files.
type BucketVerifier struct {
	Bucket Bucket
	Key    *Key

	// found maps the name of each verified object to a description of its damage, or to "" if the object is intact.
	found map[string]string
}

// Verify returns the files of a backup that are missing or differ from the files that were backed up. An error means
// that the manifest can't be read, the bucket failed, or the context ended.
func (v *BucketVerifier) Verify(ctx context.Context, name string) (damaged []string, err error) {
	l, err := backupNamed(ctx, v.Bucket, name)
	if err != nil {
		return nil, err
	}
	m, err := readManifest(ctx, v.Bucket, l, v.Key)
	if err != nil {
		return nil, err
	}
	if v.found == nil {
		v.found = map[string]string{}
	}
	for _, f := range m.Files {
		object := l.folder("files") + f.Object
		found, known := v.found[object]
		if !known {
			discard := func(from io.Reader) error {
				_, err := io.Copy(io.Discard, from)
				return err
			}
			err := downloadFile(ctx, v.Bucket, l.folder("files"), f, discard, v.Key)
			if err != nil && !errors.Is(err, pebble.ErrBackup) {
				return damaged, err
			}
			if err != nil {
				found = err.Error()
			}
			v.found[object] = found
		} else {
			engine.MeterOf(ctx).Add(f.Size)
		}
		if found != "" {
			damaged = append(damaged, found)
		}
	}
	return damaged, nil
}

// DeleteBackups removes backups from a bucket. All of them must exist. The files of the removed backups are kept at
// first, because other backups may refer to them. The next backup of the same store that removes old backups records
// the unused files as garbage.
func DeleteBackups(ctx context.Context, bucket Bucket, names []string) error {
	var found []listed
	for _, name := range names {
		l, err := backupNamed(ctx, bucket, name)
		if err != nil {
			return err
		}
		found = append(found, l)
	}
	for _, l := range found {
		if err := bucket.Delete(ctx, l.object); err != nil {
			return err
		}
	}
	return nil
}

// backupNamed returns the backup with a name.
func backupNamed(ctx context.Context, bucket Bucket, name string) (l listed, err error) {
	all, err := listBackups(ctx, bucket, "backups/")
	if err != nil {
		return l, err
	}
	i := slices.IndexFunc(all, func(l listed) bool { return l.Name == name })
	if i < 0 {
		return l, fmt.Errorf("%w named %s", pebble.ErrNoBackup, name)
	}
	return all[i], nil
}
