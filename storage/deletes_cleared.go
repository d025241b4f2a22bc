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

// deletionWords tells what a row of table delete says.
func deletionWords(id string, value []byte) (string, error) {
	if id == format.ClearanceID {
		c, err := format.ParseClearance(value)
		return fmt.Sprintf("those asked for before %s are cleaned, but for %d", instant(c.Before), c.Standing.Count()), err
	}
	d, err := format.ParseTombstone(id, value)
	if err != nil {
		return "", err
	}
	words := fmt.Sprintf("%v, from %s to %s, asked for at %s", d.Matchers, instant(d.Start), instant(d.End), instant(d.When))
	if d.Announced {
		words += ", announced, not in force"
	}
	return words, nil
}
