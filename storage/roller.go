package storage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/rollup"
)

// maxPiece1hSeries is the number of series whose 5m chunks of a day are read together.
const maxPiece1hSeries = 512

// roller creates the rollups of a tenant's series in slots of one day, from their sealed chunks:
//
//	added rows are written ─► 5m of the tasks of all slots ─► durable ─► 1h of the day, once per series
//
// Seals and imports use it, as do rollWindow and deletes that trim buckets.
type roller struct {
	*rowWriter
	tenant string
	slots  map[int64]*rolledSlot
	// series are the series whose 1h chunks are computed.
	series []*collectedSeries
	day    *sealedSlot // a slot of the day

	// finest is the finest resolution that is written. If it isn't Raw, the raw window has expired, and samples are
	// only added to existing rollups, as buckets that are missing there.
	finest rollup.Resolution
	// leftOut is the number of samples that couldn't be added to existing rollups: see rollup.Extend.
	leftOut atomic.Int64
	// due holds, by slot, the deletes that haven't been applied to the day's stored 1h chunks. Samples that arrive in a
	// slot after a delete was applied there aren't deleted. unread collects the deletes that apply to unreadable
	// chunks.
	due    map[int64]format.Tombstones
	unread unreadDeletes
	// unreadMu protects unread.
	unreadMu sync.Mutex
	// listed contains the chunks that the 5m rollups depend on. raw contains the numbers of shards at the time of the
	// listing.
	listed chunkList
	raw    metricShards
	hours  []rollupTask // reused
}

func newRoller(w *rowWriter, tenant string, slot int64) *roller {
	return &roller{rowWriter: w, tenant: tenant, slots: map[int64]*rolledSlot{}, day: newSealedSlot(w.ctx, w.s, slot)}
}

// slotOf returns the state of a slot of the day.
func (x *roller) slotOf(slot int64) *rolledSlot {
	in := x.slots[slot]
	if in == nil {
		in = newRolledSlot(x.ctx, x.s, slot)
		x.slots[slot] = in
	}
	return in
}

// rolledSlot is the state of a slot whose rollups are computed.
type rolledSlot struct {
	*sealedSlot
	tasks []rollupTask
	// due are the deletes that haven't been applied to the slot's stored rollups. forDue is true if these deletes are
	// the only reason to recompute the rollups.
	due    format.Tombstones
	forDue bool
	// hiding are the deletes that the rollups must apply. They are read after the chunks have become durable.
	hiding format.Tombstones
}

func newRolledSlot(ctx context.Context, s *Store, slot int64) *rolledSlot {
	return &rolledSlot{sealedSlot: newSealedSlot(ctx, s, slot)}
}

// rollupOf is the location of a series' rollup chunk. due holds, by slot, the deletes that haven't been applied to the
// stored chunk.
type rollupOf struct {
	res rollup.Resolution
	at  destination
	due map[int64]format.Tombstones
}

func (x *rolledSlot) fineRollup() rollupOf {
	to := rollupOf{res: rollup.FiveMinutes, at: x.into[rollup.FiveMinutes]}
	if len(x.due) > 0 {
		to.due = map[int64]format.Tombstones{x.slot: x.due}
	}
	return to
}

// dueDeletes returns the deletes in due that apply to a series, by slot.
func (to rollupOf) dueDeletes(s *Series) map[int64]format.Tombstones {
	var due map[int64]format.Tombstones
	for slot, ds := range to.due {
		if ds = ds.OfSeries(s.Labels()); len(ds) > 0 {
			if due == nil {
				due = map[int64]format.Tombstones{}
			}
			due[slot] = ds
		}
	}
	return due
}

// trimDue removes the buckets that the deletes in due cover, and reports whether it removed any.
func (x *roller) trimDue(due map[int64]format.Tombstones, b *rollup.Buckets) bool {
	return len(due) > 0 &&
		format.TrimBuckets(b, func(end int64) format.Tombstones { return due[x.s.period.SlotOf(end)] })
}

func (x *roller) hourRollup() rollupOf {
	return rollupOf{rollup.OneHour, x.day.into[rollup.OneHour], x.due}
}

// mayBeMissing reports whether rows of a class may be missing in the window that contains the day.
func (x *roller) mayBeMissing(res rollup.Resolution, class int64) bool {
	return x.s.retention.MayBeMissing(res, x.day.slot, x.tenant, class)
}

