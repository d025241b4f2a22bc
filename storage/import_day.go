package storage

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// importDay imports the data of one day. A day consists of whole slots and is part of one window per resolution.
//
//	series by finest resolution ─► commit records ─► metrics ─► pieces of series ─┬─► worker ─┐
//	                                                                              └─► worker ─┴─► commit records
//
// Commit records of the finest rows are written before these rows. So if an import is interrupted, the rollups of its
// slots are known to be incomplete: queries read samples, deletes find the slots, and the rollups are computed later.
// Commit records of coarser rows are written at the end.
type importDay struct {
	*importing
	dayKey
	list []*importedDay
	of   map[*Series]*importedDay // the entries of list, by series

	ctx context.Context
	// deletes are the tombstones that were read after begun and before any sample was stored.
	deletes format.Tombstones
	begun   time.Time
	// finest is the resolution of the finest rows written for the series being sealed.
	finest rollup.Resolution
}

// maxPieceSeries is the max number of series of a metric that are sealed together.
const maxPieceSeries = 4096

// importWriteBytes is the approximate size of one write of an import.
const importWriteBytes = 2 << 20

// run seals the day. It holds the seal locks of the partitions, so that no other goroutine of this process seals them
// concurrently.
func (d *importDay) run(ctx context.Context) (err error) {
	if err := d.s.clock.MayRemove(); err != nil {
		return err
	}
	d.ctx = ctx
	defer d.lockSeals()()
	// All samples are stored after this point. So every tombstone read here is older than the samples, and chunks with
	// the samples may name it. Conversely, every older tombstone is read here.
	d.begun = d.s.opts.Now()
	if d.deletes, err = d.s.deletesToName(ctx, d.tenant.Name()); err != nil {
		return err
	}
	byFinest, err := d.groupByFinest()
	if err != nil {
		return err
	}
	for finest, list := range byFinest {
		if len(list) == 0 {
			continue
		}
		d.finest = rollup.Resolution(finest)
		if err := d.writeWithDeletes(list); err != nil {
			return err
		}
	}
	return nil
}

// writeWithDeletes stores series with the same finest resolution, and applies deletes to their rollups. If it stores
// rollups only, it first waits until no other process changes rollups without samples.
func (d *importDay) writeWithDeletes(list []*importedDay) error {
	if d.onlyExtendsRollups() {
		d.s.member.Imports.SetWait(d.state, membership.WaitsForRollups)
		end, err := d.s.member.Filling.Begin(d.ctx)
		d.s.member.Imports.SetWait(d.state, "")
		if err != nil {
			return err
		}
		defer end()
	}
	if err := d.writeSeries(list); err != nil {
		return err
	}
	return d.applyDeletes(list)
}

// errRawExpired means that raw rows expired before rollups were computed from them, or before deletes were applied to
// the rollups. If the seal or import is repeated, it adds its samples to rollups only.
var errRawExpired = fmt.Errorf(
	"%w: raw rows expired before rollups were created from them; retry", engine.ErrUnavailable,
)

// applyDeletes applies the deletes that match imported series to the rollups of the raw window. It must run while the
// raw rows exist, because only raw rows record which older deletes don't apply to them. If a delete were applied after
// the raw rows have expired, it would remove the imported samples from the rollups.
func (d *importDay) applyDeletes(list []*importedDay) error {
	if d.onlyExtendsRollups() || len(d.matchingDeletes(list)) == 0 {
		return nil
	}
	slot := d.s.period.SlotOf(d.start + 1)
	window := d.s.period.WindowOfSlot(rollup.Raw, slot)
	if _, err := d.s.rollWindow(d.ctx, d.tenant.Name(), window, func() {}); err != nil {
		return err
	}
	if slices.ContainsFunc(
		list, func(c *importedDay) bool {
			return d.s.retention.MayBeMissing(rollup.Raw, slot, d.tenant.Name(), c.class)
		},
	) {
		return errRawExpired
	}
	return nil
}

// matchingDeletes returns the deletes that match any of the series.
func (d *importDay) matchingDeletes(list []*importedDay) format.Tombstones {
	return d.deletes.Filter(func(x *format.Tombstone) bool {
		return slices.ContainsFunc(list, func(c *importedDay) bool {
			return format.MatchesAll(c.series.Labels(), x.Matchers)
		})
	})
}

