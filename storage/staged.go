package storage

import (
	"cmp"
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/retention"
)

// Grace is the time for which a window is kept after its retention has ended. It is also the maximum delay of sealing:
// samples accepted before the end of the retention are sealed as raw rows until the grace period ends.
const Grace = retention.Grace

// Staged is a slot of a partition that has unsealed samples and ended long enough ago to be sealed.
type Staged struct {
	Work
	// StartMS and EndMS are the start and end of the slot, in milliseconds.
	StartMS, EndMS int64
	// SinceMS is the time, in milliseconds, since which the samples could have been sealed. This is settleMS
	// milliseconds after the end of the slot, see Store.Staged, or the arrival of the samples if they are known to have
	// arrived later.
	SinceMS int64
	// Expired is true if the slot's raw window is past the retention and the grace period. Sealing then only adds
	// missing buckets to rollups.
	Expired bool
}

// Staged lists the slots of a partition that ended at least settleMS ago and have unsealed samples, ordered by SinceMS.
// It reads at most one row per slot that WaitingWork returns.
func (s *Store) Staged(ctx context.Context, partition int, settleMS int64) ([]Staged, error) {
	work, err := s.stagedWork(ctx, partition, func(w Work) bool { return s.IsSettled(w.Slot, settleMS) })
	if err != nil {
		return nil, err
	}
	found := make([]Staged, len(work))
	for i, w := range work {
		found[i] = s.newStaged(w, settleMS)
	}
	slices.SortStableFunc(found, func(a, b Staged) int { return cmp.Compare(a.SinceMS, b.SinceMS) })
	return found, nil
}

// stagedWork lists the slots of a partition that have unsealed samples and that the filter accepts, oldest first.
func (s *Store) stagedWork(ctx context.Context, partition int, accepts func(Work) bool) ([]Work, error) {
	work, err := s.WaitingWork(ctx, partition)
	if err != nil {
		return nil, err
	}
	var found, unsure []Work
	for _, w := range work {
		switch {
		case !accepts(w):
		case s.head.HasSlotPartition(w.slotPartition()):
			found = append(found, w)
		default:
			unsure = append(unsure, w)
		}
	}
	if unsure, err = listOccupied(ctx, s, engine.Stage, unsure, Work.stagePartition); err != nil {
		return nil, err
	}
	for _, w := range unsure {
		empty, err := s.isEmptyPartition(ctx, engine.Stage, w.stagePartition())
		if err != nil {
			return nil, err
		}
		if !empty {
			found = append(found, w)
		}
	}
	slices.SortFunc(found, func(a, b Work) int { return cmp.Compare(a.Slot, b.Slot) })
	s.follower.releaseDefinitions(partition) // A seal of an empty slot would do the same.
	return found, nil
}

func (s *Store) newStaged(w Work, settleMS int64) Staged {
	out := Staged{
		Work: w, StartMS: s.period.SlotStart(w.Slot), EndMS: s.period.SlotEnd(w.Slot),
		Expired: s.retention.IsOutlived(w.Slot),
	}
	out.SinceMS = out.EndMS + settleMS
	if !w.Since.IsZero() {
		out.SinceMS = max(out.SinceMS, min(w.Since.UnixMilli(), s.opts.Now().UnixMilli()))
	}
	return out
}