// writeAll writes the rows that were added, computes the rollups of all tasks and series, and then empties the lists of
// tasks and series.
//
// In a shared store, the chunks of the series are listed after the added chunks are durable. So if two processes seal a
// slot concurrently, the later one sees all chunks. In a store with one process, the seal holds the locks of the
// partitions, so no other writer adds chunks of these series. The chunks are therefore listed before the write, so that
// the listing finds chunks only in slots that were sealed before.
func (x *roller) writeAll() error {
	defer func() { clear(x.encoded) }()
	ahead := x.s.versions != nil && x.hasOwnChunks()
	if ahead {
		if err := x.listDependencies(); err != nil {
			return err
		}
	}
	if err := x.write(); err != nil {
		return err
	}
	if len(x.series) == 0 {
		return nil
	}
	defer func() {
		clear(x.series)
		x.series = x.series[:0]
	}()
	if x.finest == rollup.OneHour {
		return x.extendAll1h()
	}
	if err := x.makeAll5m(ahead); err != nil {
		return err
	}
	if err := x.write(); err != nil {
		return err
	}
	return x.makeAll1h()
}

// onlyExtendsRollups reports whether samples are only added to existing rollups, because their raw window has expired.
func (x *roller) onlyExtendsRollups() bool { return x.finest > rollup.Raw }

// makeAll5m computes the 5m chunks of all slots, and adds them to the next write. ahead is true if the chunks were
// listed before the tasks' own chunks were written.
func (x *roller) makeAll5m(ahead bool) error {
	if !x.hasTasks() {
		return nil
	}
	// Read the deletes after the chunks are durable. A delete that is created later finds the chunks when it recomputes
	// the rollups.
	hiding, err := x.s.deletesOf(x.ctx, x.tenant)
	if err != nil {
		return err
	}
	if ahead {
		x.listOwnChunks()
	} else if hiding, err = x.listBetweenDeletes(hiding); err != nil {
		return err
	}
	for _, slot := range slices.Sorted(maps.Keys(x.slots)) {
		in := x.slots[slot]
		in.hiding = hiding.InSlot(x.s.period, slot)
		for tasks := range slices.Chunk(in.tasks, maxHeldSeries) {
			if err := x.make5mOf(in, tasks, x.raw); err != nil {
				return err
			}
		}
	}
	return x.put5m()
}

// listBetweenDeletes lists the chunks after the deletes in hiding were read, and returns the deletes that match the
// list. In a store with one process, a delete may be removed at any time. The chunks and deletes are then read again
// until the deletes are the same before and after listing the chunks. Otherwise the list could contain chunks that
// don't name a delete because they were written after its removal, or miss chunks that were sealed before a delete.
func (x *roller) listBetweenDeletes(hiding format.Tombstones) (format.Tombstones, error) {
	for {
		if err := x.listDependencies(); err != nil || x.s.opts.Shared {
			return hiding, err
		}
		now, err := x.s.deletesOf(x.ctx, x.tenant)
		if err != nil || slices.EqualFunc(now, hiding, sameDelete) {
			return hiding, err
		}
		hiding = now
	}
}

// hasOwnChunks reports whether any task has chunks that this seal writes.
func (x *roller) hasOwnChunks() bool {
	for _, in := range x.slots {
		if slices.ContainsFunc(in.tasks, func(r rollupTask) bool { return len(r.own) > 0 }) {
			return true
		}
	}
	return false
}

func (x *roller) hasTasks() bool {
	for _, in := range x.slots {
		if len(in.tasks) > 0 {
			return true
		}
	}
	return false
}

// listDependencies lists the chunks that the rollups depend on, unless samples are only added to rollups. It needn't
// list shards that another writer adds concurrently: that writer sees all earlier writes when it computes the rollups.
func (x *roller) listDependencies() (err error) {
	if x.raw, err = x.s.shardsIn(x.ctx, x.day.into[rollup.Raw].window, x.tenant); err != nil {
		return err
	}
	if x.onlyExtendsRollups() {
		x.listed = nil
		return nil
	}
	first, last := int64(format.MaxTime), int64(-format.MaxTime)
	for _, in := range x.slots {
		first, last = min(first, in.into[rollup.Raw].start), max(last, in.into[rollup.Raw].start)
	}
	if x.listed == nil {
		x.listed = make(chunkList, len(x.series))
	}
	clear(x.listed)
	var all []seriesChunks
	for from := 0; from < len(x.series); {
		metric, to := x.series[from].series.Metric(), from
		var series []*Series
		for ; to < len(x.series) && x.series[to].series.Metric() == metric; to++ {
			series = append(series, x.series[to].series)
		}
		of := metricChunks{x.day.into[rollup.Raw].window, x.tenant, metric, x.raw.count(metric), first, last}
		all = append(all, seriesChunks{of, series})
		from = to
	}
	return x.s.listChunks(x.ctx, all, x.listed)
}

