package storage

import (
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/format"
)

// dropDeletes removes the rows of deletes that are worked off. Where several processes share an engine, one stays until
// no head can still have what it deletes: heads let go of what is sealed when nothing of the slot is left in the stage.
// And one stays as long as anything is held of replicas that it is about.
func (s *Store) dropDeletes(ctx context.Context, tenant string, all format.Tombstones) error {
	if err := s.clock.MayRemove(); err != nil { // Cleaning may have taken long.
		return err
	}
	none := !s.opts.Shared && s.deletes.taking.TryLock() // No delete is under way.
	if none {
		defer s.deletes.taking.Unlock()
	}
	rows, back, err := s.scanDeletes(ctx, tenant)
	if err != nil {
		return err
	}
	gone, err := s.workedOffDeletes(ctx, tenant, all)
	if err != nil {
		return err
	}
	// Whoever asked for those that are only announced has failed, or ended.
	gone = slices.Concat(gone, rows.Where(func(d *format.Tombstone) bool { return d.Announced && (none || s.opts.Shared && s.rested(d)) }))
	if s.opts.Shared && len(gone) > 0 {
		// All of them are older than that, and what is younger stands.
		before := s.opts.Now().UnixMilli() - deleteRests.Milliseconds() + 1
		if err := s.clear(ctx, tenant, before, rows.Where(func(d *format.Tombstone) bool { return !gone.Has(d.ID) })); err != nil {
			return err
		}
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
	var staged []Work
	if s.opts.Shared {
		all = all.Where(s.rested)
		if staged, err = s.stagedIn(ctx, all); err != nil {
			return nil, err
		}
	}
	held, err := s.withHeld(ctx, tenant, all)
	if err != nil {
		return nil, err
	}
	return all.Where(func(d *format.Tombstone) bool {
		return !held[d.ID] && !slices.ContainsFunc(staged, func(w Work) bool { return d.TouchesSlot(s.period, w.Slot) })
	}), nil
}

// rested says whether a delete was asked for so long ago that no seal is under way that was begun before it.
func (s *Store) rested(d *format.Tombstone) bool {
	return s.opts.Now().UnixMilli()-d.When >= deleteRests.Milliseconds()
}
