package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// stagedSlots returns the slots of a partition that have stage rows, in order, in a store with one process.
//
// Invariant: the result contains all slots that have rows, because the engine lists them. It depends neither on the
// current clock nor on the clock at the time the rows were written.
func (s *Store) stagedSlots(ctx context.Context, partition int) ([]int64, error) {
	found := map[int64]bool{}
	var gaps []engine.Damage
	for key, err := range s.eng.Partitions(ctx, engine.Stage, nil, func(d engine.Damage) { gaps = append(gaps, d) }) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing the partitions of table %s: %w", engine.Stage, err)
		}
		if key[1].Int == int64(partition) {
			found[key[0].Int] = true
		}
	}
	for _, d := range gaps {
		for _, slot := range s.slotsInGap(d) {
			found[slot] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// slotsInGap returns the slots whose rows may be in a gap of the list. A later scan of these slots reports the damage.
// Slots older than maxUnlistedAgeMS or more than a day in the future are returned only if they are at one of the ends
// of the gap. The rest of the gap is reported here, once per day.
func (s *Store) slotsInGap(d engine.Damage) (list []int64) {
	earlier, later := s.clock.Times()
	since := format.FloorDiv(earlier.UnixMilli()-maxUnlistedAgeMS, format.DayMS) * format.DayMS
	until := (format.FloorDiv(later.UnixMilli(), format.DayMS) + 2) * format.DayMS
	from, to := s.period.SlotOf(since), s.period.SlotOf(until)
	first, last := int64(-format.MaxTime), int64(format.MaxTime) // between the slots at the gap's ends
	if d.After != nil {
		from, first = max(from, d.After[0].Int), s.period.SlotEnd(d.After[0].Int)
	}
	if d.Before != nil {
		to, last = min(to, d.Before[0].Int), s.period.SlotStart(d.Before[0].Int)
	}
	note := func(from, to int64) {
		if from < to {
			s.damage.Record(&damage.DamagedRowsError{
				Table: engine.Stage, From: time.UnixMilli(from), To: time.UnixMilli(to), Err: d.Err, Kept: true,
			})
		}
	}
	note(first, min(since, last))
	note(max(until, first), last)
	for _, at := range []engine.Key{d.After, d.Before} {
		if at != nil {
			list = append(list, at[0].Int)
		}
	}
	for slot := from; slot <= to; slot++ {
		list = append(list, slot)
	}
	return list
}
