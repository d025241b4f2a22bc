package storage

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/panics"
)

// stagedList is the list of slots that may have blobs in the staging log of a shared store. It consists of rows for
// slots, which are grouped into units, and rows for these units.
//
//	writer: blobs, and rows of young slots that it hasn't listed ─► clock ─┬─► young: acknowledged
//	                                                                       └─► old: reads the rows; none, or closing: writes one ─► acknowledged
//	sealer: of old slots: closing ─► lists the stage rows ─► empty: deletes exactly the rows that it found
//
// Each row contains a generation in its key that is never reused, so that no write is conditional. TestStagingModel
// checks that the protocol is correct, and that it becomes incorrect if any of its rules is removed.
// design/several-processes.md explains the rules.
type stagedList struct {
	eng     engine.Engine
	now     func() time.Time
	isOld   func(slot int64) bool
	workers int

	mu sync.Mutex
	// known caches the young slots and their units that this process has listed.
	known map[listedItem]bool
}

// maxListedItems is the size of known above which slots that have become old are removed from it.
const maxListedItems = 4096

// listedItem is a slot of a partition, or a unit of slots.
type listedItem struct {
	partition int
	isUnit    bool
	number    int64
}

// listedRow is a row that lists a slot or a unit. A writer treats a closing row as missing.
type listedRow struct {
	generation string
	isClosing  bool
	since      time.Time
}

func newStagedList(s *Store) *stagedList {
	if !s.opts.Shared {
		return nil
	}
	return &stagedList{
		eng: s.eng, now: s.opts.Now, isOld: s.isOld, workers: s.opts.seams.workers(s.workSizes().listWorkers),
		known: map[listedItem]bool{},
	}
}

// partitionKey returns the key of the engine partition that contains the rows of an item.
func (i listedItem) partitionKey() engine.Key {
	if i.isUnit {
		return format.StagedUnits(i.partition)
	}
	return format.StagedPartition(i.partition, format.UnitOf(i.number))
}

// unitOf returns the unit of a slot.
func (i listedItem) unitOf() listedItem {
	return listedItem{partition: i.partition, isUnit: true, number: format.UnitOf(i.number)}
}

// newRow returns a batch with a new row that lists an item.
func (l *stagedList) newRow(i listedItem) engine.Batch {
	return engine.Batch{Table: engine.Staged, Partition: i.partitionKey(), Mutations: []engine.Mutation{{
		Clustering: format.StagedKey(i.number, newID(), format.StagedListed), Timestamp: format.StageTimestamp,
		Value: binary.AppendVarint(nil, l.now().UnixMilli()),
	}}}
}

// addRows appends rows for the young slots of a commit, and for their units, unless this process has already listed
// them. It returns the added items. Old slots are listed after their blobs are durable: see ensureListed.
func (l *stagedList) addRows(
	rows []engine.Batch, streams []*head.Generation,
) (with []engine.Batch, added []listedItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range streams {
		at := g.SlotPartition()
		slot := listedItem{partition: at.Partition, number: at.Slot}
		if l.known[slot] || l.isOld(at.Slot) {
			continue
		}
		added = append(added, slot)
		if unit := slot.unitOf(); !l.known[unit] && !slices.Contains(added, unit) {
			added = append(added, unit)
		}
	}
	for _, i := range added {
		rows = append(rows, l.newRow(i))
	}
	return rows, added
}

// recordListed records that the rows that list items are durable. It must not be called if the outcome of the write is
// unknown, because the rows may never become visible.
func (l *stagedList) recordListed(added []listedItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range added {
		l.known[i] = true
	}
	if len(l.known) <= maxListedItems {
		return
	}
	for i := range l.known {
		if !i.isUnit && l.isOld(i.number) || i.isUnit && l.isOld(format.LastOfUnit(i.number)) {
			delete(l.known, i)
		}
	}
	if len(l.known) > maxListedItems {
		clear(l.known) // The items will be listed again.
	}
}

