package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// sealPass seals the stage rows of some slots of a day, in any partitions:
//
//	close the generations ─► list the staged rows ─► tenantPass: rows and commit records ─► staged rows deleted
//
// The caller must hold the seal locks of the partitions.
type sealPass struct {
	s     *Store
	ctx   context.Context
	begun time.Time
	works []*sealedWork
	// deletes are the tombstones by tenant. They are read after all samples that the pass seals have been read.
	deletes map[string]format.Tombstones
	// classes is the list of classes for the tenant and day being sealed.
	classes *retention.ClassList
}

// sealedWork is the state of a slot and partition that a pass seals.
type sealedWork struct {
	Work
	// own are the closed generations of the head. upTo is the highest sequence number that they may contain.
	own  []*head.Generation
	upTo int64
	// rows are the staged rows, which are deleted after sealing. gens contain their samples. left contains the
	// unreadable rows.
	gens  []*head.Generation
	rows  []format.StageRow
	left  map[format.StageRow]bool
	stats SealStats
}

func (p *sealPass) run() error {
	begin := time.Now()
	if p.s.caching != nil { // Don't cache the sealed chunks that rollups read back.
		defer p.s.caching.ReadOnce()()
	}
	p.s.closeGenerations(p.works)
	if err := p.gatherUndeleted(); err != nil {
		return err
	}
	if err := p.seal(); err != nil {
		return err
	}
	err := p.deleteStaged()
	var all SealStats
	for _, w := range p.works {
		if !w.stats.Done {
			continue
		}
		// If a slot has no stage rows, its samples in the head are already sealed: by another process, or by a seal
		// whose last write succeeded but returned an error.
		p.s.releaseGenerations(
			w.Work, slices.DeleteFunc(w.own, func(g *head.Generation) bool { return g.HasAny(w.left) }), len(w.left) == 0,
		)
		all.Blobs += w.stats.Blobs
		all.Samples += w.stats.Samples
		all.Chunks += w.stats.Chunks
	}
	if all.Blobs > 0 {
		p.s.metrics.sealSeconds.Observe(time.Since(begin).Seconds())
		p.s.metrics.sealedSamples.Add(float64(all.Samples))
		p.s.metrics.sealedChunks.Add(float64(all.Chunks))
	}
	return err
}

// seal writes the sealed rows and commit records, one tenant after the other.
func (p *sealPass) seal() error {
	for _, w := range p.works {
		w.stats.Blobs, w.stats.Left = len(w.rows), len(w.left)
	}
	byTenant := p.stagedByTenant()
	for _, tenant := range slices.Sorted(maps.Keys(byTenant)) {
		metrics := byTenant[tenant]
		delete(byTenant, tenant)
		if err := p.sealTenant(tenant, metrics); err != nil {
			return err
		}
	}
	p.assertSealed()
	return nil
}

// sealTenant seals a tenant's series, grouped by finest resolution: samples that are too old for raw rows are added to
// rollups only.
func (p *sealPass) sealTenant(tenant string, metrics []stagedMetric) error {
	var err error
	if p.classes, err = p.s.retention.FixClasses(p.ctx, tenant, metrics[0].chunks[0].SlotPartition().Slot); err != nil {
		return err
	}
	byFinest, gone, err := p.groupByFinest(tenant, metrics)
	if err != nil {
		return err
	}
	p.countLate(gone, "skipped unsealed samples past the retention of rollups")
	p.countLate(
		byFinest[rollup.FiveMinutes], "found unsealed samples past the raw retention; they are only added to rollups",
	)
	p.countLate(
		byFinest[rollup.OneHour],
		"found unsealed samples past the retention of 5m rollups; they are only added to 1h rollups",
	)
	for finest, metrics := range byFinest {
		if len(metrics) == 0 {
			continue
		}
		if err := newTenantPass(p, tenant, metrics, rollup.Resolution(finest)).run(); err != nil {
			return err
		}
	}
	return nil
}

