package storage

import (
	"context"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/ha"
)

// heldRows returns the reader of held rows.
func (s *Store) heldRows() ha.Rows { return ha.Rows{Engine: s.eng, Corrupt: s.damage.RecordCorruptRow} }

// heldDeletes returns the ids of the deletes in ds that apply to rows of held samples that are still stored.
func (s *Store) heldDeletes(ctx context.Context, tenant string, ds format.Tombstones) (map[string]bool, error) {
	ids := map[string]bool{}
	if ds = ds.Filter(func(d *format.Tombstone) bool { return len(d.Held) > 0 }); len(ds) == 0 {
		return ids, nil
	}
	return ids, s.heldRows().EachHeld(ctx, tenant, func(cluster, writer string, seq int64) {
		for _, d := range ds {
			if d.CoversHeld(cluster, writer, seq) {
				ids[d.ID] = true
			}
		}
	})
}
