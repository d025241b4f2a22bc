package storage

import (
	"context"
	"math"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// MaxTime bounds timestamps on both sides, milliseconds.
const MaxTime = format.MaxTime

// SlotWidth returns how long the slot is that a timestamp lies in.
func (s *Store) SlotWidth(t int64) time.Duration {
	return time.Duration(s.period.At(t).SlotMS) * time.Millisecond
}

// Oldest returns the start of the first slot of which anything sealed is kept of a tenant, at any resolution,
// milliseconds; math.MaxInt64 if nothing is.
func (s *Store) Oldest(ctx context.Context, tenant string) (int64, error) {
	oldest := int64(math.MaxInt64)
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		windows, err := s.knownWindows(ctx, tenant, format.FirstWindow(res), format.LastWindow(res), s.noteGap)
		if err != nil {
			return 0, err
		}
		for _, w := range windows {
			slot, ok, err := s.firstSlot(ctx, tenant, w)
			if err != nil {
				return 0, err
			}
			if ok {
				oldest = min(oldest, s.period.SlotStart(slot))
				break
			}
		}
	}
	return oldest, nil
}

// firstSlot returns the first sealed slot of a window.
func (s *Store) firstSlot(ctx context.Context, tenant string, window int64) (slot int64, ok bool, err error) {
	if m, ok, err := s.recalledMarks(ctx, tenant, window); ok || err != nil {
		if err != nil || len(m.slots) == 0 {
			return 0, false, err
		}
		return m.slots[0], true, nil
	}
	for row, err := range s.eng.Scan(ctx, engine.Range{
		Table: engine.Sealed, Partition: format.SealedPartition(window, tenant), KeysOnly: true, Limit: 1,
	}) {
		if err != nil {
			return 0, false, err
		}
		return row.Clustering[0].Int, true, nil
	}
	return 0, false, nil
}
