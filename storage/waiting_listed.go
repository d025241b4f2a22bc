package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// stagedSlots returns the slots of a partition whose stage may hold rows, in order.
//
// Invariant: in a store with one process these are all slots that have rows, because the engine lists them. The clock doesn't matter, neither
// the present one nor the one under which the rows were written. In a shared store these are the slots from the low mark to a day from now.
func (s *Store) stagedSlots(ctx context.Context, partition int, lowest int64) ([]int64, error) {
	if !s.opts.Shared {
		l := numberList{t: engine.Stage, field: 0, partition: partition, lowest: lowest, number: s.period.SlotOf}
		return s.listNumbers(ctx, l)
	}
	var slots []int64
	for slot := lowest; slot <= max(lowest, s.period.SlotOf(s.clock.StagedUntil())); slot++ {
		if partition < s.period.OfSlot(slot).Partitions {
			slots = append(slots, slot)
		}
	}
	return slots, nil
}

// pendingHours returns the hours of arrival in which a partition may have pending rows, in order, by the rules of stagedSlots. A shared store has
// the rows that arrived before the mark, by the clock, at the mark.
func (s *Store) pendingHours(ctx context.Context, partition int, lowest int64) ([]int64, error) {
	hourOf := func(ms int64) int64 { return format.FloorDiv(ms, format.HourMS) }
	if !s.opts.Shared {
		l := numberList{t: engine.Pending, field: 1, prefix: format.PendingPartition(partition, 0)[:1], partition: partition, lowest: lowest, number: hourOf}
		return s.listNumbers(ctx, l)
	}
	var hours []int64
	for hour := lowest; hour <= max(lowest, hourOf(s.clock.StagedUntil())); hour++ {
		hours = append(hours, hour)
	}
	return hours, nil
}

// numberList selects the engine's partitions of table stage or pending that belong to a partition of the store. Each is identified by one
// number: its slot or its hour.
type numberList struct {
	t         *engine.Table
	prefix    engine.Key
	partition int
	// field is the index of the number in a partition key.
	field int
	// lowest is the low mark, where a gap without a lower bound starts.
	lowest int64
	// number converts a time, milliseconds, to the number.
	number func(ms int64) int64
}

func (s *Store) listNumbers(ctx context.Context, l numberList) ([]int64, error) {
	found := map[int64]bool{}
	var gaps []engine.Damage
	for key, err := range s.eng.Partitions(ctx, l.t, l.prefix, func(d engine.Damage) { gaps = append(gaps, d) }) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing the partitions of table %s: %w", l.t, err)
		}
		if key[1-l.field].Int == int64(l.partition) {
			found[key[l.field].Int] = true
		}
	}
	for _, d := range gaps {
		for _, n := range s.numbersIn(d, l) {
			found[n] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// numbersIn returns the numbers whose rows a gap in the list may hold. A later scan of these reports the damage. A gap that reaches the end may
// also hold rows that are more than a day ahead, which are reported here, once a day.
func (s *Store) numbersIn(d engine.Damage, l numberList) (list []int64) {
	_, now := s.clock.Times()
	until := (format.FloorDiv(now.UnixMilli(), format.DayMS) + 2) * format.DayMS
	from, to := l.lowest, l.number(until)
	if d.After != nil {
		from = max(from, d.After[l.field].Int)
	}
	if d.Before != nil {
		to = min(to, d.Before[l.field].Int)
	} else {
		s.noteGap(&DamagedRowsError{Table: l.t, From: time.UnixMilli(until), To: time.UnixMilli(format.MaxTime), Err: d.Err, kept: true})
	}
	for _, at := range []engine.Key{d.After, d.Before} {
		if at != nil {
			list = append(list, at[l.field].Int)
		}
	}
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}
