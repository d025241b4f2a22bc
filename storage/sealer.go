package storage

import (
	"context"
	"fmt"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// destination is the location of a slot's rows at one resolution.
type destination struct {
	window int64
	start  int64 // start of the chunks
	end    int64 // end of the chunks' time, in milliseconds
}

// resolutions is the number of resolutions: raw, 5m, 1h.
const resolutions = int(rollup.OneHour) + 1

// destinations holds a slot's destinations by resolution.
type destinations [resolutions]destination

func (s *Store) destinationsOf(slot int64) (into destinations) {
	for res := range rollup.Resolution(resolutions) {
		into[res] = destination{
			window: s.period.WindowOfSlot(res, slot), start: s.period.SlotStart(slot), end: s.period.SlotEnd(slot),
		}
	}
	day := &into[rollup.OneHour]
	day.start = s.period.DayOf(slot)
	day.end = day.start + format.DayMS
	return into
}

// commitRecordRow returns the mutation that writes a commit record.
func commitRecordRow(at destination, m format.CommitKey, reason format.CommitReason) engine.Mutation {
	return engine.Mutation{
		Clustering: engine.Key{engine.Int(m.Slot), engine.Int(int64(m.Partition)), engine.Text(m.ID)},
		Timestamp:  at.end * 1000, Value: format.AppendCommitReason(reason),
	}
}

// collectedSeries is a series with its head chunks in a slot.
type collectedSeries struct {
	series *Series
	class  int64 // of its rows
	chunks head.Chunks
	shards [resolutions]uint16
}

// location returns the location of the series' rows at a resolution.
func (c *collectedSeries) location(res rollup.Resolution) format.ClassShard {
	return format.ClassShardOf(c.class, int64(c.shards[res]))
}

// sealedSlot is a slot whose sealed rows are read.
type sealedSlot struct {
	s    *Store
	ctx  context.Context
	slot int64
	into destinations
}

func newSealedSlot(ctx context.Context, s *Store, slot int64) *sealedSlot {
	return &sealedSlot{s: s, ctx: ctx, slot: slot, into: s.destinationsOf(slot)}
}

// eachExemplars calls yield for each exemplar row of a series in the slot.
func (x *sealedSlot) eachExemplars(s *Series, shards int64, yield func(engine.Row) error) error {
	at := x.into[rollup.Raw]
	key := engine.Key{engine.Int(format.KindExemplars), engine.Int(at.start), engine.Text(s.IDText())}
	for in := range x.s.unexpiredShardsOf(tenantWindow{s.Tenant(), at.window}, s.ID(), shards) {
		for row, err := range x.s.rows.Scan(x.ctx, engine.Range{
			Table: engine.Raw, Partition: format.SeriesPartition(at.window, s.Tenant(), s.Metric(), in), From: key,
			To: key,
		}) {
			if err == nil {
				err = yield(row)
			}
			if err != nil {
				return fmt.Errorf("storage: reading sealed rows of %s: %w", s.Labels(), err)
			}
		}
	}
	return nil
}

// slotSealer writes chunks for the staged samples of a slot's series, and creates tasks for the roller.
type slotSealer struct {
	*rowWriter
	*rolledSlot
	stats *SealStats
	// deletes are the tombstones, by tenant, that touch the slot. Chunks that are written now name these deletes, which
	// therefore don't apply to the chunks.
	deletes map[string]format.Tombstones
	buckets rollup.Buckets // reused
	// ahead contains sealed chunks that were read for many series at once. Chunks of other series are read one series
	// at a time.
	ahead sealedChunks

	// shards is the number of shards of the metric shardsMetric of the tenant shardsTenant.
	shardsMetric string
	shardsTenant *head.Tenant
	shards       int64
}

// addSeries adds the rows of a series: its chunks and, once per window, its labels. It also adds a task for the
// rollups, which are computed after these rows are written.
func (x *slotSealer) addSeries(c *collectedSeries, samples *chunk.Samples, sealedBefore bool) error {
	s, known := c.series, false
	named := x.deletesOf(c.series).IDs()
	at := x.into[rollup.Raw]
	if samples.Len() == 0 { // The series has exemplars only.
		x.addLabels(c, rollup.Raw, at.window)
		return x.addExemplars(c, sealedBefore)
	}
	if sealedBefore {
		var err error
		if known, err = x.subtractSealed(s, samples, &named); err != nil {
			return err
		}
	}
	// The labels, the exemplars and the task are needed even if all samples are already sealed, because an interrupted
	// seal may have written only the chunks.
	x.addLabels(c, rollup.Raw, at.window)
	if err := x.addExemplars(c, sealedBefore); err != nil {
		return err
	}
	r := rollupTask{collectedSeries: c}
	if !known {
		r.exempt = named
		for _, piece := range format.SplitSamples(samples) {
			value := format.AppendRawChunk(nil, format.RawChunk{Exempt: r.exempt, Data: chunk.AppendChunk(nil, piece)})
			version := format.RowVersion(value)
			x.addRow(c, rollup.Raw, at.window, at.end*1000, format.ChunkKey(s.IDText(), at.start, version), value)
			r.own = append(r.own, version)
			x.stats.Chunks++
			x.stats.Bytes += int64(len(value))
		}
		r.chunk = x.buildRollup(s.Metric(), samples, uint64(len(r.own))*r.exempt.Weight(nil))
		x.stats.Series++
		x.stats.Samples += samples.Len()
	}
	x.tasks = append(x.tasks, r)
	return nil
}

// addRollupTask adds a task for a series whose raw rows are past their retention. The series' samples are only added to
// rollups as buckets that the stored rollups don't contain.
func (x *slotSealer) addRollupTask(c *collectedSeries, samples *chunk.Samples) {
	if samples.Len() > 0 {
		x.tasks = append(x.tasks, rollupTask{collectedSeries: c, chunk: x.buildRollup(c.series.Metric(), samples, 1)})
	}
}

// buildRollup computes a 5m chunk from a series' samples in the slot.
func (x *slotSealer) buildRollup(metric string, samples *chunk.Samples, version uint64) []byte {
	x.buckets.Reset()
	rollup.AppendStored(&x.buckets, samples, metric, rollup.FiveMinutes.Width())
	return appendRollup(&x.buckets, rollup.FiveMinutes, version)
}

// subtractSealed removes the samples that the slot's sealed chunks already contain. known is true if no samples remain.
// It adds the deletes that the sealed chunks name to named.
//
// Invariant: a new chunk never gets the key of a cleaned chunk. A cleaned chunk names more deletes than it did when its
// version was computed, and the new chunk names all of them.
func (x *slotSealer) subtractSealed(
	s *Series, samples *chunk.Samples, named *format.TombstoneIDs,
) (known bool, err error) {
	var have chunk.Samples
	if err = x.readSealed(s, &have, named); err != nil || have.Len() == 0 {
		return false, err
	}
	have.Normalize()
	samples.Subtract(&have)
	return samples.Len() == 0, nil
}

// readSealed appends the samples in a series' sealed chunks in the slot, except deleted samples, to into. It adds the
// deletes that the chunks name to named. Unreadable chunks are skipped: the roller reports them, and the new chunk is
// written in addition to them.
func (x *slotSealer) readSealed(s *Series, into *chunk.Samples, named *format.TombstoneIDs) error {
	if err := x.readShardsOf(s); err != nil {
		return err
	}
	at := chunkKey{x.into[rollup.Raw].start, s.ID()}
	found := x.ahead
	if _, known := found[at]; !known {
		found = sealedChunks{}
		if err := x.readMetricChunks(x.ctx, []*Series{s}, x.shards, found); err != nil {
			return err
		}
	}
	_, err := visibleSamples(
		found[at].values, x.deletesOf(s), into, func(exempt format.TombstoneIDs) { *named = named.Union(exempt) },
	)
	return err
}

// readAhead reads the sealed chunks of a metric's series for the subsequent calls of subtractSealed.
func (x *slotSealer) readAhead(series []*Series) error {
	x.ahead = nil
	if len(series) == 0 {
		return nil
	}
	if err := x.readShardsOf(series[0]); err != nil {
		return err
	}
	x.ahead = sealedChunks{}
	return x.readMetricChunks(x.ctx, series, x.shards, x.ahead)
}

// readShardsOf sets x.shards to the number of shards of the series' metric.
func (x *slotSealer) readShardsOf(s *Series) error {
	if x.shardsMetric == s.Metric() && x.shardsTenant == s.TenantOfHead() {
		return nil
	}
	shards, err := x.s.readShards(x.ctx, x.into[rollup.Raw].window, s.Tenant(), s.Metric())
	if err != nil {
		return err
	}
	x.shardsMetric, x.shardsTenant, x.shards = s.Metric(), s.TenantOfHead(), shards
	return nil
}
