package storage

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
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

// What a partition's row of table low is about: the names of its rows.
const (
	// lowSlot marks the oldest slot whose stage may hold blobs that no pending row names.
	lowSlot = "slot"
	// lowHour marks the oldest hour of arrival that may hold pending rows.
	lowHour = "hour"
)

// hourLag is by how many hours the mark of pending stays behind the clock.
const hourLag = 25

// Work is a slot of a partition whose stage holds, or may hold, samples.
type Work struct {
	Partition int
	Slot      int64
	pending   []pendingRow
}

// Pending returns how many pending rows name the slot, and in which hour the first of them arrived; zero: none does.
func (w Work) Pending() (rows int, since time.Time) {
	for i, p := range w.pending {
		if at := time.UnixMilli(p.hour * format.HourMS); i == 0 || at.Before(since) {
			since = at
		}
	}
	return len(w.pending), since
}

func (w Work) at() head.SlotPartition {
	return head.SlotPartition{Slot: w.Slot, Partition: w.Partition}
}

// pendingRow is a row of table pending, with the hour that its partition key names.
type pendingRow struct {
	hour, slot int64
	row        format.StageRow
}

// Waiting lists the slots of a partition that may hold unsealed samples, oldest first: those with staged rows (see stagedSlots), those that
// pending rows name, and those in the head. In a shared store most of the young slots are empty.
func (s *Store) Waiting(ctx context.Context, partition int) ([]Work, error) {
	lowest, hour, err := s.marks(ctx, partition)
	if err != nil {
		return nil, err
	}
	pending, err := s.pending(ctx, partition, hour)
	if err != nil {
		return nil, err
	}
	slots, err := s.stagedSlots(ctx, partition, lowest)
	if err != nil {
		return nil, err
	}
	return s.workOf(partition, slots, pending), nil
}

// workOf returns the work in slots of a partition, in those that pending rows name, and in those that the head has, the oldest first.
func (s *Store) workOf(partition int, slots []int64, pending []pendingRow) []Work {
	bySlot := map[int64][]pendingRow{}
	for _, slot := range slots {
		bySlot[slot] = nil
	}
	for _, slot := range s.head.Slots(partition) {
		bySlot[slot] = nil // A seal that was cut short may have emptied the stage, and the mark gone past it.
	}
	for _, p := range pending {
		bySlot[p.slot] = append(bySlot[p.slot], p)
	}
	work := make([]Work, 0, len(bySlot))
	for slot, rows := range bySlot {
		work = append(work, Work{Partition: partition, Slot: slot, pending: rows})
	}
	slices.SortFunc(work, func(a, b Work) int { return cmp.Compare(a.Slot, b.Slot) })
	return work
}

// Settled reports whether a slot ended at least settle before now, milliseconds.
func (s *Store) Settled(slot, settleMS int64) bool {
	end := s.period.SlotEnd(slot)
	return end+settleMS < s.opts.Now().UnixMilli() && !s.clock.Settling(end, settleMS)
}

// SlotEnd returns when a slot ends, milliseconds.
func (s *Store) SlotEnd(slot int64) int64 { return s.period.SlotEnd(slot) }

// marks reads a partition's marks; where there are none, all work is younger than the store.
func (s *Store) marks(ctx context.Context, partition int) (slot, hour int64, err error) {
	born := s.created.UnixMilli()
	slot, hour = s.period.SlotOf(born-format.YoungMS), format.FloorDiv(born, format.HourMS)-hourLag
	rows := engine.Range{Table: engine.Low, Partition: lowPartition(partition)}
	// Where the marks can't be read, those that this process read last stand, or none: then it looks
	// everywhere, which takes long and misses nothing.
	rows.Damaged = func(d engine.Damage) {
		s.noteGap(s.gapOf(&rows, d))
		if known, knownSlot, knownHour := s.lowest[partition].get(); known {
			slot, hour = knownSlot, knownHour
		}
	}
	for row, err := range s.eng.Scan(ctx, rows) {
		if err != nil {
			return 0, 0, fmt.Errorf("storage: reading the seal positions of partition %d: %w", partition, err)
		}
		v, n := binary.Varint(row.Value)
		if n <= 0 {
			return 0, 0, fmt.Errorf("storage: the seal position %q of partition %d is invalid", row.Clustering[0].Text, partition)
		}
		switch row.Clustering[0].Text {
		case lowSlot:
			slot = v
		case lowHour:
			hour = v
		}
	}
	s.lowest[partition].set(slot, hour)
	return slot, hour, nil
}

