package storage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// Work is a slot of a partition that has or may have staged samples.
type Work struct {
	Partition int
	Slot      int64
	// Since is the time at which the first staged sample arrived. It is zero unless this time is known and was more
	// than a day after the end of the slot.
	Since time.Time
}

func (w Work) slotPartition() head.SlotPartition {
	return head.SlotPartition{Slot: w.Slot, Partition: w.Partition}
}

// WaitingWork lists the slots of a partition that may have unsealed samples, oldest first. These are the slots in the
// head and the slots that are listed: by table staged in a shared store, otherwise by the engine. In a shared store
// most young slots in the list are empty.
func (s *Store) WaitingWork(ctx context.Context, partition int) ([]Work, error) {
	bySlot := map[int64]time.Time{}
	if s.opts.Shared {
		rows, err := s.listed.readSlots(ctx, partition)
		if err != nil {
			return nil, err
		}
		for slot, list := range rows {
			bySlot[slot] = arrivalOf(list)
		}
	} else {
		slots, err := s.stagedSlots(ctx, partition)
		if err != nil {
			return nil, err
		}
		for _, slot := range slots {
			bySlot[slot] = time.Time{}
		}
	}
	// The head may contain samples of slots that aren't listed: an interrupted seal may have deleted the stage rows,
	// after which the slot may have been unlisted.
	for _, slot := range s.head.Slots(partition) {
		since := s.head.WrittenSince(head.SlotPartition{Slot: slot, Partition: partition})
		if since.Before(bySlot[slot]) {
			since = bySlot[slot]
		}
		bySlot[slot] = since
	}
	work := make([]Work, 0, len(bySlot))
	for slot, since := range bySlot {
		if since.UnixMilli()-s.period.SlotEnd(slot) <= format.DayMS {
			since = time.Time{}
		}
		work = append(work, Work{Partition: partition, Slot: slot, Since: since})
	}
	slices.SortFunc(work, func(a, b Work) int { return cmp.Compare(a.Slot, b.Slot) })
	return work, nil
}

// IsSettled reports whether a slot ended more than settleMS milliseconds ago, according to both this machine's clock
// and the expected time: see CheckedClock.IsSettling.
func (s *Store) IsSettled(slot, settleMS int64) bool {
	end := s.period.SlotEnd(slot)
	return end+settleMS < s.opts.Now().UnixMilli() && !s.clock.IsSettling(end, settleMS)
}

// SlotEnd returns the end of a slot, in milliseconds.
func (s *Store) SlotEnd(slot int64) int64 { return s.period.SlotEnd(slot) }

// isOld reports whether a slot is old. Blobs of an old slot must not depend on earlier blobs, and after they are
// durable their writer must check that the slot is listed. In a store with one process no slot is old: only this
// process seals earlier blobs, and a seal ends the generation.
func (s *Store) isOld(slot int64) bool {
	return s.opts.Shared && s.opts.Now().UnixMilli()-s.period.SlotEnd(slot) > format.DayMS
}

// mayUnlist reports whether a slot ended long enough ago to be unlisted.
func (s *Store) mayUnlist(slot int64) bool {
	return s.opts.Now().UnixMilli()-s.period.SlotEnd(slot) > format.YoungMS
}

