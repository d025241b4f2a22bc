package storage

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/format"
)

// nearHours is how many hours around the clock StagedLately looks for pending rows: those of processes whose clocks are right.
const nearHours = 2

// StagedLately is Staged for whoever asks every minute, and asks Staged now and then. Over a shared engine it lists slots that the last
// list had, those of the head, where samples of this process and of those that it follows are, and those that pending rows of the last hours
// name. It leaves out others of which only the engine has rows: of a commit whose answer was an error, or of a process whose clock is off by
// hours.
func (s *Store) StagedLately(ctx context.Context, partition int, settleMS int64) ([]Staged, error) {
	return s.stagedIfSettled(ctx, partition, settleMS, s.follower.mode == followsOthers)
}

// waitedFor are the slots of a partition that the last list had, and the hours of arrival of their pending rows.
type waitedFor struct {
	mu           sync.Mutex
	slots, hours map[int64]bool
}

func (w *waitedFor) set(work []Work) {
	slots, hours := map[int64]bool{}, map[int64]bool{}
	for i := range work {
		slots[work[i].Slot] = true
		for _, p := range work[i].pending {
			hours[p.hour] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots, w.hours = slots, hours
}

func (w *waitedFor) get() (slots, hours map[int64]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slots, w.hours
}

// waitingLately is Waiting for StagedLately.
func (s *Store) waitingLately(ctx context.Context, partition int) ([]Work, error) {
	slots, hours := s.waited[partition].get()
	earlier, later := s.clock.Times()
	from := format.FloorDiv(earlier.UnixMilli(), format.HourMS) - nearHours
	to := format.FloorDiv(later.UnixMilli(), format.HourMS) + nearHours
	look := slices.Collect(maps.Keys(hours))
	for hour := from; hour <= to; hour++ {
		if !hours[hour] {
			look = append(look, hour)
		}
	}
	pending, err := s.pendingIn(ctx, partition, look)
	if err != nil {
		return nil, err
	}
	return s.workOf(partition, slices.Collect(maps.Keys(slots)), pending), nil
}