// lowest are a partition's marks as this process read them last.
type lowest struct {
	mu         sync.Mutex
	known      bool
	slot, hour int64
}

func (l *lowest) set(slot, hour int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.slot, l.hour = true, slot, hour
}

func (l *lowest) get() (known bool, slot, hour int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known, l.slot, l.hour
}

// lowestMarks returns a partition's marks, which are read only if they aren't known.
func (s *Store) lowestMarks(ctx context.Context, partition int) (slot, hour int64, err error) {
	if known, slot, hour := s.lowest[partition].get(); known {
		return slot, hour, nil
	}
	return s.marks(ctx, partition)
}

// old reports whether blobs of a slot must stand alone, and need pending rows: it ended more than a day ago, or
// lies below the mark, where a clock that was set back may lead.
func (s *Store) old(slot int64, partition int) bool {
	l := &s.lowest[partition]
	l.mu.Lock()
	known, low := l.known, l.slot
	l.mu.Unlock()
	return s.opts.Now().UnixMilli()-s.period.SlotEnd(slot) > format.DayMS || known && slot < low
}

// pending reads the pending rows of a partition; lowest is the mark of hours.
func (s *Store) pending(ctx context.Context, partition int, lowest int64) ([]pendingRow, error) {
	hours, err := s.pendingHours(ctx, partition, lowest)
	if err != nil {
		return nil, err
	}
	return s.pendingIn(ctx, partition, hours)
}

// pendingIn reads the pending rows of some hours of arrival.
func (s *Store) pendingIn(ctx context.Context, partition int, hours []int64) ([]pendingRow, error) {
	hours, err := occupied(ctx, s, engine.Pending, hours, func(hour int64) engine.Key { return format.PendingPartition(partition, hour) })
	if err != nil {
		return nil, err
	}
	byHour := make([][]pendingRow, len(hours))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opts.seams.workers(s.distance().pendingWorkers))
	for i := range byHour {
		g.Go(panics.AsError("listing pending work", func() (err error) {
			byHour[i], err = s.pendingOf(ctx, partition, hours[i])
			return err
		}))
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(byHour...), nil
}

func (s *Store) pendingOf(ctx context.Context, partition int, hour int64) (rows []pendingRow, err error) {
	err = s.scanAll(ctx, engine.Range{Table: engine.Pending, Partition: format.PendingPartition(partition, hour), KeysOnly: true}, func(row engine.Row) error {
		rows = append(rows, pendingRow{hour: hour, slot: row.Clustering[0].Int, row: format.StageRow{
			Writer: strings.Clone(row.Clustering[1].Text), Seq: row.Clustering[2].Int,
		}})
		return nil
	})
	return rows, err
}

