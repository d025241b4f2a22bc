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

// piece1h is for how many series the 5m chunks of a day are read together.
const piece1h = 512

// roller makes rollups of a tenant's series in slots of one day, from their sealed chunks:
//
//	what waits is written ─► 5m of the tasks of all slots ─► durable ─► 1h of the day, once for each series
//
// Seals, imports, the making of what lacks rollups, and deletes that trim buckets run it.
type roller struct {
	*rowWriter
	tenant string
	slots  map[int64]*rolledSlot
	// series are those whose 1h chunks are made.
	series []*collected
	day    *sealedSlot // a slot of the day

	// rollupsOnly is true if the window of raw rows is over: there are only rollups to fill up.
	rollupsOnly bool
	// leftOut is the number of samples that only rollups were to be made of, and that were in none: see rollup.Extend.
	leftOut atomic.Int64
	// due are the deletes that the day's 1h chunks were made without, by slot: what came to a slot after a delete was applied there is
	// not deleted. unread takes those of chunks that can't be read.
	due    map[int64]format.Tombstones
	unread unreadDeletes
	// unreadMu is the lock of unread.
	unreadMu sync.Mutex
	// listed are the chunks that 5m rollups depend on, and raw the shards that they were found in.
	listed chunkList
	raw    metricShards
	hours  []rollupTask // to work in
}

func newRoller(w *rowWriter, tenant string, slot int64) *roller {
	return &roller{rowWriter: w, tenant: tenant, slots: map[int64]*rolledSlot{}, day: newSealedSlot(w.ctx, w.s, slot)}
}

// in returns a slot of the day.
func (x *roller) in(slot int64) *rolledSlot {
	in := x.slots[slot]
	if in == nil {
		in = newRolledSlot(x.ctx, x.s, slot)
		x.slots[slot] = in
	}
	return in
}

// rolledSlot is a slot of which rollups are made.
type rolledSlot struct {
	*sealedSlot
	tasks []rollupTask
	// due are deletes that the slot's rollups were made without; forDue is true if rollups are made anew only for these.
	due    format.Tombstones
	forDue bool
	// hiding are the deletes that the rollups must apply; they are read last.
	hiding format.Tombstones
}

func newRolledSlot(ctx context.Context, s *Store, slot int64) *rolledSlot {
	return &rolledSlot{sealedSlot: newSealedSlot(ctx, s, slot)}
}

// rollupOf is where a rollup chunk of a series is, and the deletes that it was made without, by slot.
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

