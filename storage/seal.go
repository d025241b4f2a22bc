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

// SealStats describes the result of a seal.
type SealStats struct {
	// Done is true if the slot and partition were sealed completely.
	Done bool
	// Blobs is the number of stage rows that were sealed. Left is the number of unreadable stage rows, which were kept.
	Blobs, Left int
	// Series and Samples are the numbers of series and samples that were written. Chunks is the number of chunks that
	// contain the samples; Bytes is the size of these chunks.
	Series, Samples, Chunks int
	// Exemplars is the number of exemplars that were written.
	Exemplars int
	Bytes     int64
	// Repaired is the number of tenants whose rollups were recomputed because samples arrived after the slot had been
	// sealed.
	Repaired int
}

// Seal turns the staged samples of a slot and partition into sealed rows:
//
//	close the generation ─► list the stage rows ─► chunks, labels, catalog ─► commit record ─► delete the rows read
//
// Every step can be repeated: after an error, the next Seal starts again. Two seals of a slot write the same rows, even
// in two processes.
func (s *Store) Seal(ctx context.Context, w Work) (SealStats, error) {
	stats, err := s.SealTogether(ctx, []Work{w})
	return stats[0], err
}

// SealTogether seals the slots and partitions of one pass, as returned by PlanPasses. It writes the 1h rollups of a day
// once, and combines the rows of several slots into larger writes. After an error all, some or no slots may be sealed.
// To find the faulty slot, the caller can seal each slot by itself.
func (s *Store) SealTogether(ctx context.Context, list []Work) ([]SealStats, error) {
	stats, err := s.sealTogether(ctx, list)
	series := 0
	for _, st := range stats {
		series += st.Series
	}
	if series >= cmp.Or(s.opts.seams.releaseSeries, minReleasedSeries) {
		s.ReleaseSeries()
	}
	return stats, err
}

// minReleasedSeries is the min number of sealed series after which a pass itself releases all series without unsealed
// samples from the head. Smaller passes leave this to ReleaseSeries. A large pass doesn't, because the next pass may
// take equally long, and short-lived series are a large part of the head.
const minReleasedSeries = 1 << 16

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
		if err := s.follower.releaseSealed(ctx, w.Partition, s.replaceByStaged); err != nil {
			return stats, err
		}
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

// lockSeals acquires the seal locks of the partitions of list, in ascending order. unlock releases them.
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

// maxPassChunks is the approximate number of chunks that one pass seals. Each series has one chunk per slot. The number
// is large enough to make the fixed cost of a pass negligible and to let few passes write to the same metrics, and
// small enough that a pass takes seconds and little memory.
const maxPassChunks = 1 << 19