// deleteStaged records that the stage rows are sealed, and then deletes them.
func (p *sealPass) deleteStaged() error {
	for _, w := range p.works {
		if err := p.s.saveDefinitions(p.ctx, w.Work, p.begun, append(w.gens, w.own...), w.rows); err != nil {
			return err
		}
	}
	// If this process may no longer write, it must not delete the stage rows, because the rows that it has just written
	// may expire too early.
	if err := p.s.member.MayWrite(); err != nil {
		return err
	}
	for _, w := range p.works {
		if err := p.s.recordSealedRows(p.ctx, w.Work, w.rows); err != nil {
			return err
		}
	}
	if err := p.s.deleteStaged(p.ctx, p.works); err == nil || len(p.works) == 1 {
		p.setDone(p.works, err)
		return err
	}
	var errs []error
	for i := range p.works { // The failed write may have deleted the rows of some works.
		w := p.works[i : i+1]
		err := p.s.deleteStaged(p.ctx, w)
		p.setDone(w, err)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (p *sealPass) setDone(works []*sealedWork, err error) {
	for _, w := range works {
		w.stats.Done = err == nil
	}
}

// tenantPass seals a tenant's series with the same finest resolution. As in an import, it writes the chunks of all
// slots for each series, and then all rollups:
//
//	series ─► chunks of all slots ─► … ─► 5m of all slots ─► 1h of the day, once ─► … ─► commit records
type tenantPass struct {
	*sealPass
	metrics []stagedMetric
	// cells maps the slot partitions of the metrics' head chunks to their work. partitions counts the partitions per
	// slot.
	cells      map[head.SlotPartition]*sealedWork
	partitions map[int64]int
	slots      map[int64]*slotSealer
	roller     *roller
	// resealed contains the slot partitions that already have commit records. late contains those among them that have
	// a commit record of a seal. Samples that are sealed in these slot partitions now are late.
	resealed, late map[head.SlotPartition]bool
}

func newTenantPass(p *sealPass, tenant string, metrics []stagedMetric, finest rollup.Resolution) *tenantPass {
	t := &tenantPass{
		sealPass: p, metrics: metrics, cells: map[head.SlotPartition]*sealedWork{}, partitions: map[int64]int{},
		slots:    map[int64]*slotSealer{},
		resealed: map[head.SlotPartition]bool{}, late: map[head.SlotPartition]bool{},
	}
	for _, m := range metrics {
		for _, st := range m.chunks {
			if at := st.SlotPartition(); t.cells[at] == nil {
				t.cells[at] = p.workOf(st)
			}
		}
	}
	first := p.workOf(metrics[0].chunks[0]).Work
	w := newRowWriter(p.ctx, p.s, first)
	w.begun = p.begun
	t.roller = newRoller(w, tenant, first.Slot)
	t.roller.finest = finest
	for at := range t.cells {
		t.partitions[at.Slot]++
		if t.slots[at.Slot] == nil {
			t.slots[at.Slot] = &slotSealer{
				rowWriter: w, rolledSlot: t.roller.slotOf(at.Slot), deletes: t.deletesIn(at.Slot),
			}
		}
	}
	return t
}

func (t *tenantPass) run() error {
	if t.roller.onlyExtendsRollups() {
		end, err := t.s.member.Filling.Begin(t.ctx)
		if err != nil {
			return err
		}
		defer end()
		if err := t.sameDeletesNow(t.roller.tenant); err != nil { // Another process may have changed rollups.
			return err
		}
		if err := t.trimDeleted(); err != nil {
			return err
		}
	}
	if err := t.findSealedBefore(); err != nil {
		return err
	}
	for res := t.roller.finest; res <= rollup.OneHour; res++ {
		if err := t.s.listWindow(t.ctx, t.roller.tenant, t.roller.day.into[res].window); err != nil {
			return err
		}
	}
	before := map[*sealedWork]int{}
	for _, w := range t.cells {
		before[w] = w.stats.Samples
	}
	if err := t.seal(); err != nil {
		return err
	}
	for w, samples := range before {
		if t.late[w.slotPartition()] && w.stats.Samples > samples {
			w.stats.Repaired++
		}
	}
	return t.writeCommitRecords()
}

// trimDeleted applies the deletes that match these series before their samples are sealed. If the deletes were applied
// later, they would also delete the samples sealed now.
func (t *tenantPass) trimDeleted() error {
	slots := map[int64]bool{}
	for slot := range t.slots {
		slots[slot] = true
	}
	return t.s.trimBefore(t.ctx, t.roller.tenant, t.roller.finest, slots,
		t.deletes[t.roller.tenant].Filter(func(d *format.Tombstone) bool {
			return slices.ContainsFunc(t.metrics, func(m stagedMetric) bool {
				return slices.ContainsFunc(m.chunks, func(st *head.Chunk) bool {
					return d.TouchesSlot(t.s.period, st.SlotPartition().Slot) &&
						format.MatchesAll(st.Series().Labels(), d.Matchers)
				})
			})
		}), t.begun)
}

// findSealedBefore finds the slot partitions that already have commit records. Samples that the pass seals in these
// slot partitions are late, or are sealed a second time.
func (t *tenantPass) findSealedBefore() error {
	for slot, x := range t.slots {
		at := engine.Key{engine.Int(slot)}
		for row, err := range t.s.eng.Scan(t.ctx, engine.Range{
			Table: engine.Sealed, Partition: format.SealedPartition(x.into[rollup.Raw].window, t.roller.tenant),
			From: at, To: at,
		}) {
			if err != nil {
				return err
			}
			at := head.SlotPartition{Slot: slot, Partition: int(row.Clustering[1].Int)}
			t.resealed[at] = true
			if format.CommitReasonOf(row) == format.CommitSeal {
				t.late[at] = true
			}
		}
	}
	return nil
}

// seal writes the rows of all series, metric by metric.
func (t *tenantPass) seal() error {
	for i := range t.metrics {
		m := &t.metrics[i]
		list := t.seriesOf(m.chunks)
		m.chunks = nil
		if err := t.spreadSeries(m.name, list); err != nil {
			return err
		}
		if err := t.sealMetric(list); err != nil {
			return err
		}
	}
	return t.roller.writeAll()
}

// sealMetric adds the rows of a metric's series to the next write. Whenever the write is full, it is executed, and the
// rollups of its series are computed.
func (t *tenantPass) sealMetric(list []stagedSeries) error {
	var samples chunk.Samples
	rolled := false
	for i := range list {
		if i%maxReadSeries == 0 {
			if err := t.readAhead(list[i:min(i+maxReadSeries, len(list))]); err != nil {
				return err
			}
		}
		c := &list[i]
		samples.Reset()
		for st := range c.chunks.All() {
			// No lock is needed, because closed generations are immutable.
			if err := st.Read(&samples); err != nil {
				return fmt.Errorf("storage: reading back %s: %w", c.series.Labels(), err)
			}
		}
		samples.Normalize()
		x := t.slots[c.work.Slot]
		x.stats = &c.work.stats
		before := len(x.tasks)
		if t.roller.onlyExtendsRollups() {
			if err := t.roller.leaveOutAggregated(c.series, &samples); err != nil {
				return err
			}
			x.addRollupTask(&c.collectedSeries, &samples)
		} else if err := x.addSeries(&c.collectedSeries, &samples, t.resealed[c.work.slotPartition()]); err != nil {
			return err
		}
		rolled = rolled || len(x.tasks) > before
		metricEnds := i+1 == len(list)
		if !metricEnds && list[i+1].series.ID() == c.series.ID() {
			continue
		}
		if rolled {
			t.roller.series = append(t.roller.series, &c.collectedSeries)
		}
		rolled = false
		if t.isFull(metricEnds) {
			if err := t.roller.writeAll(); err != nil {
				return err
			}
		}
	}
	return nil
}

// readAhead reads the sealed chunks of some series of a metric with few scans, for slots that were sealed before.
func (t *tenantPass) readAhead(list []stagedSeries) error {
	if len(t.resealed) == 0 || t.roller.onlyExtendsRollups() {
		return nil
	}
	series := map[int64][]*Series{}
	for i := range list {
		if at := list[i].work.slotPartition(); t.resealed[at] {
			series[at.Slot] = append(series[at.Slot], list[i].series)
		}
	}
	for slot, x := range t.slots {
		if err := x.readAhead(series[slot]); err != nil {
			return err
		}
	}
	return nil
}

// isFull reports whether the next write should be executed. At the end of a metric a smaller write is executed, so that
// the following write starts with the next metric.
func (t *tenantPass) isFull(metricEnds bool) bool {
	piece := t.s.workSizes().piece
	if metricEnds {
		piece.bytes, piece.series = piece.bytes*3/4, piece.series*3/4
	}
	return t.roller.bytes >= piece.bytes || len(t.roller.series) >= piece.series
}

// writeCommitRecords writes the commit records of the slots, starting with the coarsest resolution. So if a reader
// finds the raw commit record, the rollups are also complete.
func (t *tenantPass) writeCommitRecords() error {
	marks := newCommitKeys(t.cells)
	for res := rollup.OneHour + 1; res > t.roller.finest; res-- {
		if err := t.s.writeCommitRecords(t.ctx, t.roller.tenant, res-1, format.CommitSeal, marks); err != nil {
			return err
		}
	}
	return nil
}

// writeCommitRecords writes commit records of one day at a resolution.
func (s *Store) writeCommitRecords(
	ctx context.Context, tenant string, res rollup.Resolution, reason format.CommitReason, marks []format.CommitKey,
) error {
	if len(marks) == 0 {
		return nil
	}
	window := s.period.WindowOfSlot(res, marks[0].Slot)
	all := engine.Batch{Table: engine.Sealed, Partition: format.SealedPartition(window, tenant)}
	if err := s.retention.SetExpiry(ctx, &all, tenant, retention.Shared, window); err != nil {
		// Nothing is written to an expired window. Rollup windows may expire before raw windows if the retention was
		// raised. Records of maintenance aren't needed for rows that are about to expire.
		if errors.Is(err, retention.ErrWindowOver) && (res > rollup.Raw || reason == format.CommitMaintenance) {
			return nil
		}
		return err
	}
	for _, m := range marks {
		all.Mutations = append(all.Mutations, commitRecordRow(s.destinationsOf(m.Slot)[res], m, reason))
	}
	if err := s.writeInPieces(ctx, all); err != nil {
		return fmt.Errorf("storage: marking slots of tenant %q as sealed: %w", tenant, err)
	}
	return s.relistWindow(ctx, tenant, window, all)
}
