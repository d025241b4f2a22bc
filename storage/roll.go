package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// rollupTask is a series whose rollups follow from what was sealed of it.
//
//	chunks of the slot ──► the slot's 5m chunk ──► with the day's other 5m chunks: the day's 1h chunk
//
// Each is computed from what is read back after the step before was durable, whole buckets at a time, so of
// two sealers at once the later one sees all. Its version says how much it saw, and the highest wins: a 5m
// chunk's is how many chunks it was computed from, a 1h chunk's the sum of its 5m chunks'.
type rollupTask struct {
	*collected
	// own are the versions of the chunks that this seal has written, and exempt the deletes that they name.
	own    []string
	exempt format.TombstoneIDs
	// chunk is the rollup to write next: at first the slot's 5m chunk as it is if there are no other chunks.
	// nil: there is none.
	chunk   []byte
	version uint64
}

// rollFine writes the 5m chunks, rollCoarse the 1h chunks after them.
func (x *sealer) rollFine() error {
	if len(x.tasks) == 0 {
		return nil
	}
	hiding, raw, err := x.beforeFine(x.tasks[0].series.Tenant())
	if err != nil {
		return err
	}
	if err := x.makeAll5m(hiding, raw); err != nil {
		return err
	}
	return x.writeRollups(rollup.FiveMinutes)
}

