package storage

import (
	"context"
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
)

// clear notes that deletes are about to be removed, and that those of the others which are as old stand.
func (s *Store) clear(ctx context.Context, tenant string, before int64, others deletions) error {
	c := clearance{before: before, standing: others.where(func(d *deletion) bool { return d.when < before }).ids()}
	err := s.eng.Write(ctx, []engine.Batch{{Table: engine.Deletes, Partition: deletePartition(tenant), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(clearanceID)}, Timestamp: before, Value: appendClearance(nil, c),
	}}}})
	if err != nil {
		return fmt.Errorf("storage: noting which deletes were cleaned: %w", err)
	}
	return nil
}

// deletionWords tells what a row of table delete says.
func deletionWords(id string, value []byte) (string, error) {
	if id == clearanceID {
		c, err := parseClearance(value)
		return fmt.Sprintf("those asked for before %s are cleaned, but for %d", instant(c.before), c.standing.count()), err
	}
	d, err := parseDeletion(id, value)
	if err != nil {
		return "", err
	}
	words := fmt.Sprintf("%v, from %s to %s, asked for at %s", d.matchers, instant(d.start), instant(d.end), instant(d.when))
	if d.announced {
		words += ", announced, not in force"
	}
	return words, nil
}
