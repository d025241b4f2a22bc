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

// destination is where rows of a slot are written at a resolution.
type destination struct {
	window int64
	start  int64 // of the chunks of a series there
	end    int64 // of what they span, milliseconds
}

// resolutions is how many there are: raw, 5m, 1h.
const resolutions = int(rollup.OneHour) + 1

// destinations are those of a slot, by resolution.
type destinations [resolutions]destination

func (s *Store) destinationsOf(slot int64) (into destinations) {
	for res := range rollup.Resolution(resolutions) {
		into[res] = destination{window: s.period.WindowOfSlot(res, slot), start: s.period.SlotStart(slot), end: s.period.SlotEnd(slot)}
	}
	day := &into[rollup.OneHour]
	day.start = s.period.DayOf(slot)
	day.end = day.start + format.DayMS
	return into
}

// markRow returns what writes a mark.
func markRow(at destination, m format.CommitKey, reason format.CommitReason) engine.Mutation {
	return engine.Mutation{
		Clustering: engine.Key{engine.Int(m.Slot), engine.Int(int64(m.Partition)), engine.Text(m.ID)},
		Timestamp:  at.end * 1000, Value: format.AppendCommitReason(reason),
	}
}

// collected is a series with what the generations hold of it.
type collected struct {
	series *Series
	class  int64 // in which its rows are written
	chunks head.Chunks
	shards [resolutions]uint16
}

// at is where rows of the series go at a resolution.
func (c *collected) at(res rollup.Resolution) format.ClassShard {
	return format.ClassShardOf(c.class, int64(c.shards[res]))
}

// sealedSlot reads the sealed rows of a slot.
type sealedSlot struct {
	s    *Store
	ctx  context.Context
	slot int64
	into destinations
}

func newSealedSlot(ctx context.Context, s *Store, slot int64) *sealedSlot {
	return &sealedSlot{s: s, ctx: ctx, slot: slot, into: s.destinationsOf(slot)}
}