// dueOf returns the deletes of one series, by slot.
func (to rollupOf) dueOf(s *Series) map[int64]format.Tombstones {
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

// trimDue removes the buckets that deletes cover, by slot, and reports whether there were any.
func (x *roller) trimDue(due map[int64]format.Tombstones, b *rollup.Buckets) bool {
	return len(due) > 0 && format.TrimBuckets(b, func(end int64) format.Tombstones { return due[x.s.period.SlotOf(end)] })
}

func (x *roller) hourRollup() rollupOf {
	return rollupOf{rollup.OneHour, x.day.into[rollup.OneHour], x.due}
}

// isGone reports whether the rows of a class may be gone from the window that holds the day.
func (x *roller) isGone(res rollup.Resolution, class int64) bool {
	return x.s.retention.IsGone(res, x.day.slot, x.tenant, class)
}

// run writes what waits to be written, and makes the rollups of all tasks and series, which it forgets.
//
// The chunks of the series are listed when they are durable, so that of two processes that seal a slot at once the later one sees
// all. Where this process alone writes rows, it holds the locks of the partitions, so that nobody else writes chunks of these series:
// then the list is made before, and finds nothing at all but in slots that were sealed in part.
func (x *roller) run() error {
	defer func() { clear(x.encoded) }()
	ahead := x.s.versions != nil && x.hasTasks()
	if ahead {
		if err := x.list(); err != nil {
			return err
		}
	}
	if err := x.write(); err != nil {
		return err
	}
	if len(x.series) == 0 {
		return nil
	}
	if err := x.makeAll5m(ahead); err != nil {
		return err
	}
	if err := x.write(); err != nil {
		return err
	}
	err := x.makeAll1h()
	clear(x.series)
	x.series = x.series[:0]
	return err
}

// makeAll5m makes the 5m chunks of all slots, and adds them to the next write. ahead is true if chunks were listed before those of
// the tasks were written.
func (x *roller) makeAll5m(ahead bool) error {
	if !x.hasTasks() {
		return nil
	}
	// After the chunks are durable: whoever deletes from now on sees them when it makes rollups anew.
	hiding, err := x.s.deletesOf(x.ctx, x.tenant)
	if err != nil {
		return err
	}
	if ahead {
		x.listOwn()
	} else if err := x.list(); err != nil {
		return err
	}
	for _, slot := range slices.Sorted(maps.Keys(x.slots)) {
		in := x.slots[slot]
		in.hiding = hiding.InSlot(x.s.period, slot)
		for tasks := range slices.Chunk(in.tasks, sealedHeld) {
			if err := x.make5mOf(in, tasks, x.raw); err != nil {
				return err
			}
		}
	}
	return x.put5m()
}

func (x *roller) hasTasks() bool {
	for _, in := range x.slots {
		if len(in.tasks) > 0 {
			return true
		}
	}
	return false
}

// list lists the chunks that rollups of the series depend on, if they depend on any. Whoever writes to a shard that isn't listed yet
// will see all earlier writes.
func (x *roller) list() (err error) {
	if x.raw, err = x.s.shardsIn(x.ctx, x.day.into[rollup.Raw].window, x.tenant); err != nil {
		return err
	}
	if x.rollupsOnly {
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
		of := metricChunks{x.day.into[rollup.Raw].window, x.tenant, metric, x.raw.of(metric), first, last}
		all = append(all, seriesChunks{of, series})
		from = to
	}
	return x.s.listChunks(x.ctx, all, x.listed)
}

// listOwn adds the tasks' own chunks to the list.
func (x *roller) listOwn() {
	if x.listed == nil {
		return
	}
	for _, in := range x.slots {
		for i := range in.tasks {
			r := &in.tasks[i]
			at := chunkAt{in.into[rollup.Raw].start, r.series.ID()}
			have := x.listed[at]
			for _, own := range r.own {
				if !slices.Contains(have.versions, own) { // It is there already if a seal was cut short.
					have.versions = append(have.versions, own)
				}
			}
			if len(r.own) > 0 {
				x.listed[at] = have
			}
		}
	}
}

// put5m adds the 5m chunks to the next write: series by series, as they are stored, so that each is labeled once.
func (x *roller) put5m() error {
	type place struct {
		in *rolledSlot
		r  *rollupTask
	}
	n := 0
	for _, in := range x.slots {
		n += len(in.tasks)
	}
	all := make([]place, 0, n)
	at := make(map[*Series]int, len(x.series)) // the order of series, which is that of each slot's
	for _, slot := range slices.Sorted(maps.Keys(x.slots)) {
		in := x.slots[slot]
		for i := range in.tasks {
			r := &in.tasks[i]
			if _, ok := at[r.series]; !ok {
				at[r.series] = len(at)
			}
			all = append(all, place{in, r})
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(at[a.r.series], at[b.r.series]) })
	for _, p := range all {
		if err := x.putRollup(p.in.fineRollup(), p.r); err != nil {
			return err
		}
	}
	for _, in := range x.slots {
		clear(in.tasks)
		in.tasks = in.tasks[:0]
	}
	return nil
}

// putRollup adds a chunk to the next write, and writes when it is full.
func (x *roller) putRollup(to rollupOf, r *rollupTask) error {
	if r.chunk == nil {
		return nil
	}
	x.label(r.collected, to.res, to.at.window)
	x.put(r.collected, to.res, to.at.window, rollupTimestamp(to.at.end, r.version), format.RollupKey(r.series.IDText(), to.at.start), r.chunk)
	if x.bytes >= x.s.distance().piece.rollups {
		return x.write()
	}
	return nil
}

// makeAll1h makes and writes the 1h chunks of the series.
func (x *roller) makeAll1h() error {
	fine, err := x.s.shardsIn(x.ctx, x.day.into[rollup.FiveMinutes].window, x.tenant)
	if err != nil {
		return err
	}
	for _, c := range x.series {
		x.hours = append(x.hours, rollupTask{collected: c})
	}
	defer func() {
		clear(x.hours)
		x.hours = x.hours[:0]
	}()
	pieces := slices.Collect(slices.Chunk(x.hours, piece1h))
	err = x.sideBySide(len(pieces), func(ctx context.Context, i int, m *rollMemory) error {
		return x.make1hOf(ctx, pieces[i], fine, m)
	})
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

// rollMemory is memory to make rollups in: of a day's 5m chunks, of the series that have some which can't be read, of their buckets, and of those of
// its 1h chunk.
type rollMemory struct {
	chunks      map[format.SeriesID][]rollupChunk
	unread      map[format.SeriesID]bool
	fine, hours rollup.Buckets
}

// sideBySide calls f n times, side by side where the engine is far away, with memory to work in.
func (x *roller) sideBySide(n int, f func(ctx context.Context, i int, m *rollMemory) error) error {
	workers := x.s.opts.seams.workers(x.s.distance().rollWorkers)
	g, ctx := errgroup.WithContext(x.ctx)
	for w := range workers {
		g.Go(panics.AsError("creating rollups", func() error {
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

// destine finds the shards in which the rollups of a metric's series go.
func (x *roller) destine(metric string, list []collected) error {
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

// shardsFor makes sure that a metric has the shards it needs in the window of a resolution.
func (x *roller) shardsFor(slot int64, res rollup.Resolution, metric string, series int, bytes int64) (int64, error) {
	of := shardedMetric{x.day.into[res].window, x.tenant, metric}
	known := max(1, x.s.shards.At(of))
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

// recallShards reads how many shards a metric got before this process was started, unless that is remembered.
func (x *roller) recallShards(res rollup.Resolution, metric string) error {
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
