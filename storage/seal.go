package storage

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// SealStats counts the work of a seal.
type SealStats struct {
	// Done is true if nothing is left to do.
	Done bool
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
//	close the generation ─► list the stage rows ─► chunks, labels, catalog ─► mark ─► delete the rows read
//
// Every step may be repeated; after an error the next Seal begins anew. Two seals of one slot, even by two
// processes, end in the same rows.
func (s *Store) Seal(ctx context.Context, w Work) (SealStats, error) {
	stats, err := s.SealTogether(ctx, []Work{w})
	return stats[0], err
}

// SealTogether is Seal of several slots and partitions in one pass, which Together has found: then the 1h rollups of a day are made
// once, and writes are shared. After an error some may be done, or none; whoever then seals each of the others by itself finds
// which one is at fault.
func (s *Store) SealTogether(ctx context.Context, list []Work) ([]SealStats, error) {
	stats, err := s.sealTogether(ctx, list)
	series := 0
	for _, st := range stats {
		series += st.Series
	}
	if series >= cmp.Or(s.opts.seams.letGoSeries, letGoSeries) {
		s.LetGo()
	}
	return stats, err
}

// letGoSeries is of how many series a pass has sealed so much that those of which nothing is left are let go of right after it: the next pass
// may take as long, and short-lived ones are a large part of the head.
const letGoSeries = 1 << 16

func (s *Store) sealTogether(ctx context.Context, list []Work) ([]SealStats, error) {
	stats := make([]SealStats, len(list))
	if err := s.Ready(); err != nil {
		return stats, fmt.Errorf("%w: %w", errNotRebuilt, err)
	}
	if err := s.member.MayWrite(); err != nil {
		return stats, err
	}
	defer s.lockSeals(list)()
	p := &sealPass{s: s, ctx: ctx, begun: s.opts.Now()}
	for _, w := range list {
		p.works = append(p.works, &sealedWork{Work: w})
	}
	err := p.run()
	for i, w := range p.works {
		if w.stats.Done {
			stats[i] = w.stats
		}
	}
	return stats, err
}

// lockSeals keeps others from sealing these partitions, until unlock is called. Who takes several takes them in order.
func (s *Store) lockSeals(list []Work) (unlock func()) {
	partitions := make([]int, 0, len(list))
	for _, w := range list {
		partitions = append(partitions, w.Partition)
	}
	slices.Sort(partitions)
	partitions = slices.Compact(partitions)
	for _, p := range partitions {
		s.sealMu[p].Lock()
	}
	return func() {
		for _, p := range partitions {
			s.sealMu[p].Unlock()
		}
	}
}

// maxPassChunks is about how many series of a slot are sealed in one pass: enough that what a pass costs by itself doesn't
// count and that few passes write among the same metrics, and so few that it takes some seconds, and little memory.
const maxPassChunks = 1 << 19

// Together cuts work into passes, as places in list: slots of one day, in lanes by partition, for those
// who seal side by side. The order stays by what comes first of each. Slots of which the head has nothing are passes of their own, for
// their size isn't known.
func (s *Store) Together(list []Work, lanes int) (passes [][]int) {
	type group struct {
		day, window int64
		lane        int
		held        bool
	}
	at, chunks := map[group]int{}, make([]int, len(list))
	for i, w := range list {
		n, held := s.head.CountChunks(w.at())
		if !held {
			n = maxPassChunks // The number isn't known.
		}
		chunks[i] = n
		g := group{s.period.DayOf(w.Slot), s.period.WindowOfSlot(rollup.Raw, w.Slot), w.Partition % max(1, lanes), held}
		in, ok := at[g]
		if !ok {
			in = len(passes)
			passes, at[g] = append(passes, nil), in
		}
		passes[in] = append(passes[in], i)
	}
	var cut [][]int
	for _, pass := range passes {
		slices.SortStableFunc(pass, func(a, b int) int { return cmp.Compare(list[a].Partition, list[b].Partition) })
		all := 0
		for _, w := range pass {
			all += chunks[w]
		}
		// Passes of about one size: one of few partitions would be sealed among the rows of all others.
		even := all / max(1, (all+maxPassChunks/2)/maxPassChunks)
		from, sum := 0, 0
		for i, w := range pass {
			if i > from && sum+chunks[w]/2 > even {
				cut = append(cut, pass[from:i])
				from, sum = i, 0
			}
			sum += chunks[w]
		}
		cut = append(cut, pass[from:])
	}
	return cut
}

// SealAll seals all that is staged, whatever its age.
func (s *Store) SealAll(ctx context.Context) error {
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	if err := s.member.MayWrite(); err != nil {
		return err
	}
	var all []Work
	for p := range s.period.Partitions() {
		staged, err := s.stagedOf(ctx, p, func(Work) bool { return true })
		if err != nil {
			return err
		}
		all = append(all, staged...)
	}
	slices.SortStableFunc(all, func(a, b Work) int { return cmp.Compare(a.Slot, b.Slot) })
	for _, pass := range s.Together(all, 1) {
		works := make([]Work, len(pass))
		for i, at := range pass {
			works[i] = all[at]
		}
		if _, err := s.SealTogether(ctx, works); err != nil {
			return fmt.Errorf("storage: sealing slot %d of partition %d and the slots sealed with it: %w", works[0].Slot, works[0].Partition, err)
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
	s.imports.release(s.opts.Now())
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	return s.head.GC()
}

// countLate counts and logs samples that came too late to be sealed as they are: their window is gone.
func (s *Store) countLate(w Work, list []*head.Chunk, what string) {
	if len(list) == 0 {
		return
	}
	var samples chunk.Samples
	exemplars := 0
	for _, st := range list {
		_ = st.Read(&samples)
		exemplars += len(st.Exemplars())
	}
	s.metrics.expiredSamples.Add(float64(samples.Len()))
	s.opts.Logger.Warn(what, "samples", samples.Len(), "skipped exemplars", exemplars, "slot", w.Slot, "partition", w.Partition)
}

// closeGenerations closes the open generations of the slots to be sealed, and notes all closed ones, and the last seq given out so
// far: this process' rows after it belong to generations to come.
func (s *Store) closeGenerations(works []*sealedWork) {
	some := false
	for _, w := range works {
		last, held := s.head.LastSeq(w.at())
		w.upTo, some = last, some || held
	}
	if !some { // No need to wait for the commit under way.
		return
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	for _, w := range works {
		w.own, w.upTo = s.head.Close(w.at())
	}
}

// gather lists the stage rows to seal. Where gens, the closed generations, lack some of them, extra is one
// that holds them. left are the rows that can't be read: they stay. The generations may hold more than the
// rows: that is durable too, or was sealed before.
func (s *Store) gather(ctx context.Context, w Work, gens []*head.Generation, upTo int64) (extra []*head.Generation, rows []format.StageRow, left map[format.StageRow]bool, err error) {
	left = map[format.StageRow]bool{}
	staged, err := s.listRows(ctx, engine.Stage, w)
	if err != nil {
		return nil, nil, nil, err
	}
	back, err := s.workedOffAmong(ctx, w, staged)
	if err != nil {
		return nil, nil, nil, err
	}
	rows = staged[:0]
	for _, r := range staged {
		switch {
		case r.Writer == s.writer && r.Seq > upTo: // of a generation to come
		case head.IsCovered(gens, r), back[r]:
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
	gen, err := s.load(ctx, w, func(r format.StageRow) bool { return (r.Writer != s.writer || r.Seq <= upTo) && !back[r] })
	if err == nil && gen != nil && !gen.Partial() {
		for r := range gen.Rows() {
			if left[r] {
				delete(left, r)
				rows = append(rows, r)
			}
		}
		extra = []*head.Generation{gen}
	}
	if err == nil && len(left) > 0 {
		// Rows that are missing by now were sealed by another process. The head releases the generations that hold them, which may hold deleted samples too.
		left, err = s.stillStaged(ctx, w, left)
	}
	return extra, rows, left, err
}

// release lets the head forget sealed generations.
func (s *Store) release(w Work, gens []*head.Generation) {
	s.head.Release(w.at(), gens)
	if s.opts.Shared {
		s.follower.forget(w.Partition)
	}
}