// beforeFine reads what 5m chunks depend on besides chunks.
func (x *sealer) beforeFine(tenant string) (format.Tombstones, metricShards, error) {
	// After the chunks are durable: whoever deletes from now on sees them when it makes rollups anew.
	hiding, err := x.s.deletesOf(x.ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	// Likewise: whoever wrote to a shard that isn't listed yet will see them.
	raw, err := x.s.shardsIn(x.ctx, x.into[rollup.Raw].window, tenant)
	return hiding, raw, err
}

// makeAll5m makes the 5m chunks, applying deletes.
func (x *sealer) makeAll5m(hiding format.Tombstones, raw metricShards) error {
	x.hiding = hiding.InSlot(x.s.period, x.work.Slot)
	return x.each(func(r *rollupTask, b *rollup.Buckets) error { return x.make5m(r, raw.of(r.series.Metric()), b) })
}

func (x *sealer) makeAll1h() error {
	if len(x.tasks) == 0 {
		return nil
	}
	tenant := x.tasks[0].series.Tenant()
	fine, err := x.s.shardsIn(x.ctx, x.into[rollup.FiveMinutes].window, tenant)
	if err != nil {
		return err
	}
	pieces := slices.Collect(slices.Chunk(x.tasks, piece1h))
	err = x.sideBySide(len(pieces), func(ctx context.Context, i int, b *rollup.Buckets) error {
		return x.make1hOf(ctx, pieces[i], fine, b)
	})
	if err != nil {
		return err
	}
	return x.writeRollups(rollup.OneHour)
}

// each calls f for every series.
func (x *sealer) each(f func(*rollupTask, *rollup.Buckets) error) error {
	return x.sideBySide(len(x.tasks), func(_ context.Context, i int, b *rollup.Buckets) error { return f(&x.tasks[i], b) })
}

// sideBySide calls f n times, side by side where the engine is far away, with buckets to work in.
func (x *sealer) sideBySide(n int, f func(ctx context.Context, i int, b *rollup.Buckets) error) error {
	workers := 1
	if x.s.opts.Shared {
		workers = x.s.opts.seams.workers(readWorkers)
	}
	g, ctx := errgroup.WithContext(x.ctx)
	for w := range workers {
		g.Go(func() error {
			var b rollup.Buckets
			for i := w; i < n; i += workers {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := f(ctx, i, &b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// writeRollups writes the chunks of all series at a resolution.
func (x *sealer) writeRollups(res rollup.Resolution) error {
	if err := x.putRollups(res); err != nil {
		return err
	}
	return x.write()
}

// putRollups adds them to what is written next.
func (x *sealer) putRollups(res rollup.Resolution) error {
	for i := range x.tasks {
		if err := x.putRollup(res, &x.tasks[i]); err != nil {
			return err
		}
	}
	return nil
}

func (x *sealer) putRollup(res rollup.Resolution, r *rollupTask) error {
	if r.chunk == nil {
		return nil
	}
	at := x.into[res]
	x.label(r.collected, res)
	x.put(r.collected, res, rollupTimestamp(at.end, r.version), format.RollupKey(r.series.ID().String(), at.start), r.chunk)
	if x.bytes >= x.s.sealPiece().rollups {
		return x.write()
	}
	return nil
}

// make5mOfDay makes the 5m chunks of the slots of a day, applying deletes, and adds them to what is written next: series by series, as
// they are stored, so that each is labeled once.
func make5mOfDay(day map[int64]*sealer, hiding format.Tombstones, raw metricShards) error {
	slots := slices.Sorted(maps.Keys(day))
	for _, slot := range slots {
		if err := day[slot].makeAll5m(hiding, raw); err != nil {
			return err
		}
	}
	type place struct {
		x *sealer
		r *rollupTask
	}
	var all []place
	at := map[*Series]int{} // the order of series, which is that of each slot's
	for _, slot := range slots {
		x := day[slot]
		for i := range x.tasks {
			r := &x.tasks[i]
			if _, ok := at[r.series]; !ok {
				at[r.series] = len(at)
			}
			all = append(all, place{x, r})
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(at[a.r.series], at[b.r.series]) })
	for _, p := range all {
		if err := p.x.putRollup(rollup.FiveMinutes, p.r); err != nil {
			return err
		}
	}
	for _, x := range day {
		clear(x.tasks)
		x.tasks = x.tasks[:0]
	}
	return nil
}

// rollupTimestamp makes the highest version win, and keeps rows of one time together.
func rollupTimestamp(endMS int64, version uint64) int64 {
	return endMS*1000 + int64(min(version, 1<<30))
}

// build makes the slot's 5m chunk of all samples that a series has there.
func (x *sealer) build(samples *chunk.Samples, version uint64) []byte {
	x.buckets.Reset()
	rollup.AppendEvery(&x.buckets, samples, rollup.FiveMinutes.Width())
	return appendRollup(&x.buckets, rollup.FiveMinutes, version)
}

// appendRollup encodes buckets. Where histograms make them larger than a row may be, these must be answered
// from samples.
func appendRollup(b *rollup.Buckets, res rollup.Resolution, version uint64) []byte {
	if len(b.End) == 0 {
		return nil
	}
	value := rollup.AppendChunk(nil, b, res.Width(), version)
	if len(value) <= engine.MaxValue/2 {
		return value
	}
	for i := range b.Flags {
		if b.Flags[i]&rollup.HasHistograms != 0 {
			b.Flags[i] = b.Flags[i]&^rollup.HasHistograms | rollup.NotSimple
			// What is left is what the floats of the bucket make, and there are none.
			b.Count[i], b.FirstT[i], b.LastT[i], b.Resets[i], b.Changes[i] = 0, 0, 0, 0, 0
			if b.FirstST != nil {
				b.FirstST[i], b.LastST[i] = 0, 0
			}
		}
	}
	b.Histograms = nil
	return rollup.AppendChunk(nil, b, res.Width(), version)
}

// appendOrEmpty encodes buckets, or that there are none any more.
func appendOrEmpty(b *rollup.Buckets, res rollup.Resolution, version uint64) []byte {
	if value := appendRollup(b, res, version); value != nil {
		return value
	}
	return rollup.AppendEmpty(nil, version)
}

// make5m sets the 5m chunk of a series from all of the slot's sealed chunks.
func (x *sealer) make5m(r *rollupTask, shards int64, b *rollup.Buckets) error {
	if x.rawExpired {
		return x.fill(rollup.FiveMinutes, r, b)
	}
	found, err := x.versionsOf(r.series, shards)
	if err != nil {
		return err
	}
	if len(found) == 0 && r.chunk == nil {
		return x.fill(rollup.FiveMinutes, r, b) // If there is a rollup, its samples are gone.
	}
	for _, own := range r.own {
		if !slices.Contains(found, own) {
			return x.fill(rollup.FiveMinutes, r, b) // Its window has expired just now.
		}
	}
	hiding := x.hiding.OfSeries(r.series.Labels())
	version := uint64(len(r.own)) * r.exempt.Weight(hiding)
	asIs := len(found) == len(r.own) && r.chunk != nil && len(r.exempt.Applying(hiding)) == 0
	var samples chunk.Samples
	if !asIs {
		if version, err = x.readVisible(r.series, shards, hiding, &samples); err != nil {
			return err
		}
	}
	if lost, err := x.lost(rollup.FiveMinutes, r, version); err != nil || lost {
		return cmp.Or(err, x.fill(rollup.FiveMinutes, r, b))
	}
	r.version = version
	if asIs {
		return nil
	}
	samples.Normalize()
	b.Reset()
	if samples.Len() > 0 {
		rollup.AppendEvery(b, &samples, rollup.FiveMinutes.Width())
	}
	if err := x.keepVanished(r, shards, b); err != nil {
		return err
	}
	if r.chunk = appendRollup(b, rollup.FiveMinutes, r.version); r.chunk == nil && r.version > uint64(len(found)) {
		r.chunk = rollup.AppendEmpty(nil, r.version) // All of it was deleted.
	}
	return nil
}

// versionsOf lists the slot's sealed chunks of a series.
func (x *sealer) versionsOf(s *Series, shards int64) (found []string, err error) {
	if x.listed != nil {
		return x.listed[chunkAt{x.into[rollup.Raw].start, s.ID()}], nil
	}
	err = x.eachSealed(s, shards, true, func(row engine.Row) error {
		found = append(found, string([]byte(row.Clustering[3].Text)))
		return nil
	})
	return found, err
}

// readVisible appends what isn't deleted of the slot's sealed chunks of a series, and returns what they weigh together.
func (x *sealer) readVisible(s *Series, shards int64, hiding format.Tombstones, into *chunk.Samples) (version uint64, err error) {
	err = x.eachSealed(s, shards, false, func(row engine.Row) error {
		c, err := format.DecodeRawChunk(row.Value, hiding, into)
		version += c.Exempt.Weight(hiding)
		if errors.Is(err, chunk.ErrCorrupt) {
			return nil // Whoever reads it names it.
		}
		return err
	})
	return version, err
}

// lost says whether the stored rollup of a series may have been computed from rows that are gone, though those
// of its class are there: it was in another one before. version is how much is there.
func (x *sealer) lost(res rollup.Resolution, r *rollupTask, version uint64) (bool, error) {
	tenant, gone := r.series.Tenant(), uint64(0)
	if x.s.classes.count() == 1 {
		return false, nil
	}
	for class := range x.s.classes.count() {
		if class != r.class && x.isGone(res-1, tenant, class) {
			gone |= 1 << class
		}
	}
	if gone == 0 && !x.resealed {
		return false, nil
	}
	at := x.into[res]
	shards, err := x.s.readShards(x.ctx, at.window, tenant, r.series.Metric())
	if err != nil {
		return false, err
	}
	rows, err := x.s.rollupRows(x.ctx, res, at.window, r.series, shards, at.start, at.start)
	return slices.ContainsFunc(rows, func(c rollupChunk) bool {
		return gone&(1<<c.class) != 0 || c.version > version
	}), err
}

// fill takes deleted buckets out of the stored chunk of a series, and adds those that it lacks: what it was computed from is
// gone, and that was more than what there is now.
func (x *sealer) fill(res rollup.Resolution, r *rollupTask, b *rollup.Buckets) error {
	due := x.due.OfSeries(r.series.Labels())
	if r.chunk == nil && len(due) == 0 {
		return nil
	}
	kept, version, err := x.stored(res, r)
	if err != nil || version == 0 {
		r.version = max(r.version, 1)
		return err
	}
	*b = *kept
	changed := due.HideBuckets(b, 0, res.Width())
	if r.chunk != nil && !x.forDue {
		var add, all rollup.Buckets
		if err := rollup.Decode(r.chunk, rollup.AllColumns, &add); err != nil {
			return err
		}
		before := b.Len()
		rollup.Merge(&all, b, &add, rollup.AllColumns)
		changed, b = changed || all.Len() > before, &all
	}
	r.chunk, r.version = nil, version+1
	if changed {
		r.chunk = appendOrEmpty(b, res, r.version)
	}
	return nil
}

// make1h sets the 1h chunk of a series from all 5m chunks of the day.
func (x *sealer) make1h(r *rollupTask, chunks []rollupChunk, b *rollup.Buckets) error {
	b.Reset()
	r.version = 0
	for _, c := range chunks {
		if err := rollup.Decode(c.data, rollup.AllColumns, b); err != nil {
			x.s.corrupt(engine.R5m, &CorruptRowError{
				Table: engine.R5m, Window: x.into[rollup.FiveMinutes].window, Tenant: r.series.Tenant(),
				Metric: r.series.Metric(), Series: r.series.ID().String(), Start: c.start, Err: err,
			})
			continue
		}
		r.version += c.version
	}
	var hours rollup.Buckets
	rollup.Coarsen(&hours, b, rollup.OneHour.Width())
	if r.chunk = appendRollup(&hours, rollup.OneHour, r.version); r.chunk == nil && r.version > 0 {
		r.chunk = rollup.AppendEmpty(nil, r.version)
	}
	if len(chunks) == 0 {
		return x.fill(rollup.OneHour, r, b)
	}
	if lost, err := x.lost(rollup.OneHour, r, r.version); err != nil || lost {
		return cmp.Or(err, x.fill(rollup.OneHour, r, b))
	}
	return x.keepHours(r, chunks, &hours)
}

// rollupChunk is a rollup chunk as it is stored.
type rollupChunk struct {
	class   int64
	start   int64
	version uint64
	data    []byte
}

// rollups reads the rollup chunks of a series in a window that start from one time to another, in order. Where
// a metric's shards have become more, or the series was in another class, there may be two of a start: that with
// the higher version counts.
func (s *Store) rollups(ctx context.Context, res rollup.Resolution, window int64, series *Series, shards, from, to int64) ([]rollupChunk, error) {
	found, err := s.rollupRows(ctx, res, window, series, shards, from, to)
	return bestOfEach(found), err
}

// rollupRows reads all of them, of one start that with the highest version first.
func (s *Store) rollupRows(ctx context.Context, res rollup.Resolution, window int64, series *Series, shards, from, to int64) ([]rollupChunk, error) {
	var found []rollupChunk
	id := series.ID().String()
	for at := range s.placesOf(series.ID(), shards) {
		for row, err := range s.eng.Scan(ctx, engine.Range{
			Table: format.TableOf(res), Partition: format.SeriesPartition(window, series.Tenant(), series.Metric(), at),
			From: format.RollupKey(id, from), To: format.RollupKey(id, to),
		}) {
			if err != nil {
				return nil, fmt.Errorf("storage: reading %s of metric %q, tenant %q, from %s on: %w", format.TableOf(res).Name, series.Metric(), series.Tenant(),
					time.UnixMilli(from).UTC().Format(time.RFC3339), err)
			}
			found = append(found, rollupChunkOf(at, row))
		}
	}
	sortRollups(found)
	return found, nil
}

func rollupChunkOf(at format.ClassShard, row engine.Row) rollupChunk {
	info, err := rollup.Header(row.Value)
	if err != nil {
		info.Version = 0 // Any other is better; Decode names it.
	}
	return rollupChunk{class: at.Class(), start: row.Clustering[2].Int, version: info.Version, data: slices.Clone(row.Value)}
}

// sortRollups sorts chunks by start, of one start that with the highest version first.
func sortRollups(list []rollupChunk) {
	slices.SortStableFunc(list, func(a, b rollupChunk) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.version, a.version))
	})
}

// bestOfEach sorts chunks, and keeps of each start the one that counts.
func bestOfEach(list []rollupChunk) []rollupChunk {
	sortRollups(list)
	return slices.CompactFunc(list, func(a, b rollupChunk) bool { return a.start == b.start })
}