// listOwnChunks adds the tasks' own chunks to listed, which was read before these chunks were written.
func (x *roller) listOwnChunks() {
	if x.listed == nil {
		return
	}
	for _, in := range x.slots {
		for i := range in.tasks {
			r := &in.tasks[i]
			at := chunkKey{in.into[rollup.Raw].start, r.series.ID()}
			have := x.listed[at]
			for _, own := range r.own {
				if !slices.Contains(have.versions, own) { // An interrupted seal has already written it.
					have.versions = append(have.versions, own)
				}
			}
			if len(r.own) > 0 {
				x.listed[at] = have
			}
		}
	}
}

// put5m adds the 5m chunks to the next write in the order of series, which is also the order of stored rows, so that
// the labels of each series are written once.
func (x *roller) put5m() error {
	type slotTask struct {
		in *rolledSlot
		r  *rollupTask
	}
	n := 0
	for _, in := range x.slots {
		n += len(in.tasks)
	}
	all := make([]slotTask, 0, n)
	at := make(map[*Series]int, len(x.series)) // the index of each series, in the order of every slot's tasks
	for _, slot := range slices.Sorted(maps.Keys(x.slots)) {
		in := x.slots[slot]
		for i := range in.tasks {
			r := &in.tasks[i]
			if _, ok := at[r.series]; !ok {
				at[r.series] = len(at)
			}
			all = append(all, slotTask{in, r})
		}
	}
	slices.SortStableFunc(all, func(a, b slotTask) int { return cmp.Compare(at[a.r.series], at[b.r.series]) })
	isGone := map[int64]bool{} // by class
	for _, p := range all {
		gone, ok := isGone[p.r.class]
		if !ok {
			gone = x.mayBeMissing(rollup.Raw, p.r.class)
			isGone[p.r.class] = gone
		}
		if gone && p.r.fromRaw {
			return errRawExpired // See make5m.
		}
		if err := x.putRollup(p.in.fineRollup(), p.r); err != nil {
			return err
		}
	}
	x.resetTasks()
	return nil
}

func (x *roller) resetTasks() {
	for _, in := range x.slots {
		clear(in.tasks)
		in.tasks = in.tasks[:0]
	}
}

// putRollup adds a chunk to the next write. If the write is then full, it is executed.
func (x *roller) putRollup(to rollupOf, r *rollupTask) error {
	if r.chunk == nil {
		return nil
	}
	x.addLabels(r.collectedSeries, to.res, to.at.window)
	x.addRow(
		r.collectedSeries, to.res, to.at.window, rollupTimestamp(to.at.end, r.version),
		format.RollupKey(r.series.IDText(), to.at.start), r.chunk,
	)
	if x.bytes >= x.s.workSizes().piece.rollups {
		return x.write()
	}
	return nil
}

// makeAll1h computes and writes the 1h chunks of the series.
func (x *roller) makeAll1h() error {
	fine, err := x.s.shardsIn(x.ctx, x.day.into[rollup.FiveMinutes].window, x.tenant)
	if err != nil {
		return err
	}
	return x.writeAll1h(func(ctx context.Context, rolls []rollupTask, m *rollMemory) error {
		return x.make1hOf(ctx, rolls, fine, m)
	})
}

