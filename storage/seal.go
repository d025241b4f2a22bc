package storage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
)

// sealWriteBytes is about how much one write of the sealer holds.
const sealWriteBytes = 2 << 20

// SealStats says what a seal did.
type SealStats struct {
	// Blobs is how many stage rows were worked off; 0: there was nothing to do. Left is how many can't be read, and stay.
	Blobs, Left int
	// Series and Samples were written, in Chunks chunks of Bytes bytes.
	Series, Samples, Chunks int
	// Exemplars were written.
	Exemplars int
	Bytes     int64
	// Repaired is for how many tenants samples came after the slot had been sealed, so that its rollups were made anew.
	Repaired int
}

// Seal turns what the stage holds of a slot and partition into sealed rows:
//
//	close the generation ─► list the stage rows ─► chunks, labels, catalog ─► mark ─► delete what was read
//
// Every step may be repeated; after an error the next Seal begins anew. Two seals of one slot, even by two
// processes, end in the same rows.
func (s *Store) Seal(ctx context.Context, w Work) (stats SealStats, err error) {
	if err := s.Ready(); err != nil {
		return stats, fmt.Errorf("%w: %w", errNotRebuilt, err)
	}
	if err := s.maySeal(); err != nil {
		return stats, err
	}
	s.sealMu[w.Partition].Lock()
	defer s.sealMu[w.Partition].Unlock()
	begin, now := time.Now(), s.opts.Now()
	gens, upTo := s.closeCell(w)
	if empty, err := s.empty(ctx, engine.Stage, stagePartition(w.Slot, w.Partition)); err != nil {
		return stats, err
	} else if empty && len(w.pending) == 0 {
		// What the head still has of the slot was sealed: by another process, or by a seal that didn't learn
		// that its last write had succeeded.
		s.release(w, gens)
		return stats, nil
	}
	g, err := s.gatherUndeleted(ctx, w, gens, upTo)
	if err != nil {
		return stats, err
	}
	if len(g.rows) > 0 || slices.ContainsFunc(g.gens, (*generation).partial) {
		sealer := newSealer(ctx, s, w)
		sealer.deletes, sealer.begun = g.deletes, now
		if err := sealer.run(g.gens); err != nil {
			return stats, err
		}
		sealer.assertSealed(g.gens)
		stats = sealer.stats
	}
	stats.Blobs, stats.Left = len(g.rows), len(g.left)
	if err := s.keepDefinitions(ctx, w, now, append(g.gens, gens...), g.rows); err != nil {
		return stats, err
	}
	if err := s.maySeal(); err != nil { // What was written meanwhile may live too short.
		return stats, err
	}
	if err := s.noteWorkedOff(ctx, w, g.rows); err != nil {
		return stats, err
	}
	if err := s.deleteStaged(ctx, w, g.rows, g.left); err != nil {
		return stats, err
	}
	s.release(w, slices.DeleteFunc(gens, func(x *generation) bool { return x.hasAny(g.left) }))
	if stats.Blobs == 0 {
		return stats, nil
	}
	s.metrics.sealSeconds.Observe(time.Since(begin).Seconds())
	s.metrics.sealedSamples.Add(float64(stats.Samples))
	s.metrics.sealedChunks.Add(float64(stats.Chunks))
	return stats, nil
}

// SealAll seals all that is staged, whatever its age.
func (s *Store) SealAll(ctx context.Context) error {
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	for p := range s.period.partitions() {
		work, err := s.Waiting(ctx, p)
		if err != nil {
			return err
		}
		for _, w := range work {
			if _, err := s.Seal(ctx, w); err != nil {
				return fmt.Errorf("storage: sealing slot %d of partition %d: %w", w.Slot, w.Partition, err)
			}
		}
	}
	s.LetGo()
	return nil
}

// LetGo forgets the series that have nothing unsealed, and returns how many. While the head is being rebuilt
// it forgets none: some have nothing yet.
func (s *Store) LetGo() int {
	if s.Ready() != nil {
		return 0
	}
	s.imports.letGo(s.opts.Now())
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	return s.head.letGo()
}

// countExpired counts and tells what came too late to be sealed as it is: its window is gone.
func (s *Store) countExpired(w Work, list []collected, what string) {
	if len(list) == 0 {
		return
	}
	var samples chunk.Samples
	exemplars := 0
	for i := range list {
		for _, st := range list[i].strands {
			_ = st.read(-maxTime, maxTime, &samples)
			if st.exemplars != nil {
				exemplars += len(st.exemplars.list)
			}
		}
	}
	s.metrics.expiredSamples.Add(float64(samples.Len()))
	s.opts.Logger.Warn(what, "samples", samples.Len(), "exemplars that are left out", exemplars, "slot", w.Slot, "partition", w.Partition)
}

// closeCell closes the cell's open generation and returns all closed ones, and the last seq given out so
// far: this process' rows after it belong to generations to come.
func (s *Store) closeCell(w Work) ([]*generation, int64) {
	p := s.head.part(w.Partition)
	p.mu.RLock()
	_, ok := p.cells[w.cell()]
	seq := p.seq
	p.mu.RUnlock()
	if !ok { // Nearly always: no need to wait for the commit under way.
		return nil, seq
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.cells[w.cell()]
	if c == nil {
		return nil, p.seq
	}
	c.closeGeneration()
	return slices.Clone(c.closed), c.seq
}

// gather lists the stage rows to seal. Where gens, the closed generations, lack some of them, extra is one
// that holds them. left are the rows that can't be read: they stay. The generations may hold more than the
// rows: that is durable too, or was sealed before.
func (s *Store) gather(ctx context.Context, w Work, gens []*generation, upTo int64) (extra []*generation, rows []stageRow, left map[stageRow]bool, err error) {
	covered := map[stageRow]bool{}
	for _, g := range gens {
		for _, r := range g.rows {
			covered[r] = true
		}
	}
	left = map[stageRow]bool{}
	staged, err := s.listRows(ctx, engine.Stage, w)
	if err != nil {
		return nil, nil, nil, err
	}
	back, err := s.workedOffAmong(ctx, w, staged)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, r := range staged {
		switch {
		case r.writer == s.writer && r.seq > upTo: // of a generation to come
		case covered[r], back[r]:
			rows = append(rows, r)
		default:
			left[r] = true
		}
	}
	if len(left) == 0 {
		return nil, rows, nil, nil
	}
	// Rows of writes whose answer was an error, or that a rebuild could not read. A stream is read from
	// its beginning, for only so it explains itself.
	gen, err := s.load(ctx, w, func(r stageRow) bool { return (r.writer != s.writer || r.seq <= upTo) && !back[r] })
	if err != nil || gen == nil || gen.partial() {
		return nil, rows, left, err
	}
	for _, r := range gen.rows {
		if left[r] {
			delete(left, r)
			rows = append(rows, r)
		}
	}
	return []*generation{gen}, rows, left, nil
}

// release lets the head forget what is sealed.
func (s *Store) release(w Work, gens []*generation) {
	p := s.head.part(w.Partition)
	p.mu.RLock()
	c := p.cells[w.cell()]
	p.mu.RUnlock()
	if c != nil {
		s.head.drop(c, gens)
	}
	if s.opts.Shared {
		s.follower.forget(w.Partition)
	}
}
