package storage

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// A seal deletes the stage rows that it has read. Where several processes share an engine, a replica that has missed
// that for longer than deletes are remembered brings them back. Samples deleted since must not come back with them, so
// a seal first notes, in rows beside the definitions that the slot's sealed blobs made, which rows it has worked off:
//
//	sealed rows ─► marks ─► worked off ─► stage rows deleted
//
// A number names one content for ever, and all of it is sealed. So a row that is among them is deleted once more, and
// neither read nor sealed.

const (
	// workedOffLife is for how long that is known: for longer than Sweep looks back.
	workedOffLife = 120 * 24 * time.Hour
	// backAfter is how long after it was deleted a row may be back at the earliest; half of what engines remember.
	backAfter = 30 * time.Minute
)

// workedOff are the numbers of a writer in a slot and partition that are sealed: runs from first to last, in order.
type workedOff []format.SeqRun

func (w workedOff) has(seq int64) bool {
	return slices.ContainsFunc(w, func(r format.SeqRun) bool { return seq >= r.First && seq <= r.Last })
}

// noteWorkedOff notes that rows are sealed.
func (s *Store) noteWorkedOff(ctx context.Context, w Work, rows []format.StageRow) error {
	if !s.opts.Shared {
		return nil
	}
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b format.StageRow) int {
		return cmp.Or(strings.Compare(a.Writer, b.Writer), cmp.Compare(a.Seq, b.Seq))
	})
	batch := engine.Batch{Table: engine.Defined, Partition: format.StagePartition(w.Slot, w.Partition), Expires: s.clock.EngineTime().Add(workedOffLife).Unix()}
	for i := 0; i < len(rows); {
		j := i + 1
		for j < len(rows) && rows[j].Writer == rows[i].Writer && rows[j].Seq == rows[j-1].Seq+1 {
			j++
		}
		last := rows[j-1].Seq
		batch.Mutations = append(batch.Mutations, engine.Mutation{
			// Of two that begin alike the longer one wins.
			Clustering: format.SealedRunKey(rows[i].Writer, rows[i].Seq), Timestamp: last,
			Value: format.AppendSealedRun(last),
		})
		i = j
	}
	return s.writeInPieces(ctx, batch)
}

// workedOffOf reads which rows of a writer are sealed.
func (s *Store) workedOffOf(ctx context.Context, w Work, writer string) (runs workedOff, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{
		Table: engine.Defined, Partition: format.StagePartition(w.Slot, w.Partition),
		From: engine.Key{engine.Text(writer), engine.Int(math.MinInt64)}, To: engine.Key{engine.Text(writer), engine.Int(-1)},
	}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the seal records of slot %d, partition %d: %w", w.Slot, w.Partition, err)
		}
		run, err := format.ParseSealedRun(row)
		if err != nil {
			s.damage.Corrupt(engine.Defined, fmt.Errorf("storage: seal record of slot %d, partition %d, writer %x: %w", w.Slot, w.Partition, writer, err))
			continue
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// workedOffAmong returns those of stage rows that are sealed, and came back or are about to be deleted.
func (s *Store) workedOffAmong(ctx context.Context, w Work, staged []format.StageRow) (map[format.StageRow]bool, error) {
	found := map[format.StageRow]bool{}
	if !s.opts.Shared {
		return found, nil
	}
	byWriter := map[string]workedOff{}
	for _, r := range staged {
		runs, known := byWriter[r.Writer]
		if !known {
			var err error
			if runs, err = s.workedOffOf(ctx, w, r.Writer); err != nil {
				return nil, err
			}
			byWriter[r.Writer] = runs
		}
		if runs.has(r.Seq) {
			found[r] = true
		}
	}
	return found, nil
}

// cameBack reports whether a row that is to be followed was sealed, and came back.
func (f *follower) cameBack(ctx context.Context, c *followedSlot, st *followedStream, r format.StageRow) (bool, error) {
	if !f.s.opts.Shared {
		return false, nil
	}
	// A process whose clock is behind takes what others have sealed for new, else.
	if _, later := f.s.clock.Times(); later.UnixMilli()-f.s.period.SlotStart(c.decoder.At().Slot) < backAfter.Milliseconds() {
		return false, nil
	}
	if !st.asked {
		runs, err := f.s.workedOffOf(ctx, Work{Slot: c.decoder.At().Slot, Partition: c.decoder.At().Partition}, r.Writer)
		if err != nil {
			return false, err
		}
		st.asked, st.workedOff = true, runs
	}
	return st.workedOff.has(r.Seq), nil
}
