package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// rollupTask is a series whose rollups are computed from its sealed chunks.
//
//	chunks of the slot ──► the slot's 5m chunk ──► with the day's other 5m chunks: the day's 1h chunk
//
// Each step computes whole buckets, from rows that are listed or read back after the previous step was durable. So if
// two processes seal concurrently, the later one sees all rows. With a single process, the chunks are listed earlier,
// see writeAll. The version of a 5m chunk is the sum of the weights of the raw chunks from which it was computed (see
// TombstoneIDs.Weight), and the version of a 1h chunk is the sum of the versions of its 5m chunks. The highest version
// wins.
type rollupTask struct {
	*collectedSeries
	// own are the versions of the chunks that this seal has written. exempt are the deletes that these chunks name.
	own    []string
	exempt format.TombstoneIDs
	// chunk is the rollup to write next, or nil if there is none. Initially it is the 5m chunk computed from the
	// samples in own. That chunk is final if the slot has no other chunks.
	chunk   []byte
	version uint64
	// fromRaw is true if chunk was computed from samples. unread is true if some of the raw chunks are unreadable.
	fromRaw, unread bool
	// listed are the series' chunks in the slot if they were listed a second time. It is nil if the roller's list is
	// valid.
	listed *listedChunks
}

// rollupSource is the source from which a series' 5m chunk in a slot is computed.
type rollupSource uint8

const (
	fromRollup rollupSource = iota // the stored rollup, whose samples are missing or never existed; see extend5m
	fromTask                       // the samples written by this seal, whose 5m chunk is in the task
	fromChunks                     // the slot's sealed chunks
)

// sourceOf selects the source of a series' 5m chunk from the listed chunks. hiding are the deletes of the series that
// the rollup must apply.
func (x *roller) sourceOf(in *rolledSlot, r *rollupTask, hiding format.Tombstones) rollupSource {
	listed := x.listedChunksOf(in, r)
	found := listed.versions
	if x.onlyExtendsRollups() || len(found) == 0 && r.chunk == nil {
		return fromRollup
	}
	for _, own := range r.own {
		if !slices.Contains(found, own) {
			return fromRollup // The raw window has expired in the meantime.
		}
	}
	if len(found) == len(r.own) && !listed.unread && r.chunk != nil && len(r.exempt.SelectApplying(hiding)) == 0 {
		return fromTask
	}
	return fromChunks
}

// listedChunksOf returns a series' sealed chunks in the slot.
func (x *roller) listedChunksOf(in *rolledSlot, r *rollupTask) listedChunks {
	if r.listed != nil {
		return *r.listed
	}
	return x.listed[chunkKey{in.into[rollup.Raw].start, r.series.ID()}]
}

// make5mOf computes and sets the 5m chunks of some tasks of a slot.
func (x *roller) make5mOf(in *rolledSlot, tasks []rollupTask, raw metricShards) error {
	sealed, err := x.readSealedChunks(in, tasks, raw)
	if err != nil {
		return err
	}
	return x.forEachConcurrently(len(tasks), func(_ context.Context, i int, m *rollMemory) error {
		r := &tasks[i]
		return x.keepUnreadable(in.fineRollup(), r, x.make5m(in, r, raw.count(r.series.Metric()), sealed, &m.fine))
	})
}

// readSealedChunks reads the slot's sealed chunks for the tasks whose rollups are computed from them.
func (x *roller) readSealedChunks(in *rolledSlot, tasks []rollupTask, raw metricShards) (sealedChunks, error) {
	var need []rollupTask
	for i := range tasks {
		if r := &tasks[i]; x.sourceOf(in, r, in.hiding.OfSeries(r.series.Labels())) == fromChunks {
			need = append(need, *r)
		}
	}
	var mu sync.Mutex
	all := sealedChunks{}
	pieces := slices.Collect(slices.Chunk(need, maxReadSeries))
	return all, x.forEachConcurrently(len(pieces), func(ctx context.Context, i int, _ *rollMemory) error {
		found := sealedChunks{}
		if err := in.readChunks(ctx, groupByMetric(pieces[i]), raw, found); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(all, found)
		return nil
	})
}

