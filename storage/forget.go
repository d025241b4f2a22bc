package storage

import (
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// ReleaseSealed releases from the head the samples that other processes have sealed, in the slots of a partition that
// have ended. The process that seals the partition doesn't need to call it, because Seal also releases samples.
func (s *Store) ReleaseSealed(ctx context.Context, partition int) error {
	_, now := s.clock.Times()
	for _, slot := range s.head.Slots(partition) {
		w := Work{Partition: partition, Slot: slot}
		if s.period.SlotEnd(slot) > now.UnixMilli() {
			continue
		}
		staged, err := s.listStaged(ctx, w)
		if err != nil {
			return err
		}
		if !s.head.HasSealedGeneration(w.slotPartition(), staged) {
			continue
		}
		closed := &sealedWork{Work: w}
		s.closeGenerations([]*sealedWork{closed})
		// The list is read again, because rows may have been staged before the generations were closed. Any such row is
		// in the new list or sealed.
		if staged, err = s.listStaged(ctx, w); err != nil {
			return err
		}
		s.releaseGenerations(
			w, slices.DeleteFunc(closed.own, func(g *head.Generation) bool { return !g.IsSealed(staged) }), false,
		)
	}
	s.follower.releaseDefinitions(partition)
	return nil
}

// listStaged returns a slot's staged rows as a set.
func (s *Store) listStaged(ctx context.Context, w Work) (map[format.StageRow]bool, error) {
	rows, err := s.listStageRows(ctx, engine.Stage, w)
	staged := make(map[format.StageRow]bool, len(rows))
	for _, r := range rows {
		staged[r] = true
	}
	return staged, err
}
