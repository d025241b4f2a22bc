package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/membership"
)

// loadSlot reads the staged rows of a slot for which want returns true. It returns their samples as a generation that
// isn't part of the head, or nil if there are no such rows. A corrupt blob is reported, counted and kept in the staging
// log. Blobs that depend on a corrupt blob are also kept, as are blobs that depend on a missing blob which may still
// appear.
func (s *Store) loadSlot(ctx context.Context, w Work, want func(format.StageRow) bool) (*head.Generation, error) {
	l := newLoader(s, w)
	for row, err := range s.eng.Scan(ctx, s.stageRange(w, func() { l.missed = true })) {
		if err != nil {
			return nil, fmt.Errorf(
				"storage: reading the staging log of slot %d, partition %d: %w", w.Slot, w.Partition, err,
			)
		}
		r := format.StageRowOf(row)
		if !want(r) {
			continue
		}
		if err := l.addBlob(ctx, r, row.Value); isUnreadable(err) {
			l.of.MarkDamaged()
			s.damage.RecordStaged(damage.StagedAt{Slot: w.Slot, Partition: w.Partition, Row: r}, err)
			continue
		} else if errors.Is(err, head.ErrUndefined) {
			continue
		} else if err != nil {
			return nil, err
		}
		l.gen.AddRow(r)
	}
	s.countOrphans(l.lost, w.Slot, w.Partition)
	l.gen.FinishLoading()
	if l.gen.IsEmpty() {
		return nil, nil
	}
	return l.gen, nil
}

// loader reads the streams of a slot and partition, one writer after the other. It reads a writer's blobs in order.
type loader struct {
	s *Store
	*head.Decoder
	gen    *head.Generation
	writer string
	of     *head.Stream // the writer's stream
	lost   int          // samples of undefined series
	missed bool         // rows before the next one are unreadable
}

func newLoader(s *Store, w Work) *loader {
	return &loader{
		s: s, Decoder: head.NewDecoder(s.head, w.slotPartition(), s.readDefinitions),
		gen: head.NewGeneration(w.slotPartition(), s.period.SlotStart(w.Slot)),
	}
}

// addBlob adds a blob's samples to the generation. Samples that depend on a blob that was never durable are skipped,
// because they were never acknowledged.
func (l *loader) addBlob(ctx context.Context, r format.StageRow, b []byte) error {
	if l.of == nil || l.writer != r.Writer {
		l.writer, l.of = r.Writer, &head.Stream{}
	}
	if l.missed {
		l.of.MarkDamaged()
		l.missed = false
	}
	at := l.SlotPartition()
	err := l.Decode(ctx, l.of, r, b, func() bool {
		return l.s.unexplained.mayWait(l.s, damage.StagedAt{Slot: at.Slot, Partition: at.Partition, Row: r})
	})
	if err != nil {
		return err
	}
	l.AddTo(l.gen)
	if l.Orphans() > 0 && l.of.IsDamaged() {
		return head.ErrDependsOnCorrupt
	}
	l.lost += l.Orphans()
	if l.s.opts.Shared {
		l.CopyDefinitionsTo(l.gen, r)
	}
	l.of.PruneEpochs()
	return nil
}

// missingDependencies holds the stage rows of other processes that depend on missing rows, each with the time at which
// it was first read. Because the rows of a commit become visible in any order, such a row must not be processed until
// its commit certainly wasn't acknowledged.
type missingDependencies struct {
	mu    sync.Mutex
	since map[damage.StagedAt]time.Time
}

// mayWait reports whether missing rows that a row depends on may still appear.
func (u *missingDependencies) mayWait(s *Store, at damage.StagedAt) bool {
	if !s.opts.Shared || at.Row.Writer == s.writer { // Sealing waits for the commits of its own process.
		return false
	}
	now := s.opts.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	since, ok := u.since[at]
	if ok {
		return now.Sub(since) <= gapTTL
	}
	maps.DeleteFunc(
		u.since, func(_ damage.StagedAt, since time.Time) bool { return now.Sub(since).Abs() > membership.TailTTL },
	)
	if u.since == nil {
		u.since = map[damage.StagedAt]time.Time{}
	}
	u.since[at] = now
	return true
}

// stageRange returns the range of all stage rows of a slot. Scans call missed for unreadable rows, before they return
// the next readable row.
func (s *Store) stageRange(w Work, missed func()) engine.Range {
	rows := engine.Range{Table: engine.Stage, Partition: format.StagePartition(w.Slot, w.Partition)}
	rows.Damaged = func(d engine.Damage) {
		at := damage.StagedAt{Slot: w.Slot, Partition: w.Partition}
		if d.After != nil {
			at.Row = format.StageRow{Writer: d.After[0].Text, Seq: d.After[1].Int + 1}
		}
		s.damage.RecordStagedRows(at, &rows, d)
		missed()
	}
	return rows
}

// countOrphans counts and logs samples of undefined series. Either the blob that defines the series was never durable,
// so that the samples were never acknowledged, or both blobs are already sealed.
func (s *Store) countOrphans(samples int, slot int64, partition int) {
	if samples > 0 {
		s.metrics.orphans.Add(float64(samples))
		s.opts.Logger.Warn(
			"skipped samples of writes that were never acknowledged", "samples", samples, "slot", slot, "partition",
			partition,
		)
	}
}