// make5m computes a series' 5m chunk in a slot from the source that sourceOf selects. sealed contains the chunks that
// readSealedChunks has read.
func (x *roller) make5m(
	in *rolledSlot, r *rollupTask, shards int64, sealed sealedChunks, b *rollup.Buckets,
) (err error) {
	to, hiding := in.fineRollup(), in.hiding.OfSeries(r.series.Labels())
	from := x.sourceOf(in, r, hiding)
	if from == fromRollup && !x.onlyExtendsRollups() && len(r.own) > 0 {
		// Return an error, because the stored rollup must not be changed here. Only one process at a time may change
		// rollups without samples, after it has applied the deletes.
		return errRawExpired
	}
	if from == fromRollup {
		nothing := !x.onlyExtendsRollups() && r.chunk == nil
		if err := x.extend5m(to, r, nil, b); err != nil || r.chunk == nil || !nothing {
			return err
		}
		// The listing found no chunks, but another seal may have added the series' first chunks since. In this case the
		// stored rollup contains samples to which no delete applies. The chunks may be in a shard that was added since.
		if shards, err = x.s.readShards(x.ctx, in.into[rollup.Raw].window, x.tenant, r.series.Metric()); err != nil {
			return err
		}
		if came, err := x.relistChunks(in, r, shards, &sealed); err != nil || !came {
			return err
		}
		r.chunk, r.version = nil, 0
		return x.make5m(in, r, shards, sealed, b)
	}
	r.fromRaw = true
	version := uint64(len(r.own)) * r.exempt.Weight(hiding)
	var samples chunk.Samples
	if from == fromChunks {
		at := chunkKey{in.into[rollup.Raw].start, r.series.ID()}
		var corrupt, err error
		if version, corrupt, err = versionedSamples(sealed[at].values, hiding, &samples); err != nil {
			return err
		}
		if corrupt != nil {
			x.s.damage.RecordOnce(
				engine.Raw, r.corruptChunkError(engine.Raw, in.into[rollup.Raw].window, at.start, corrupt),
			)
		}
		r.unread = corrupt != nil || sealed[at].unread || x.listedChunksOf(in, r).unread
	}
	r.version = version
	if from == fromTask {
		return nil
	}
	samples.Normalize()
	b.Reset()
	if samples.Len() > 0 {
		rollup.AppendStored(b, &samples, r.series.Metric(), rollup.FiveMinutes.Width())
	}
	if err := x.keepUnread5m(in, r, shards, b); err != nil {
		return err
	}
	r.chunk = appendRollup(b, rollup.FiveMinutes, r.version)
	if r.chunk == nil && r.version > uint64(len(x.listedChunksOf(in, r).versions)) {
		r.chunk = rollup.AppendEmpty(nil, r.version) // All samples were deleted.
	}
	return nil
}

// relistChunks lists a series' chunks in a slot a second time, if the first listing found none. It reports whether
// there are chunks now, and stores them in sealed.
func (x *roller) relistChunks(
	in *rolledSlot, r *rollupTask, shards int64, sealed *sealedChunks,
) (came bool, err error) {
	found := sealedChunks{}
	if err := in.readMetricChunks(x.ctx, []*Series{r.series}, shards, found); err != nil {
		return false, err
	}
	chunks := found[chunkKey{in.into[rollup.Raw].start, r.series.ID()}]
	r.listed = &listedChunks{unread: chunks.unread}
	for _, value := range chunks.values {
		r.listed.versions = append(r.listed.versions, format.RowVersion(value))
	}
	*sealed = found
	return len(chunks.values) > 0, nil
}