// eachExemplars yields the rows of exemplars that a series has in the slot.
func (x *sealedSlot) eachExemplars(s *Series, shards int64, yield func(engine.Row) error) error {
	at := x.into[rollup.Raw]
	key := engine.Key{engine.Int(format.KindExemplars), engine.Int(at.start), engine.Text(s.IDText())}
	for in := range x.s.placesOf(tenantWindow{s.Tenant(), at.window}, s.ID(), shards) {
		for row, err := range x.s.rows.Scan(x.ctx, engine.Range{
			Table: engine.Raw, Partition: format.SeriesPartition(at.window, s.Tenant(), s.Metric(), in), From: key, To: key,
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

// slotSealer makes chunks of what series have in a slot, and tasks for the roller.
type slotSealer struct {
	*rowWriter
	*rolledSlot
	stats *SealStats
	// deletes are those, by tenant, that touch the slot and that chunks written now are exempt from.
	deletes map[string]format.Tombstones
	buckets rollup.Buckets // to work in
	// ahead are sealed chunks that were read for many series at once. Those of others are read series by series.
	ahead sealedChunks

	// shards are those of the metric that was asked for last.
	asked   string
	askedOf *head.Tenant
	shards  int64
}

// series adds the rows of one series: its labels once a window, and its chunks. Its rollups follow when these
// are written.
func (x *slotSealer) series(c *collected, samples *chunk.Samples, sealedBefore bool) error {
	s, known := c.series, false
	named := x.deletesOf(c.series).IDs()
	at := x.into[rollup.Raw]
	if samples.Len() == 0 { // It brought exemplars only.
		x.label(c, rollup.Raw, at.window)
		return x.exemplars(c, sealedBefore)
	}
	if sealedBefore {
		var err error
		if known, err = x.subtract(s, samples, &named); err != nil {
			return err
		}
	}
	// A seal whose writes arrived in part may have left chunks without labels, names or rollups.
	x.label(c, rollup.Raw, at.window)
	if err := x.exemplars(c, sealedBefore); err != nil {
		return err
	}
	r := rollupTask{collected: c}
	if !known {
		r.exempt = named
		for _, piece := range format.SplitSamples(samples) {
			value := format.AppendRawChunk(nil, format.RawChunk{Exempt: r.exempt, Data: chunk.AppendChunk(nil, piece)})
			version := format.RowVersion(value)
			x.put(c, rollup.Raw, at.window, at.end*1000, format.ChunkKey(s.IDText(), at.start, version), value)
			r.own = append(r.own, version)
			x.stats.Chunks++
			x.stats.Bytes += int64(len(value))
		}
		r.chunk = x.build(s.Metric(), samples, uint64(len(r.own))*r.exempt.Weight(nil))
		x.stats.Series++
		x.stats.Samples += samples.Len()
	}
	x.tasks = append(x.tasks, r)
	return nil
}

// onlyRollUp adds a rollup of one series whose raw rows are past their retention; only its buckets that are lacking are used.
func (x *slotSealer) onlyRollUp(c *collected, samples *chunk.Samples) {
	if samples.Len() > 0 {
		x.tasks = append(x.tasks, rollupTask{collected: c, chunk: x.build(c.series.Metric(), samples, 1)})
	}
}

// build makes the slot's 5m chunk of all samples that a series of a metric has there.
func (x *slotSealer) build(metric string, samples *chunk.Samples, version uint64) []byte {
	x.buckets.Reset()
	rollup.AppendStored(&x.buckets, samples, metric, rollup.FiveMinutes.Width())
	return appendRollup(&x.buckets, rollup.FiveMinutes, version)
}

// subtract removes the samples that the sealed chunks of the slot hold already, and reports whether none is left. It adds
// the deletes that those chunks name to named.
//
// Invariant: no chunk comes to lie where another one was cleaned. That one names more deletes than when it got its
// version, and this one names all of them.
func (x *slotSealer) subtract(s *Series, samples *chunk.Samples, named *format.TombstoneIDs) (known bool, err error) {
	var have chunk.Samples
	if err = x.readSealed(s, &have, named); err != nil || have.Len() == 0 {
		return false, err
	}
	have.Normalize()
	samples.Subtract(&have)
	return samples.Len() == 0, nil
}

// readSealed appends what isn't deleted of the slot's sealed chunks of a series, and the deletes that they name. One
// that can't be read is left out: the roller names it, and what comes now is sealed beside it.
func (x *slotSealer) readSealed(s *Series, into *chunk.Samples, named *format.TombstoneIDs) error {
	if err := x.ask(s); err != nil {
		return err
	}
	at := chunkAt{x.into[rollup.Raw].start, s.ID()}
	found := x.ahead
	if _, known := found[at]; !known {
		found = sealedChunks{}
		if err := x.readChunksOf(x.ctx, []*Series{s}, x.shards, found); err != nil {
			return err
		}
	}
	_, err := visibleSamples(found[at].values, x.deletesOf(s), into, func(exempt format.TombstoneIDs) { *named = named.Union(exempt) })
	return err
}

// readAhead reads the sealed chunks of series of a metric, of which subtract is about to ask one after the other.
func (x *slotSealer) readAhead(series []*Series) error {
	x.ahead = nil
	if len(series) == 0 {
		return nil
	}
	if err := x.ask(series[0]); err != nil {
		return err
	}
	x.ahead = sealedChunks{}
	return x.readChunksOf(x.ctx, series, x.shards, x.ahead)
}

// ask reads how many shards a series' metric has.
func (x *slotSealer) ask(s *Series) error {
	if x.asked == s.Metric() && x.askedOf == s.TenantOfHead() {
		return nil
	}
	shards, err := x.s.readShards(x.ctx, x.into[rollup.Raw].window, s.Tenant(), s.Metric())
	if err != nil {
		return err
	}
	x.asked, x.askedOf, x.shards = s.Metric(), s.TenantOfHead(), shards
	return nil
}