// ensureListed returns once each slot and its unit are listed by a row that isn't closing. The slots' blobs must be
// durable. ensureListed doesn't use known, because a sealer may have unlisted a slot that is cached there.
func (l *stagedList) ensureListed(ctx context.Context, slots []head.SlotPartition) error {
	if len(slots) == 0 {
		return nil
	}
	items, units := make([]listedItem, 0, len(slots)), map[listedItem]bool{}
	for _, at := range slots {
		items = append(items, listedItem{partition: at.Partition, number: at.Slot})
		units[items[len(items)-1].unitOf()] = true
	}
	if err := l.listMissing(ctx, items); err != nil {
		return err
	}
	// Units are read after the slots are listed, because a sealer may have found a unit empty and unlisted it before.
	return l.listMissing(ctx, slices.Collect(maps.Keys(units)))
}

// listMissing writes a row for each item that has no row, or only closing rows.
func (l *stagedList) listMissing(ctx context.Context, items []listedItem) error {
	type listName struct {
		partition int
		unit      int64
		isUnit    bool
	}
	lists := map[listName][]listedItem{}
	for _, i := range items {
		name := listName{partition: i.partition, isUnit: i.isUnit}
		if !i.isUnit {
			name.unit = format.UnitOf(i.number)
		}
		lists[name] = append(lists[name], i)
	}
	var mu sync.Mutex
	var rows []engine.Batch
	g, scanning := errgroup.WithContext(ctx)
	g.SetLimit(l.workers)
	for _, list := range lists {
		g.Go(panics.WrapError("reading the list of staged slots", func() error {
			slices.SortFunc(list, func(a, b listedItem) int { return cmp.Compare(a.number, b.number) })
			found, err := l.readRows(scanning, engine.Range{
				Partition: list[0].partitionKey(), From: engine.Key{engine.Int(list[0].number)},
				To: engine.Key{engine.Int(list[len(list)-1].number)},
			})
			mu.Lock()
			defer mu.Unlock()
			for _, i := range list {
				if !slices.ContainsFunc(found[i.number], func(r listedRow) bool { return !r.isClosing }) {
					rows = append(rows, l.newRow(i))
				}
			}
			return err
		}))
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return l.eng.Write(ctx, rows)
}

// readRows reads the rows in a range of a list, by slot or unit number.
func (l *stagedList) readRows(ctx context.Context, r engine.Range) (map[int64][]listedRow, error) {
	r.Table = engine.Staged
	found := map[int64][]listedRow{}
	for row, err := range l.eng.Scan(ctx, r) {
		if err != nil {
			return nil, fmt.Errorf(
				"storage: reading the list of staged slots of partition %d: %w", r.Partition[0].Int, err,
			)
		}
		number, generation := row.Clustering[0].Int, row.Clustering[1].Text
		isClosing := row.Clustering[2].Int == format.StagedClosing
		list := found[number]
		if n := len(list); isClosing && n > 0 && list[n-1].generation == generation {
			list[n-1].isClosing = true
			continue
		}
		since, _ := binary.Varint(row.Value)
		found[number] = append(
			list, listedRow{generation: strings.Clone(generation), isClosing: isClosing, since: time.UnixMilli(since)},
		)
	}
	return found, nil
}

// readUnits reads the listed units of a partition.
func (l *stagedList) readUnits(ctx context.Context, partition int) (map[int64][]listedRow, error) {
	return l.readRows(ctx, engine.Range{Partition: format.StagedUnits(partition)})
}

// readSlots reads the listed slots of a partition.
func (l *stagedList) readSlots(ctx context.Context, partition int) (map[int64][]listedRow, error) {
	units, err := l.readUnits(ctx, partition)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	all := map[int64][]listedRow{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(l.workers)
	for unit := range units {
		g.Go(panics.WrapError("listing staged slots", func() error {
			found, err := l.readRows(ctx, engine.Range{Partition: format.StagedPartition(partition, unit)})
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, found)
			return err
		}))
	}
	return all, g.Wait()
}

// arrivalOf returns the time at which the slot's first blob arrived, according to the rows that list the slot.
func arrivalOf(rows []listedRow) time.Time {
	return slices.MinFunc(rows, func(a, b listedRow) int { return a.since.Compare(b.since) }).since
}
