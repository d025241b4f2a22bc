package storage

import (
	"context"
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// clear notes that deletes are about to be removed, and that those of the others which are as old stand.
func (s *Store) clear(ctx context.Context, tenant string, before int64, others format.Tombstones) error {
	c := format.Clearance{Before: before, Standing: others.Where(func(d *format.Tombstone) bool { return d.When < before }).IDs()}
	err := s.eng.Write(ctx, []engine.Batch{{Table: engine.Deletes, Partition: deletePartition(tenant), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(format.ClearanceID)}, Timestamp: before, Value: format.AppendClearance(nil, c),
	}}}})
	if err != nil {
		return fmt.Errorf("storage: noting which deletes were cleaned: %w", err)
	}
	return nil
}
