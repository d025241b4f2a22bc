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

// A seal deletes the staged rows that it has read. On a shared engine these rows reappear if a replica missed the
// deletion for longer than the engine keeps deletion markers. If their samples were deleted by a request in the
// meantime, the samples must not reappear. A seal therefore first records in table defined which rows it has processed:
//
//	sealed rows ─► commit records ─► processed ─► stage rows deleted
//
// A sequence number of a stream always identifies the same content, so all content of a processed row is sealed. If the
// row reappears, it is deleted again without being read or sealed.

const (
	// sealedRunsTTL is the TTL of the records of processed rows. It is longer than the maximum age of slots that
	// SealUnlisted checks.
	sealedRunsTTL = 120 * 24 * time.Hour
	// minReappearTime is the minimum time between the deletion of a row and its reappearance. It is half of the time
	// for which engines keep deletion markers.
	minReappearTime = 30 * time.Minute
)

// sealedRuns holds the sealed sequence numbers of a writer in a slot and partition, as ordered runs.
type sealedRuns []format.SeqRun

func (w sealedRuns) contains(seq int64) bool {
	return slices.ContainsFunc(w, func(r format.SeqRun) bool { return seq >= r.First && seq <= r.Last })
}

// recordSealedRows records that stage rows are sealed.
func (s *Store) recordSealedRows(ctx context.Context, w Work, rows []format.StageRow) error {
	if !s.opts.Shared {
		return nil
	}
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b format.StageRow) int {
		return cmp.Or(strings.Compare(a.Writer, b.Writer), cmp.Compare(a.Seq, b.Seq))
	})
	batch := engine.Batch{
		Table: engine.Defined, Partition: format.StagePartition(w.Slot, w.Partition),
		Expires: s.clock.EngineTime().Add(sealedRunsTTL).Unix(),
	}
	for i := 0; i < len(rows); {
		j := i + 1
		for j < len(rows) && rows[j].Writer == rows[i].Writer && rows[j].Seq == rows[j-1].Seq+1 {
			j++
		}
		last := rows[j-1].Seq
		batch.Mutations = append(batch.Mutations, engine.Mutation{
			// If two runs have the same first number, the longer run wins.
			Clustering: format.SealedRunKey(rows[i].Writer, rows[i].Seq), Timestamp: last,
			Value: format.AppendSealedRun(last),
		})
		i = j
	}
	return s.writeInPieces(ctx, batch)
}

// readSealedRuns reads the sealed sequence numbers of a writer in a slot and partition.
func (s *Store) readSealedRuns(ctx context.Context, w Work, writer string) (runs sealedRuns, err error) {
	for row, err := range s.eng.Scan(ctx, engine.Range{
		Table: engine.Defined, Partition: format.StagePartition(w.Slot, w.Partition),
		From: engine.Key{engine.Text(writer), engine.Int(math.MinInt64)},
		To:   engine.Key{engine.Text(writer), engine.Int(-1)},
	}) {
		if err != nil {
			return nil, fmt.Errorf(
				"storage: reading the seal records of slot %d, partition %d: %w", w.Slot, w.Partition, err,
			)
		}
		run, err := format.ParseSealedRun(row)
		if err != nil {
			s.damage.RecordCorruptRow(engine.Defined, fmt.Errorf(
				"storage: seal record of slot %d, partition %d, writer %x: %w", w.Slot, w.Partition, writer, err))
			continue
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// findSealedRows returns the stage rows that are recorded as sealed. These rows have reappeared, or another seal is
// about to delete them.
func (s *Store) findSealedRows(
	ctx context.Context, w Work, staged []format.StageRow,
) (map[format.StageRow]bool, error) {
	found := map[format.StageRow]bool{}
	if !s.opts.Shared {
		return found, nil
	}
	byWriter := map[string]sealedRuns{}
	for _, r := range staged {
		runs, known := byWriter[r.Writer]
		if !known {
			var err error
			if runs, err = s.readSealedRuns(ctx, w, r.Writer); err != nil {
				return nil, err
			}
			byWriter[r.Writer] = runs
		}
		if runs.contains(r.Seq) {
			found[r] = true
		}
	}
	return found, nil
}

// hasReappeared reports whether a row that the follower has read was already sealed, so that it has reappeared.
func (f *follower) hasReappeared(
	ctx context.Context, c *followedSlot, st *followedStream, r format.StageRow,
) (bool, error) {
	if !f.s.opts.Shared {
		return false, nil
	}
	// During the first minutes of a slot the records needn't be read, because no row can have reappeared yet. The later
	// of the two clocks is used, so that a process with a slow clock doesn't treat rows sealed by other processes as
	// new.
	if _, later := f.s.clock.Times(); later.UnixMilli()-f.s.period.SlotStart(
		c.decoder.SlotPartition().Slot,
	) < minReappearTime.Milliseconds() {
		return false, nil
	}
	if !st.hasWorkedOff {
		runs, err := f.s.readSealedRuns(
			ctx, Work{Slot: c.decoder.SlotPartition().Slot, Partition: c.decoder.SlotPartition().Partition}, r.Writer,
		)
		if err != nil {
			return false, err
		}
		st.hasWorkedOff, st.workedOff = true, runs
	}
	return st.workedOff.contains(r.Seq), nil
}
