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

// A blob leans on the blobs before it that define its series. When another process than the writer seals
// and deletes those, it first writes what they defined to table defined: blobs of the same numbers without
// samples. The rows go when the slot's stage is empty for good, which Unlist finds (design/several-processes.md).

// keepDefinitions writes what the rows about to be deleted defined, where other writers' later blobs may
// lean on it. Blobs of older slots stand alone; but one may have come since now, when the sealing began.
func (s *Store) keepDefinitions(ctx context.Context, w Work, now time.Time, gens []*head.Generation, rows []format.StageRow) error {
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
	// Unlist forgets them. A follower may have found a blob whose writer failed before the slot was listed.
	if err := s.listed.ensure(ctx, []head.SlotPartition{w.at()}); err != nil {
		return err
	}
	if err := s.eng.Write(ctx, batches); err != nil {
		return fmt.Errorf("storage: storing the series definitions of slot %d, partition %d: %w", w.Slot, w.Partition, err)
	}
	return nil
}

// learn looks up what the earlier blobs of the decoder's epoch defined: in the stage, and then those that are
// sealed, meanwhile too, in table defined.
func (s *Store) learn(ctx context.Context, d *head.Decoder, before format.StageRow) error {
	at := d.At()
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
				return fmt.Errorf("%w: %w", head.ErrLeansOnCorrupt, err)
			}
			if err != nil {
				return fmt.Errorf("storage: looking for series definitions in table %s of slot %d, partition %d: %w", table, at.Slot, at.Partition, err)
			}
			d.LearnFrom(row.Value)
		}
	}
	return nil
}

// forgetDefinitions deletes the definitions of a slot whose stage was found empty when no acknowledged blob
// could lean on them any more.
func (s *Store) forgetDefinitions(ctx context.Context, slot int64, partition int) error {
	if !s.opts.Shared {
		return nil
	}
	rows, err := s.listRows(ctx, engine.Defined, Work{Slot: slot, Partition: partition})
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r format.StageRow) bool { return r.Seq < 0 }) // The notes of worked-off rows stay.
	return s.deleteRows(ctx, engine.Defined, format.StagePartition(slot, partition), rows)
}

// listRows lists the rows of a slot in stage or defined.
func (s *Store) listRows(ctx context.Context, t *engine.Table, w Work) (rows []format.StageRow, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: t, Partition: format.StagePartition(w.Slot, w.Partition), KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing rows of table %s of slot %d, partition %d: %w", t, w.Slot, w.Partition, err)
		}
		r := format.StageRow{Writer: row.Clustering[0].Text, Seq: row.Clustering[1].Int}
		if n := len(rows); n > 0 && rows[n-1].Writer == r.Writer {
			r.Writer = rows[n-1].Writer // Thousands of rows share it.
		} else {
			r.Writer = strings.Clone(r.Writer)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// isUnreadable reports whether err is about a blob's bytes, and not about the engine.
func isUnreadable(err error) bool {
	return errors.Is(err, format.ErrMalformedBlob) || errors.Is(err, format.ErrMalformedExemplar) || errors.Is(err, format.ErrMalformedLabels) || errors.Is(err, chunk.ErrCorrupt)
}
