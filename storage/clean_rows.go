package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// dropDeletes removes the rows of deletes that are worked off. Where several processes share an engine, one stays until
// no head can still have what it deletes: heads release sealed samples when nothing of the slot is left in the stage.
// And one stays as long as anything is held of replicas that it is about.
func (s *Store) dropDeletes(ctx context.Context, tenant string, all format.Tombstones) error {
	if err := s.clock.MayRemove(); err != nil { // Cleaning may have taken long.
		return err
	}
	abandoned, release := s.peers.abandoned()
	defer release()
	rows, back, err := s.scanDeletes(ctx, tenant)
	if err != nil {
		return err
	}
	gone, err := s.workedOffDeletes(ctx, tenant, all)
	if err != nil {
		return err
	}
	gone = slices.Concat(gone, rows.Filter(abandoned))
	if err := s.peers.removing(ctx, tenant, gone, rows); err != nil {
		return err
	}
	for _, d := range slices.Concat(gone, back) {
		if err := s.removeDelete(ctx, tenant, d); err != nil {
			return err
		}
	}
	return nil
}

// workedOffDeletes returns those that nothing needs any more.
func (s *Store) workedOffDeletes(ctx context.Context, tenant string, all format.Tombstones) (gone format.Tombstones, err error) {
	all, staged, err := s.peers.resting(ctx, all)
	if err != nil {
		return nil, err
	}
	held, err := s.heldDeletes(ctx, tenant, all)
	if err != nil {
		return nil, err
	}
	return all.Filter(func(d *format.Tombstone) bool {
		return !held[d.ID] && !slices.ContainsFunc(staged, func(w Work) bool { return d.TouchesSlot(s.period, w.Slot) })
	}), nil
}

// clear notes that deletes are about to be removed, and that those of the others which are as old stand.
func (s *Store) clear(ctx context.Context, tenant string, before int64, others format.Tombstones) error {
	standing := others.Filter(func(d *format.Tombstone) bool { return d.When < before })
	c := format.Clearance{Before: before, Standing: standing.IDs()}
	err := s.eng.Write(ctx, []engine.Batch{{Table: engine.Deletes, Partition: deletePartition(tenant), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(format.ClearanceID)}, Timestamp: before, Value: format.AppendClearance(nil, c),
	}}}})
	if err != nil {
		return fmt.Errorf("storage: recording the cleaned deletes: %w", err)
	}
	return nil
}