// writeSeries writes the rows and commit records of series with the same finest resolution.
func (d *importDay) writeSeries(list []*importedDay) error {
	cells := d.slotPartitions(list)
	if d.onlyExtendsRollups() {
		if err := d.trimDeleted(list, cells); err != nil {
			return err
		}
	}
	if err := d.listWindows(); err != nil {
		return err
	}
	begun, done := newCommitKeys(cells), newCommitKeys(cells)
	if err := d.s.writeCommitRecords(d.ctx, d.tenant.Name(), d.finest, format.CommitImport, begun); err != nil {
		return err
	}
	if err := d.writeRows(list); err != nil {
		return err
	}
	for res := rollup.OneHour; res > d.finest; res-- {
		if err := d.s.writeCommitRecords(
			d.ctx, d.tenant.Name(), res, format.CommitImport, slices.Concat(begun, done),
		); err != nil {
			return err
		}
	}
	return d.s.writeCommitRecords(d.ctx, d.tenant.Name(), d.finest, format.CommitImport, done)
}

// trimDeleted applies the deletes that match the series before the samples are imported. If the deletes were applied
// later, they would also remove the imported samples.
func (d *importDay) trimDeleted(list []*importedDay, cells map[head.SlotPartition]bool) error {
	slots := map[int64]bool{}
	for at := range cells {
		slots[at.Slot] = true
	}
	return d.s.trimBefore(d.ctx, d.tenant.Name(), d.finest, slots, d.matchingDeletes(list), d.begun)
}

// onlyExtendsRollups reports whether samples are only added to existing rollups, because their raw window has expired.
func (d *importDay) onlyExtendsRollups() bool { return d.finest > rollup.Raw }

func (d *importDay) listWindows() error {
	for res := d.finest; res <= rollup.OneHour; res++ {
		window := d.s.period.WindowOfSlot(res, d.s.period.SlotOf(d.start+1))
		if err := d.s.listWindow(d.ctx, d.tenant.Name(), window); err != nil {
			return err
		}
	}
	return nil
}

// slotPartitions returns the slot partitions in which the series have samples.
func (d *importDay) slotPartitions(list []*importedDay) map[head.SlotPartition]bool {
	cells := map[head.SlotPartition]bool{}
	for _, c := range list {
		_ = c.eachSlot(d.s.period, func(slot int64, _ *importedSlot) error {
			cells[head.SlotPartition{Slot: slot, Partition: d.head.PartitionOf(c.series, slot)}] = true
			return nil
		})
	}
	return cells
}

// lockSeals acquires the seal locks of all partitions of the day's series, in ascending order to prevent deadlocks with
// other code that holds several seal locks. unlock releases the locks.
func (d *importDay) lockSeals() (unlock func()) {
	slot := d.s.period.SlotOf(d.start + 1)
	var partitions []int
	for _, c := range d.list {
		partitions = append(partitions, d.head.PartitionOf(c.series, slot))
	}
	slices.Sort(partitions)
	partitions = slices.Compact(partitions)
	d.s.member.Imports.SetWait(d.state, membership.WaitsForSeal)
	for _, p := range partitions {
		d.s.sealMu[p].Lock()
	}
	d.s.member.Imports.SetWait(d.state, "")
	return func() {
		for _, p := range partitions {
			d.s.sealMu[p].Unlock()
		}
	}
}

// groupByFinest groups series by the finest resolution whose window can still be written. It omits series
// that are too old or too coarse for all resolutions, and counts their samples.
func (d *importDay) groupByFinest() (byFinest [resolutions][]*importedDay, err error) {
	slot, tenant := d.s.period.SlotOf(d.start+1), d.tenant.Name()
	list, err := d.s.retention.ImportClasses(d.ctx, tenant, slot, func(yield func(*Series) bool) {
		for _, c := range d.list {
			if !yield(c.series) {
				return
			}
		}
	})
	if err != nil {
		return byFinest, err
	}
	placements := map[int64]retention.Placement{} // by class
	for _, c := range d.list {
		var placement retention.Placement
		if list != nil { // Otherwise no rows of the day are written.
			c.class = list.ClassOf(c.series)
			var known bool
			if placement, known = placements[c.class]; !known {
				if placement, err = d.s.retention.ImportPlacement(d.ctx, tenant, c.class, slot); err != nil {
					return byFinest, err
				}
				placements[c.class] = placement
			}
		}
		if !placement.Stored {
			d.stats.Expired += c.len()
			continue
		}
		if placement.Finest < d.source {
			d.stats.TooCoarse += c.len()
			continue
		}
		byFinest[placement.Finest] = append(byFinest[placement.Finest], c)
		if placement.Early {
			d.stats.RawGone += c.len()
		}
	}
	return byFinest, nil
}

