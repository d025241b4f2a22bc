package storage

import (
	"cmp"
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/retention"
)

// Grace is how long past its retention a window still stands, and so how late sealing may be: what comes when
// its raw window has a day to live is taken, and is sealed as raw rows until the grace is over.
const Grace = retention.Grace

// Staged is work that there is: a slot of a partition that has settled and holds something unsealed.
type Staged struct {
	Work
	// StartMS and EndMS are what the slot spans, milliseconds.
	StartMS, EndMS int64
	// SinceMS is since when it could have been sealed: when it had settled, or for what came later, when it came, if that is known.
	// Milliseconds.
	SinceMS int64
	// Expired is true if its raw window is past the retention and the grace: sealing only fills up rollups.
	Expired bool
}

// Staged lists the slots of a partition that ended at least settleMS ago and hold something unsealed, what has
// waited longest first. It reads one row of each slot that Waiting names.
func (s *Store) Staged(ctx context.Context, partition int, settleMS int64) ([]Staged, error) {
	work, err := s.stagedOf(ctx, partition, func(w Work) bool { return s.Settled(w.Slot, settleMS) })
	if err != nil {
		return nil, err
	}
	found := make([]Staged, len(work))
	for i, w := range work {
		found[i] = s.staged(w, settleMS)
	}
	slices.SortStableFunc(found, func(a, b Staged) int { return cmp.Compare(a.SinceMS, b.SinceMS) })
	return found, nil
}

// stagedOf lists the slots of a partition that hold something unsealed, the oldest first, of those that may be sealed.
func (s *Store) stagedOf(ctx context.Context, partition int, may func(Work) bool) ([]Work, error) {
	work, err := s.Waiting(ctx, partition)
	if err != nil {
		return nil, err
	}
	var found, unsure []Work
	for _, w := range work {
		switch {
		case !may(w):
		case s.head.Has(w.at()):
			found = append(found, w)
		default:
			unsure = append(unsure, w)
		}
	}
	if unsure, err = occupied(ctx, s, engine.Stage, unsure, Work.stagePartition); err != nil {
		return nil, err
	}
	for _, w := range unsure {
		empty, err := s.empty(ctx, engine.Stage, w.stagePartition())
		if err != nil {
			return nil, err
		}
		if !empty {
			found = append(found, w)
		}
	}
	slices.SortFunc(found, func(a, b Work) int { return cmp.Compare(a.Slot, b.Slot) })
	s.follower.forget(partition) // As a seal of any of the empty slots would.
	return found, nil
}

func (s *Store) staged(w Work, settleMS int64) Staged {
	out := Staged{
		Work: w, StartMS: s.period.SlotStart(w.Slot), EndMS: s.period.SlotEnd(w.Slot), Expired: s.retention.IsOutlived(w.Slot),
	}
	out.SinceMS = out.EndMS + settleMS
	if !w.Since.IsZero() {
		out.SinceMS = max(out.SinceMS, min(w.Since.UnixMilli(), s.opts.Now().UnixMilli()))
	}
	return out
}