// PlanPasses divides work into passes, given as indexes into list. A pass contains slots of one day and partitions of
// one lane: partitions that are equal modulo lanes. Different lanes can be sealed in parallel. Passes are ordered by
// their first work in list. Each slot without samples in the head is a pass of its own, because its size is unknown.
func (s *Store) PlanPasses(list []Work, lanes int) (passes [][]int) {
	type group struct {
		day, window int64
		lane        int
		held        bool
	}
	at, chunks := map[group]int{}, make([]int, len(list))
	for i, w := range list {
		n, held := s.head.CountChunks(w.slotPartition())
		if !held {
			n = maxPassChunks // The number is unknown.
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
		// Make all passes about the same size. A small pass of few partitions would scatter its rows among the rows of
		// all other passes.
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

// SealAll seals all staged samples, regardless of their age.
func (s *Store) SealAll(ctx context.Context) error {
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	if err := s.member.MayWrite(); err != nil {
		return err
	}
	var all []Work
	for p := range s.period.Partitions() {
		staged, err := s.stagedWork(ctx, p, func(Work) bool { return true })
		if err != nil {
			return err
		}
		all = append(all, staged...)
	}
	slices.SortStableFunc(all, func(a, b Work) int { return cmp.Compare(a.Slot, b.Slot) })
	for _, pass := range s.PlanPasses(all, 1) {
		works := make([]Work, len(pass))
		for i, at := range pass {
			works[i] = all[at]
		}
		if _, err := s.SealTogether(ctx, works); err != nil {
			return fmt.Errorf(
				"storage: sealing slot %d of partition %d and the slots sealed with it: %w", works[0].Slot,
				works[0].Partition, err,
			)
		}
	}
	s.ReleaseSeries()
	return nil
}

// ReleaseSeries releases the series without unsealed samples from the head, and returns their number. It releases none
// while the head is being rebuilt, because the samples of some series aren't loaded yet.
func (s *Store) ReleaseSeries() int {
	if s.Ready() != nil {
		return 0
	}
	s.imports.release(s.opts.Now())
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	return s.head.GC()
}

// countLate counts and logs samples that arrived after their window had expired.
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
	s.opts.Logger.Warn(
		what, "samples", samples.Len(), "skipped exemplars", exemplars, "slot", w.Slot, "partition", w.Partition,
	)
}

// closeGenerations closes the open generations of the slots to be sealed. It sets own to all closed generations, and
// upTo to the last assigned sequence number. This process's rows with higher numbers belong to later generations.
func (s *Store) closeGenerations(works []*sealedWork) {
	some := false
	for _, w := range works {
		last, held := s.head.LastSeq(w.slotPartition())
		w.upTo, some = last, some || held
	}
	if !some { // There is nothing to close, so don't wait for the current commit.
		return
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	for _, w := range works {
		w.own, w.upTo = s.head.CloseGenerations(w.slotPartition())
	}
}

// listStagedRows lists the staged rows to seal. gens are the closed generations. If they don't contain all rows, extra
// is a generation with the remaining rows. left are the unreadable rows, which are kept. The generations may contain
// samples of other rows, which are durable or were sealed before.
func (s *Store) listStagedRows(ctx context.Context, w Work, gens []*head.Generation, upTo int64) (
	extra []*head.Generation, rows []format.StageRow, left map[format.StageRow]bool, err error,
) {
	left = map[format.StageRow]bool{}
	staged, err := s.listStageRows(ctx, engine.Stage, w)
	if err != nil {
		return nil, nil, nil, err
	}
	back, err := s.findSealedRows(ctx, w, staged)
	if err != nil {
		return nil, nil, nil, err
	}
	rows = staged[:0]
	for _, r := range staged {
		switch {
		case r.Writer == s.writer && r.Seq > upTo: // a row of a later generation
		case head.IsCovered(gens, r), back[r]:
			rows = append(rows, r)
		default:
			left[r] = true
		}
	}
	if len(left) == 0 {
		return nil, rows, nil, nil
	}
	// The generations don't contain the rows in left: their writes returned an error, they were unreadable during a
	// rebuild, or the follower hasn't read them yet. Each stream is read from its start, because its blobs depend on
	// earlier blobs.
	gen, err := s.loadSlot(
		ctx, w, func(r format.StageRow) bool { return (r.Writer != s.writer || r.Seq <= upTo) && !back[r] },
	)
	if err == nil && gen != nil && !gen.IsPartial() {
		for r := range gen.Rows() {
			if left[r] {
				delete(left, r)
				rows = append(rows, r)
			}
		}
		extra = []*head.Generation{gen}
	}
	if err == nil && len(left) > 0 {
		// Rows that have disappeared since were sealed by another process. They are removed from left, so that the head
		// releases their generations, which may contain deleted samples.
		left, err = s.stillStaged(ctx, w, left)
	}
	return extra, rows, left, err
}

// releaseGenerations removes sealed generations from the head. all is true if all staged rows of the slot were sealed.
func (s *Store) releaseGenerations(w Work, gens []*head.Generation, all bool) {
	s.head.ReleaseGenerations(w.slotPartition(), gens, all)
	if s.opts.Shared {
		s.follower.releaseDefinitions(w.Partition)
	}
}
