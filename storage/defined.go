package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// A blob depends on earlier blobs that define its series. When a process seals and deletes blobs of another writer, it
// first writes the definitions in these blobs to table defined, as blobs with the same numbers and without samples.
// UnlistSlots deletes the definitions when the slot has no stage rows and can't get new ones
// (design/several-processes.md).

// saveDefinitions writes the definitions contained in rows to table defined. It is called before rows are deleted,
// because later blobs of other writers may depend on the definitions. now is the start of the seal. If the slot was
// already older than format.YoungMS then, saveDefinitions writes nothing, because writers no longer stage blobs in this
// slot that depend on earlier blobs. In a younger slot, such a blob may arrive while the seal runs.
func (s *Store) saveDefinitions(
	ctx context.Context, w Work, now time.Time, gens []*head.Generation, rows []format.StageRow,
) error {
	if !s.opts.Shared || now.UnixMilli()-s.period.SlotEnd(w.Slot) > format.YoungMS {
		return nil
	}
	gone := make(map[format.StageRow]bool, len(rows))
	for _, r := range rows {
		gone[r] = true
	}
	at := format.StagePartition(w.Slot, w.Partition)
	var batches []engine.Batch
	for _, g := range gens {
		for row, blob := range g.EachDefinition(gone) {
			batches = append(batches, engine.Batch{Table: engine.Defined, Partition: at, Mutations: []engine.Mutation{{
				Clustering: row.Key(), Timestamp: format.StageTimestamp, Value: blob,
			}}})
		}
	}
	if len(batches) == 0 {
		return nil
	}
	// The slot must be listed, so that UnlistSlots finds and deletes the definitions. The slot may be unlisted: a
	// follower may have read a blob whose writer failed before it listed the slot.
	if err := s.listed.ensureListed(ctx, []head.SlotPartition{w.slotPartition()}); err != nil {
		return err
	}
	if err := s.eng.Write(ctx, batches); err != nil {
		return fmt.Errorf(
			"storage: storing the series definitions of slot %d, partition %d: %w", w.Slot, w.Partition, err,
		)
	}
	return nil
}

// readDefinitions reads the definitions of the decoder's epoch in blobs before the given row. It reads the staging log
// first and then table defined, so that it also finds the definitions of blobs that are sealed concurrently.
func (s *Store) readDefinitions(ctx context.Context, d *head.Decoder, before format.StageRow) error {
	at := d.SlotPartition()
	for _, table := range []*engine.Table{engine.Stage, engine.Defined} {
		if table == engine.Defined && !s.opts.Shared {
			continue
		}
		for row, err := range s.eng.Scan(ctx, engine.Range{
			Table: table, Partition: format.StagePartition(at.Slot, at.Partition),
			From: engine.Key{engine.Text(before.Writer), engine.Int(d.Epoch())},
			To:   engine.Key{engine.Text(before.Writer), engine.Int(before.Seq - 1)},
		}) {
			if errors.Is(err, engine.ErrCorrupt) {
				return fmt.Errorf("%w: %w", head.ErrDependsOnCorrupt, err)
			}
			if err != nil {
				return fmt.Errorf(
					"storage: looking for series definitions in table %s of slot %d, partition %d: %w", table, at.Slot,
					at.Partition, err,
				)
			}
			d.AddDefinitions(row.Value)
		}
	}
	return nil
}

// deleteDefinitions deletes the definitions of a slot without stage rows. The caller must ensure that no acknowledged
// blob can depend on them.
func (s *Store) deleteDefinitions(ctx context.Context, slot int64, partition int) error {
	if !s.opts.Shared {
		return nil
	}
	rows, err := s.listStageRows(ctx, engine.Defined, Work{Slot: slot, Partition: partition})
	if err != nil {
		return err
	}
	// Rows with a negative number record processed stage rows. They are kept.
	rows = slices.DeleteFunc(rows, func(r format.StageRow) bool { return r.Seq < 0 })
	return s.deleteRows(ctx, engine.Defined, format.StagePartition(slot, partition), rows)
}

// listStageRows lists the rows of a slot in table stage or defined.
func (s *Store) listStageRows(ctx context.Context, t *engine.Table, w Work) (rows []format.StageRow, err error) {
	for row, err := range s.eng.Scan(
		ctx, engine.Range{Table: t, Partition: format.StagePartition(w.Slot, w.Partition), KeysOnly: true},
	) {
		if err != nil {
			return nil, fmt.Errorf(
				"storage: listing rows of table %s of slot %d, partition %d: %w", t, w.Slot, w.Partition, err,
			)
		}
		r := format.StageRow{Writer: row.Clustering[0].Text, Seq: row.Clustering[1].Int}
		if n := len(rows); n > 0 && rows[n-1].Writer == r.Writer {
			r.Writer = rows[n-1].Writer // Thousands of rows share this string.
		} else {
			r.Writer = strings.Clone(r.Writer)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// isUnreadable reports whether err is caused by a blob's bytes, not by the engine.
func isUnreadable(err error) bool {
	return errors.Is(err, format.ErrMalformedBlob) || errors.Is(err, format.ErrMalformedExemplar) ||
		errors.Is(err, format.ErrMalformedLabels) || errors.Is(err, chunk.ErrCorrupt)
}