// extendAll1h adds the hours covered by the tasks' 5m chunks to the stored 1h chunks of the day, and writes the 1h
// chunks. It doesn't store the 5m chunks.
func (x *roller) extendAll1h() error {
	fine := make(map[format.SeriesID][][]byte, len(x.series))
	for _, slot := range slices.Sorted(maps.Keys(x.slots)) {
		for _, r := range x.slots[slot].tasks {
			fine[r.series.ID()] = append(fine[r.series.ID()], r.chunk)
		}
	}
	x.resetTasks()
	return x.writeAll1h(func(_ context.Context, rolls []rollupTask, m *rollMemory) error {
		for i := range rolls {
			if err := x.keepUnreadable(
				x.hourRollup(), &rolls[i], x.extend1h(&rolls[i], fine[rolls[i].series.ID()], m),
			); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeAll1h writes the 1h chunks of the series in x.series. The function fill computes the chunks of some of these
// series.
func (x *roller) writeAll1h(fill func(ctx context.Context, rolls []rollupTask, m *rollMemory) error) error {
	for _, c := range x.series {
		x.hours = append(x.hours, rollupTask{collectedSeries: c})
	}
	defer func() {
		clear(x.hours)
		x.hours = x.hours[:0]
	}()
	pieces := slices.Collect(slices.Chunk(x.hours, maxPiece1hSeries))
	err := x.forEachConcurrently(
		len(pieces), func(ctx context.Context, i int, m *rollMemory) error { return fill(ctx, pieces[i], m) },
	)
	if err != nil {
		return err
	}
	for i := range x.hours {
		if err := x.putRollup(x.hourRollup(), &x.hours[i]); err != nil {
			return err
		}
	}
	return x.write()
}

// rollMemory is reusable memory for computing rollups: the 5m chunks of a day, the series with unreadable chunks, the
// 5m buckets, and the 1h buckets.
type rollMemory struct {
	chunks      map[format.SeriesID][]rollupChunk
	unread      map[format.SeriesID]bool
	fine, hours rollup.Buckets
}

// forEachConcurrently calls f for each i from 0 to n-1, and passes reusable memory. If the engine is remote, the calls
// are concurrent.
func (x *roller) forEachConcurrently(n int, f func(ctx context.Context, i int, m *rollMemory) error) error {
	workers := x.s.opts.seams.workers(x.s.workSizes().rollWorkers)
	g, ctx := errgroup.WithContext(x.ctx)
	for w := range workers {
		g.Go(panics.WrapError("creating rollups", func() error {
			m := rollMemory{chunks: map[format.SeriesID][]rollupChunk{}, unread: map[format.SeriesID]bool{}}
			for i := w; i < n; i += workers {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := f(ctx, i, &m); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return g.Wait()
}

// setShards selects the shards in which the rollups of a metric's series are stored.
func (x *roller) setShards(metric string, list []collectedSeries) error {
	perPartition := len(list)/x.s.period.OfSlot(x.day.slot).Partitions + 1
	for _, res := range rollup.Resolutions {
		n, err := x.shardsFor(x.day.slot, res, metric, perPartition, int64(perPartition)*format.RollupBytes)
		if err != nil {
			return err
		}
		for i := range list {
			list[i].shards[res] = uint16(format.ShardOf(list[i].series.ID(), n))
		}
	}
	return nil
}

// shardsFor returns the number of shards of a metric in a window. If the series need more shards, it first increases
// the number.
func (x *roller) shardsFor(slot int64, res rollup.Resolution, metric string, series int, bytes int64) (int64, error) {
	of := shardedMetric{x.day.into[res].window, x.tenant, metric}
	known := max(1, x.s.shards.Value(of))
	n := x.s.period.OfSlot(slot).ShardsFor(res, series, bytes)
	if n <= known {
		return known, nil
	}
	before, err := x.s.readShards(x.ctx, of.window, of.tenant, metric)
	if err != nil {
		return 0, err
	}
	n = max(n, before)
	if err := x.s.eng.Write(x.ctx, []engine.Batch{format.ShardsRow(of.window, of.tenant, of.metric, n)}); err != nil {
		return 0, fmt.Errorf("storage: writing the shards of metric %q: %w", of.metric, err)
	}
	x.s.shards.Change(of, func(before int64) int64 { return max(before, n) })
	return n, nil
}

// cacheShards caches a metric's stored number of shards, unless the cache already contains it. An earlier process may
// have stored the number.
func (x *roller) cacheShards(res rollup.Resolution, metric string) error {
	of := shardedMetric{x.day.into[res].window, x.tenant, metric}
	if _, ok := x.s.shards.Get(of); ok {
		return nil
	}
	n, err := x.s.readShards(x.ctx, of.window, of.tenant, metric)
	if err != nil {
		return err
	}
	x.s.shards.Change(of, func(before int64) int64 { return max(before, n) })
	return nil
}