// UnlistSlots removes a partition's slots from the list of staged slots if they are older than format.YoungMS and have
// no stage rows. It then removes units without slots. It does nothing in a store that isn't shared.
func (s *Store) UnlistSlots(ctx context.Context, partition int) error {
	if err := s.clock.MayRemove(); err != nil || !s.opts.Shared {
		return err
	}
	units, err := s.listed.readUnits(ctx, partition)
	if err != nil {
		return err
	}
	for unit := range units {
		list := format.StagedPartition(partition, unit)
		rows, err := s.listed.readRows(ctx, engine.Range{Partition: list})
		if err != nil {
			return err
		}
		maps.DeleteFunc(rows, func(slot int64, _ []listedRow) bool { return !s.mayUnlist(slot) })
		empties := func(ctx context.Context, slots []int64) ([]int64, error) {
			return s.listEmpty(
				ctx, engine.Stage, slots, func(slot int64) engine.Key { return format.StagePartition(slot, partition) },
			)
		}
		if err := s.unlistEmpty(ctx, list, rows, empties, func(slots []int64) error {
			for _, slot := range slots { // New blobs of these slots don't depend on earlier ones.
				if err := s.deleteDefinitions(ctx, slot, partition); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	maps.DeleteFunc(units, func(unit int64, _ []listedRow) bool { return !s.mayUnlist(format.LastOfUnit(unit)) })
	empties := func(ctx context.Context, units []int64) ([]int64, error) {
		return s.listEmpty(
			ctx, engine.Staged, units, func(unit int64) engine.Key { return format.StagedPartition(partition, unit) },
		)
	}
	return s.unlistEmpty(ctx, format.StagedUnits(partition), units, empties, func([]int64) error { return nil })
}

// unlistEmpty marks the empty slots or units in rows as closing. It then calls before with the numbers of the slots or
// units that are still empty, and unlists these.
func (s *Store) unlistEmpty(
	ctx context.Context, list engine.Key, rows map[int64][]listedRow,
	empties func(context.Context, []int64) ([]int64, error), before func([]int64) error,
) error {
	none, err := empties(ctx, slices.Sorted(maps.Keys(rows)))
	if err != nil || len(none) == 0 {
		return err
	}
	maps.DeleteFunc(rows, func(number int64, _ []listedRow) bool { return !slices.Contains(none, number) })
	return s.unlistStaged(ctx, list, rows, func(ctx context.Context, numbers []int64) ([]int64, error) {
		none, err := empties(ctx, numbers)
		if err != nil {
			return nil, err
		}
		return none, before(none)
	})
}

// listEmpty returns the numbers in list whose engine partitions are empty. list must be sorted.
func (s *Store) listEmpty(
	ctx context.Context, t *engine.Table, list []int64, partitionOf func(int64) engine.Key,
) (none []int64, err error) {
	some, err := listOccupied(ctx, s, t, list, partitionOf)
	if err != nil {
		return nil, err
	}
	for _, n := range list {
		empty := true
		if _, may := slices.BinarySearch(some, n); may {
			if empty, err = s.isEmptyPartition(ctx, t, partitionOf(n)); err != nil {
				return nil, err
			}
		}
		if empty {
			none = append(none, n)
		}
	}
	return none, nil
}

// maxUnlistedAgeMS is the maximum age of slots that SealUnlisted checks.
const maxUnlistedAgeMS = 60 * format.DayMS

// SealUnlisted seals staged rows of slots that aren't listed and are at most maxUnlistedAgeMS old. It returns the
// number of slots that it sealed. On a cluster, unlisted rows exist if a replica missed their deletion for longer than
// the cluster keeps deletion markers, or if a write failed.
func (s *Store) SealUnlisted(ctx context.Context, partition int) (found int, err error) {
	if err := s.clock.MayRemove(); err != nil {
		return 0, err
	}
	work, err := s.WaitingWork(ctx, partition)
	if err != nil {
		return 0, err
	}
	listed := map[int64]bool{}
	for _, w := range work {
		listed[w.Slot] = true
	}
	var slots []int64
	for slot := s.period.SlotOf(s.opts.Now().UnixMilli() - maxUnlistedAgeMS); s.mayUnlist(slot); slot++ {
		if partition < s.period.OfSlot(slot).Partitions && !listed[slot] {
			slots = append(slots, slot)
		}
	}
	empties, err := s.listEmpty(
		ctx, engine.Stage, slots, func(slot int64) engine.Key { return format.StagePartition(slot, partition) },
	)
	if err != nil {
		return 0, err
	}
	for _, slot := range slots {
		if _, empty := slices.BinarySearch(empties, slot); empty {
			continue
		}
		if _, err := s.Seal(ctx, Work{Partition: partition, Slot: slot}); err != nil {
			return found, fmt.Errorf(
				"storage: sealing reappeared rows of slot %d, partition %d: %w", slot, partition, err,
			)
		}
		found++
	}
	return found, nil
}

func (s *Store) isEmptyPartition(ctx context.Context, t *engine.Table, partition engine.Key) (bool, error) {
	for _, err := range s.eng.Scan(ctx, engine.Range{Table: t, Partition: partition, KeysOnly: true, Limit: 1}) {
		if err != nil {
			return false, fmt.Errorf("storage: looking for rows of table %s: %w", t, err)
		}
		return false, nil
	}
	return true, nil
}

// listOccupied returns the items in list whose engine partitions may have rows. It returns all items if the engine
// can't probe multiple partitions at once.
func listOccupied[T any](
	ctx context.Context, s *Store, t *engine.Table, list []T, partitionOf func(T) engine.Key,
) ([]T, error) {
	if s.prober == nil || len(list) < 2 {
		return list, nil
	}
	partitions := make([]engine.Key, len(list))
	for i, x := range list {
		partitions[i] = partitionOf(x)
	}
	found, err := s.prober.Occupied(ctx, t, partitions)
	if err != nil {
		return nil, fmt.Errorf("storage: checking which partitions of table %s have rows: %w", t, err)
	}
	var some []T
	for i, x := range list {
		if found[i] {
			some = append(some, x)
		}
	}
	return some, nil
}

// stagePartition returns the partition key of the slot's stage rows.
func (w Work) stagePartition() engine.Key { return format.StagePartition(w.Slot, w.Partition) }