// extend5m removes deleted buckets from a series' stored chunk, and adds the buckets of r.chunk that are missing there,
// like rollup.Extend. It sets r.chunk to the result, or to nil if the stored chunk is unchanged. If there is no stored
// chunk, it leaves r.chunk as it is. The stored chunk can't be recomputed, because some of its source rows no longer
// exist. extend5m is also used for 1h chunks. add contains the buckets to add if they are narrower than those of
// r.chunk; otherwise it is nil. b is reused memory.
func (x *roller) extend5m(to rollupOf, r *rollupTask, add, b *rollup.Buckets) error {
	due := to.dueDeletes(r.series)
	if r.chunk == nil && len(due) == 0 {
		return nil
	}
	kept, version, err := x.readStored(to, r)
	// If the stored rollup is unreadable, the new samples replace it, because they aren't stored elsewhere. Importing
	// the history again restores the rest of the rollup.
	if x.onlyExtendsRollups() && r.chunk != nil && errors.Is(err, errUnread) {
		kept, err = &rollup.Buckets{}, nil
	}
	if err != nil || version == 0 {
		r.version = max(r.version, 1)
		return err
	}
	*b = *kept
	changed := x.trimDue(due, b)
	if r.chunk != nil {
		if add == nil {
			add = &rollup.Buckets{}
			if err := rollup.Decode(r.chunk, rollup.AllColumns, add); err != nil {
				return err
			}
		}
		var all rollup.Buckets
		before := b.Len()
		extended, left := rollup.Extend(&all, b, add, to.res.Width())
		if to.res == x.finest {
			x.leaveOut(left)
		}
		changed, b = changed || extended > 0 || all.Len() > before, &all
	}
	r.chunk, r.version = nil, version+1
	if changed {
		r.chunk = appendOrEmpty(b, to.res, r.version)
	}
	return nil
}

// keepUnreadable handles the error of a task. If err is errUnread, it removes the task's chunk, so that the stored
// rollup is kept unchanged, and returns nil. Otherwise it returns err.
func (x *roller) keepUnreadable(to rollupOf, r *rollupTask, err error) error {
	if errors.Is(err, errUnread) {
		x.unreadMu.Lock()
		defer x.unreadMu.Unlock()
		for _, ds := range to.dueDeletes(r.series) {
			x.unread.add(ds, err)
		}
		r.chunk = nil
		return nil
	}
	return err
}