// writeRows writes the rows of series with the same finest resolution, without commit records.
func (d *importDay) writeRows(list []*importedDay) error {
	pieces, err := d.divideByShard(d.roller(d.ctx), list)
	if err != nil {
		return err
	}
	var next atomic.Int64
	g, ctx := errgroup.WithContext(d.ctx)
	workers := make([]*importWorker, min(len(pieces), runtime.GOMAXPROCS(0)))
	for i := range workers {
		w := &importWorker{importDay: d, roller: d.roller(ctx), slots: map[int64]*slotSealer{}}
		workers[i] = w
		g.Go(panics.WrapError("importing", func() error {
			for {
				at := next.Add(1) - 1
				if at >= int64(len(pieces)) {
					return w.writeRollups()
				}
				if err := w.writeChunks(pieces[at]); err != nil {
					return err
				}
			}
		}))
	}
	err = g.Wait()
	for _, w := range workers {
		w.addStats()
		d.stats.Add(w.stats)
	}
	return err
}

// roller returns a roller that computes the day's rollups. Its error messages name an arbitrary slot and partition of
// the day.
func (d *importDay) roller(ctx context.Context) *roller {
	slot := d.s.period.SlotOf(d.start + 1)
	w := newRowWriter(ctx, d.s, Work{Slot: slot})
	w.namesFirst, w.begun = true, d.begun
	x := newRoller(w, d.tenant.Name(), slot)
	x.finest = d.finest
	return x
}

// divideByShard divides series into pieces of one metric each, ordered by class and shard. It also ensures that each
// metric has enough shards for its imported and existing series.
func (d *importDay) divideByShard(into *roller, list []*importedDay) (pieces [][]*importedDay, err error) {
	slices.SortFunc(list, func(a, b *importedDay) int { return strings.Compare(a.series.Metric(), b.series.Metric()) })
	period := d.s.period.OfSlot(into.day.slot)
	perDay := format.DayMS / period.SlotMS
	for from := 0; from < len(list); {
		metric, to := list[from].series.Metric(), from
		var bytes int64
		for ; to < len(list) && list[to].series.Metric() == metric; to++ {
			bytes += list[to].encodedBytes()
		}
		n := max(to-from, d.tenant.SeriesOfMetric(metric))/period.Partitions + 1
		bytes = bytes * int64(n) / int64(to-from) / perDay
		for res := d.finest; res <= rollup.OneHour; res++ {
			if err := into.cacheShards(res, metric); err != nil {
				return nil, err
			}
			shards, err := into.shardsFor(into.day.slot, res, metric, n, bytes)
			if err != nil {
				return nil, err
			}
			for _, c := range list[from:to] {
				c.shards[res] = uint16(format.ShardOf(c.series.ID(), shards))
			}
		}
		slices.SortFunc(list[from:to], func(a, b *importedDay) int {
			return cmp.Or(
				cmp.Compare(a.location(d.finest), b.location(d.finest)),
				strings.Compare(a.series.IDText(), b.series.IDText()),
			)
		})
		for piece := range slices.Chunk(list[from:to], maxPieceSeries) {
			pieces = append(pieces, piece)
		}
		from = to
	}
	return pieces, nil
}

// newCommitKeys returns the key of a new commit record for each slot partition.
func newCommitKeys[T any](cells map[head.SlotPartition]T) []format.CommitKey {
	marks := make([]format.CommitKey, 0, len(cells))
	for at := range cells {
		marks = append(marks, format.CommitKey{Slot: at.Slot, Partition: at.Partition, ID: newID()})
	}
	return marks
}
