package storage

import (
	"context"
	"crypto/sha256"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// stagedIn lists what waits in the stage in slots that deletes touch.
func (s *Store) stagedIn(ctx context.Context, ds format.Tombstones) (found []Work, err error) {
	if len(ds) == 0 {
		return nil, nil
	}
	for partition := range s.period.Partitions() {
		work, err := s.Waiting(ctx, partition)
		if err != nil {
			return nil, err
		}
		for _, w := range work {
			if len(ds.InSlot(s.period, w.Slot)) == 0 {
				continue
			}
			if empty, err := s.empty(ctx, engine.Stage, format.StagePartition(w.Slot, partition)); err != nil {
				return nil, err
			} else if !empty {
				found = append(found, w)
			}
		}
	}
	return found, nil
}

// markStaged marks as sealed before what is staged of a window, in slots that deletes touch. A seal of it that failed
// may have left chunks, which name no delete and are cleaned now as others are: the next seal, which would write them
// once more in their place, has to find them. Invariant: see slotSealer.subtract.
func (s *Store) markStaged(ctx context.Context, tenant string, window int64, staged []Work, ds format.Tombstones) error {
	for _, w := range staged {
		in := ds.InSlot(s.period, w.Slot)
		if len(in) == 0 || s.period.WindowOfSlot(rollup.Raw, w.Slot) != window {
			continue
		}
		for _, at := range s.destinationsOf(w.Slot) {
			if err := s.listWindow(ctx, tenant, at.window); err != nil {
				return err
			}
		}
		// Another id than the delete's, which says that the rollups were made anew for it; and always the same.
		id := sha256.Sum256([]byte(in[0].ID))
		for res := rollup.OneHour + 1; res > 0; res-- { // Whoever finds the mark of raw finds its rollups'.
			if err := s.mark(ctx, tenant, res-1, []markAt{{w.Slot, w.Partition, string(id[:engine.IDLen])}}); err != nil {
				return err
			}
		}
	}
	return nil
}