// make1hOf computes and sets the 1h chunks of some series, from all their 5m chunks of the day.
func (x *roller) make1hOf(ctx context.Context, rolls []rollupTask, fine metricShards, m *rollMemory) error {
	clear(m.chunks)
	clear(m.unread)
	var all []seriesChunks
	for metric, series := range groupByMetric(rolls) {
		all = append(all, x.fineChunksOf(fine.count(metric), series))
	}
	if err := x.s.read5mChunks(ctx, all, m.chunks, m.unread); err != nil {
		return err
	}
	for i := range rolls {
		r := &rolls[i]
		id := r.series.ID()
		nothing := len(m.chunks[id]) == 0 && !m.unread[id]
		if err := x.keepUnreadable(x.hourRollup(), r, x.make1h(r, m.chunks[id], m.unread[id], m)); err != nil {
			return err
		}
		if !nothing || r.chunk == nil {
			continue
		}
		// As in make5m, another seal may have added 5m chunks after the first read.
		shards, err := x.s.readShards(ctx, x.day.into[rollup.FiveMinutes].window, x.tenant, r.series.Metric())
		if err != nil {
			return err
		}
		if err := x.s.read5mChunks(
			ctx, []seriesChunks{x.fineChunksOf(shards, []*Series{r.series})}, m.chunks, m.unread,
		); err != nil {
			return err
		}
		if len(m.chunks[id]) > 0 || m.unread[id] {
			if err := x.keepUnreadable(x.hourRollup(), r, x.make1h(r, m.chunks[id], m.unread[id], m)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fineChunksOf identifies the day's 5m chunks of some series of one metric, which has the given number of shards.
func (x *roller) fineChunksOf(shards int64, series []*Series) seriesChunks {
	day := x.day.into[rollup.OneHour]
	return seriesChunks{metricChunks{
		x.day.into[rollup.FiveMinutes].window, x.tenant, series[0].Metric(), shards, day.start, day.end - 1,
	}, series}
}

func groupByMetric(rolls []rollupTask) map[string][]*Series {
	metrics := map[string][]*Series{}
	for i := range rolls {
		s := rolls[i].series
		metrics[s.Metric()] = append(metrics[s.Metric()], s)
	}
	return metrics
}

// err5mExpired means that 5m rollups with late samples expired before 1h rollups were computed from them. If the seal
// or import is repeated, it adds the samples to 1h rollups only.
var err5mExpired = fmt.Errorf("%w: 5m rollups expired before 1h rollups were created from them; retry",
	engine.ErrUnavailable)

// make1h computes and sets a series' 1h chunk from all its 5m chunks of the day. It modifies the slice all. unread is
// true if there may be more chunks that are unreadable.
func (x *roller) make1h(r *rollupTask, all []rollupChunk, unread bool, m *rollMemory) error {
	b, hours := &m.fine, &m.hours
	b.Reset()
	hours.Reset()
	r.version, r.unread = 0, unread
	chunks := all[:0]
	for _, c := range all {
		if err := rollup.Decode(c.data, rollup.AllColumns, b); err != nil {
			r.unread = true
			x.s.damage.RecordOnce(
				engine.R5m, r.corruptChunkError(engine.R5m, x.day.into[rollup.FiveMinutes].window, c.start, err),
			)
			continue
		}
		r.version += c.version
		chunks = append(chunks, c)
	}
	rollup.CoarsenStored(hours, b, r.series.Metric(), rollup.OneHour.Width())
	if r.chunk = appendRollup(hours, rollup.OneHour, r.version); r.chunk == nil && r.version > 0 {
		r.chunk = rollup.AppendEmpty(nil, r.version)
	}
	if len(chunks) == 0 && !r.unread {
		if x.finest == rollup.FiveMinutes && x.mayBeMissing(rollup.FiveMinutes, r.class) {
			return err5mExpired
		}
		return x.extend5m(x.hourRollup(), r, nil, b)
	}
	return x.keepUnread1h(r, chunks, hours)
}

// extend1h sets a series' 1h chunk to the stored chunk plus the hours that are missing there and are covered by the
// day's 5m chunks in fine. Of an hour that exists, it adds aggregates that precede or follow the stored samples.
func (x *roller) extend1h(r *rollupTask, fine [][]byte, m *rollMemory) error {
	b, hours := &m.fine, &m.hours
	b.Reset()
	hours.Reset()
	for _, c := range fine {
		if err := rollup.Decode(c, rollup.AllColumns, b); err != nil {
			return err
		}
	}
	rollup.CoarsenStored(hours, b, r.series.Metric(), rollup.OneHour.Width())
	r.version = 1
	r.chunk = appendRollup(hours, rollup.OneHour, r.version)
	var add *rollup.Buckets
	if b.Len() > 0 && b.Flags[0]&rollup.Aggregated != 0 {
		add = b
	}
	return x.extend5m(x.hourRollup(), r, add, hours)
}

// readStored reads the current rollup chunk of a series and its version. The version is 0 if there is no chunk. If the
// chunk is unreadable, readStored reports the damage and returns errUnread with a version other than 0.
func (x *roller) readStored(to rollupOf, r *rollupTask) (b *rollup.Buckets, version uint64, err error) {
	at, tenant := to.at, r.series.Tenant()
	shards, err := x.s.readShards(x.ctx, at.window, tenant, r.series.Metric())
	if err != nil {
		return nil, 0, err
	}
	found, unread, err := x.s.readRollups(x.ctx, to.res, at.window, r.series, shards, at.start, at.start)
	switch {
	case err != nil:
		return nil, 0, err
	case len(found) == 0 && unread:
		return nil, 1, errUnread
	case len(found) == 0:
		return nil, 0, nil
	}
	version = max(found[0].version, 1)
	b = &rollup.Buckets{}
	if err := rollup.Decode(found[0].data, rollup.AllColumns, b); err != nil {
		x.s.damage.RecordOnce(
			format.TableOf(to.res), r.corruptChunkError(format.TableOf(to.res), at.window, at.start, err),
		)
		unread = true
	}
	if unread {
		err = errUnread
	}
	return b, version, err
}
