package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/membership"
)

// loadTombstones returns the deletes that a query must apply, when the head has all that other processes had
// acknowledged and nothing that these deletes are about.
//
// Another process has sealed what it deletes. This one may still have it in its head, in one generation with what
// came later: so it seals, too, and reads for that the rows left in the stage. One that may not seal only reads those.
func (s *Store) loadTombstones(ctx context.Context, tenant string) (format.Tombstones, error) {
	found, err := s.deletesOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	// After the deletes were read: what the follower reads from now on isn't deleted.
	if err := s.catchUp(ctx); err != nil || !s.opts.Shared {
		return found, err
	}
	if s.newTo(found) == nil {
		return found, nil
	}
	m := &s.deletes
	m.learning.Lock()
	defer m.learning.Unlock()
	for _, d := range s.newTo(found) {
		err := s.sealOf(ctx, tenant, d)
		if errors.Is(err, membership.ErrClock) || errors.Is(err, engine.ErrReadOnly) {
			err = s.rereadOf(ctx, tenant, d)
		}
		if err != nil {
			return nil, fmt.Errorf("storage: applying a delete: %w", err)
		}
		m.mu.Lock()
		m.apply(d)
		m.mu.Unlock()
	}
	return found, nil
}

// newTo returns the deletes that weren't applied to the head yet.
func (s *Store) newTo(found format.Tombstones) format.Tombstones {
	s.deletes.mu.Lock()
	defer s.deletes.mu.Unlock()
	return found.Filter(func(d *format.Tombstone) bool { return !s.deletes.applied[d.ID] })
}

// rereadOf has the head hold no more than the stage rows of the slot partitions in which it has samples that a delete
// is about.
func (s *Store) rereadOf(ctx context.Context, tenant string, d *format.Tombstone) error {
	if err := s.Ready(); err != nil {
		return err
	}
	found, err := s.head.SlotPartitionsOf(ctx, tenant, d)
	if err != nil {
		return err
	}
	for _, at := range found {
		if err := s.reread(ctx, Work{Slot: at.Slot, Partition: at.Partition}); err != nil {
			return err
		}
	}
	return nil
}

// reread acquires the partition's seal lock for replaceByStaged.
func (s *Store) reread(ctx context.Context, w Work) error {
	s.sealMu[w.Partition].Lock()
	defer s.sealMu[w.Partition].Unlock()
	return s.replaceByStaged(ctx, w)
}

// replaceByStaged replaces a slot partition's generations by the rows of them left in the stage. Samples that others
// have sealed meanwhile are met in rows; until the head lets go of the old ones queries meet samples twice. The caller
// must hold the partition's seal lock.
func (s *Store) replaceByStaged(ctx context.Context, w Work) error {
	closed := &sealedWork{Work: w}
	s.closeGenerations([]*sealedWork{closed})
	old := closed.own
	staged, err := s.listStageRows(ctx, engine.Stage, w)
	if err != nil {
		return err
	}
	back, err := s.findSealedRows(ctx, w, staged)
	if err != nil {
		return err
	}
	left := map[format.StageRow]bool{}
	for _, r := range staged {
		if head.IsCovered(old, r) && !back[r] {
			left[r] = true
		}
	}
	var again *head.Generation
	if len(left) > 0 {
		if again, err = s.loadSlot(ctx, w, func(r format.StageRow) bool { return left[r] }); err != nil {
			return err
		}
	}
	if again != nil {
		for r := range again.Rows() {
			delete(left, r)
		}
	}
	if len(left) > 0 {
		if left, err = s.stillStaged(ctx, w, left); err != nil || len(left) > 0 { // Or they were sealed meanwhile.
			return errors.Join(err, fmt.Errorf("%w: %d staged rows of slot %d, partition %d, are unreadable", engine.ErrUnavailable, len(left), w.Slot, w.Partition))
		}
	}
	if again != nil {
		s.head.AdoptGeneration(again)
	}
	s.releaseGenerations(w, old, false)
	return nil
}

// stillStaged returns those of the rows that are in the stage.
func (s *Store) stillStaged(ctx context.Context, w Work, rows map[format.StageRow]bool) (map[format.StageRow]bool, error) {
	staged, err := s.listStageRows(ctx, engine.Stage, w)
	still := map[format.StageRow]bool{}
	for _, r := range staged {
		if rows[r] {
			still[r] = true
		}
	}
	return still, err
}
