package objects

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"

	"github.com/cassia-db/cassia/storage/pebble"
)

// Spares returns the backups in a bucket, of all stores, that the key can decrypt, the newest first, for pebble.Repair.
// Backups with a damaged manifest are left out. If all backups have other keys, the error is ErrKey.
func Spares(ctx context.Context, bucket Bucket, k *Key) iter.Seq2[pebble.Spare, error] {
	return func(yield func(pebble.Spare, error) bool) {
		all, err := listBackups(ctx, bucket, "backups/")
		if err != nil {
			yield(pebble.Spare{}, err)
			return
		}
		readable := slices.DeleteFunc(slices.Clone(all), func(l listed) bool { return l.key != k.set() })
		if len(readable) == 0 && len(all) > 0 {
			yield(pebble.Spare{}, wrongKey(all[len(all)-1]))
			return
		}
		for _, l := range slices.Backward(readable) {
			m, err := readManifest(ctx, bucket, l, k)
			if errors.Is(err, pebble.ErrBackup) || isGone(err) {
				continue
			}
			if err != nil {
				yield(pebble.Spare{}, err)
				return
			}
			if !yield(spareOf(bucket, l, &m, k), nil) {
				return
			}
		}
	}
}

func spareOf(bucket Bucket, l listed, m *manifest, k *Key) pebble.Spare {
	folder := l.folder("files")
	s := pebble.Spare{Name: m.Name, Files: make(map[string]pebble.SpareFile, len(m.Files))}
	for _, f := range m.Files {
		s.Files[f.Name] = pebble.SpareFile{
			ID: folder + f.Object, Size: f.Size, Copy: func(ctx context.Context, write func(io.Reader) error) error {
				return downloadFile(ctx, bucket, folder, f, write, k)
			},
		}
	}
	return s
}