// Advance moves a partition's marks past sealed slots: the mark of slots only over those that are older
// than format.YoungMS and whose stage is empty, the mark of hours only over empty ones more than a day old.
func (s *Store) Advance(ctx context.Context, partition int) error {
	if err := s.clock.MayRemove(); err != nil {
		return err
	}
	slot, hour, err := s.marks(ctx, partition)
	if err != nil {
		return err
	}
	now := s.opts.Now().UnixMilli()
	newSlot, newHour := slot, hour
	for now-s.period.SlotEnd(newSlot) > format.YoungMS {
		if partition >= s.period.OfSlot(newSlot).Partitions {
			newSlot++
			continue
		}
		empty, err := s.empty(ctx, engine.Stage, format.StagePartition(newSlot, partition))
		if err != nil {
			return err
		}
		if !empty {
			break
		}
		if err := s.forgetDefinitions(ctx, newSlot, partition); err != nil {
			return err
		}
		newSlot++
	}
	for newHour < format.FloorDiv(now, format.HourMS)-hourLag {
		empty, err := s.empty(ctx, engine.Pending, format.PendingPartition(partition, newHour))
		if err != nil {
			return err
		}
		if !empty {
			break
		}
		newHour++
	}
	var rows []engine.Mutation
	if newSlot > slot {
		rows = append(rows, lowRow(lowSlot, newSlot))
	}
	if newHour > hour {
		rows = append(rows, lowRow(lowHour, newHour))
	}
	if len(rows) == 0 {
		return nil
	}
	// Before the marks are written: a commit that still sees the old ones decides by the clock, by which
	// the slots between are older than format.YoungMS.
	s.lowest[partition].set(newSlot, newHour)
	return s.eng.Write(ctx, []engine.Batch{{Table: engine.Low, Partition: lowPartition(partition), Mutations: rows}})
}

// sweepMS is how far below the mark of slots Sweep looks.
const sweepMS = 60 * format.DayMS

// Sweep seals what came back below the mark of slots: on a cluster, a row whose delete a replica missed for
// longer than deletes are remembered. It was sealed before, so nothing waits for it, and it only takes room.
// It returns in how many slots there was something.
func (s *Store) Sweep(ctx context.Context, partition int) (found int, err error) {
	if err := s.clock.MayRemove(); err != nil {
		return 0, err
	}
	low, _, err := s.marks(ctx, partition)
	if err != nil {
		return 0, err
	}
	for slot := s.period.SlotOf(s.period.SlotStart(low) - sweepMS); slot < low; slot++ {
		if partition >= s.period.OfSlot(slot).Partitions {
			continue
		}
		empty, err := s.empty(ctx, engine.Stage, format.StagePartition(slot, partition))
		if err != nil {
			return found, err
		}
		if empty {
			continue
		}
		if _, err := s.Seal(ctx, Work{Partition: partition, Slot: slot}); err != nil {
			return found, fmt.Errorf("storage: sealing reappeared rows of slot %d, partition %d: %w", slot, partition, err)
		}
		found++
	}
	return found, nil
}

// lowRow writes a mark with itself as the timestamp, so that the greatest mark wins.
func lowRow(what string, v int64) engine.Mutation {
	return engine.Mutation{Clustering: engine.Key{engine.Text(what)}, Timestamp: v, Value: binary.AppendVarint(nil, v)}
}

func lowPartition(partition int) engine.Key { return engine.Key{engine.Int(int64(partition))} }

func (s *Store) empty(ctx context.Context, t *engine.Table, partition engine.Key) (bool, error) {
	for _, err := range s.eng.Scan(ctx, engine.Range{Table: t, Partition: partition, KeysOnly: true, Limit: 1}) {
		if err != nil {
			return false, fmt.Errorf("storage: looking for rows of %s: %w", t, err)
		}
		return false, nil
	}
	return true, nil
}

// occupied returns those of a list whose partitions may have rows: all, where the engine can't be asked about several at once.
func occupied[T any](ctx context.Context, s *Store, t *engine.Table, list []T, partitionOf func(T) engine.Key) ([]T, error) {
	if s.prober == nil || len(list) < 2 {
		return list, nil
	}
	partitions := make([]engine.Key, len(list))
	for i, x := range list {
		partitions[i] = partitionOf(x)
	}
	found, err := s.prober.Occupied(ctx, t, partitions)
	if err != nil {
		return nil, fmt.Errorf("storage: looking which partitions of %s have rows: %w", t, err)
	}
	var some []T
	for i, x := range list {
		if found[i] {
			some = append(some, x)
		}
	}
	return some, nil
}

// stagePartition is that of the stage's rows of the work.
func (w Work) stagePartition() engine.Key { return format.StagePartition(w.Slot, w.Partition) }
