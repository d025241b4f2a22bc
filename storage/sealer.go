package storage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// sealer writes the sealed rows of one slot.
type sealer struct {
	s     *Store
	ctx   context.Context
	work  Work
	into  [resolutions]destination
	stats *SealStats

	*sealedRows
	tasks   []rollupTask   // the series whose chunks are among rows, or were there
	buckets rollup.Buckets // to work in
	// rawExpired says that the window of raw rows has expired: there are only rollups to fill up.
	rawExpired bool
	// resealed says that the slot was sealed before.
	resealed bool
	// namesFirst says that rows which come in part may be looked for by their names: the slot has its mark already.
	namesFirst bool
	now        int64 // when the seal began, milliseconds
	begun      time.Time
	// others are what other processes kept when it began, and horizons those that it found first: what explains a row lives as long as the
	// row, though another process is heard of, or a retention is changed, between the two.
	others   *[]statedKeep
	horizons map[string]*tenantHorizons
	// listed are the chunks that rollups depend on, where they were listed at once; nil: each series' are read.
	listed chunkList
	// deletes are those, by tenant, that touch the slot and that chunks written now are exempt from. hiding are those
	// that the rollups must apply; they are read later.
	deletes map[string]format.Tombstones
	hiding  format.Tombstones
	// due are deletes that the slot's rollups don't know of yet; forDue says that rollups are made anew only for these.
	due    format.Tombstones
	forDue bool
	// dueIn are those of the slots of a day whose 1h chunks are made.
	dueIn map[int64]format.Tombstones

	// shards are those of the metric that was asked for last.
	asked   string
	askedOf *head.Tenant
	shards  int64
}

// sealedRows are what the next write of a seal holds.
type sealedRows struct {
	rows    []rowBatch
	puts    []engine.Mutation // those of rows, one batch after the other
	bytes   int
	catalog []engine.Batch
	named   map[catalogName]bool           // what is among catalog
	written []seriesLabels                 // what is among rows
	places  map[head.Written]*head.Written // where labels were written, which series share
}

// destination is where a seal writes at a resolution.
type destination struct {
	window int64
	start  int64 // of the chunks of a series there
	end    int64 // of what they span, milliseconds
}

// resolutions is how many there are: raw, 5m, 1h.
const resolutions = int(rollup.OneHour) + 1

// seriesLabels is a series' labels row in a window and shard.
type seriesLabels struct {
	series *Series
	res    rollup.Resolution
	where  head.WrittenRow
}

func newSealer(ctx context.Context, s *Store, w Work) *sealer {
	now := s.opts.Now()
	x := &sealer{s: s, ctx: ctx, work: w, others: s.classes.others.Load(), now: now.UnixMilli(), begun: now, stats: &SealStats{}, sealedRows: &sealedRows{}}
	for res := range rollup.Resolution(resolutions) {
		window := s.period.WindowOfSlot(res, w.Slot)
		x.into[res] = destination{window: window, start: s.period.SlotStart(w.Slot), end: s.period.SlotEnd(w.Slot)}
	}
	day := &x.into[rollup.OneHour]
	day.start = s.period.DayOf(w.Slot)
	day.end = day.start + format.DayMS
	return x
}

// horizonsOf returns the horizons of a tenant, the same at every call; nil: they aren't known.
func (x *sealer) horizonsOf(tenant string) *tenantHorizons {
	if !x.s.expiring {
		return nil
	}
	t, known := x.horizons[tenant]
	if !known {
		if x.horizons == nil {
			x.horizons = map[string]*tenantHorizons{}
		}
		t = x.s.horizonMemory.get(tenant)
		x.horizons[tenant] = t
	}
	return t
}

// isGone says whether the rows of a class may be gone from the window that holds the slot.
func (x *sealer) isGone(res rollup.Resolution, tenant string, class int64) bool {
	return x.s.isGone(res, x.work.Slot, tenant, class)
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

// collect groups the head chunks of generations by tenant and series.
func collect(gens []*head.Generation) map[string][]collected {
	at := map[*Series]int{}
	byTenant := map[string][]collected{}
	for _, g := range gens {
		for _, st := range g.Chunks() {
			if !st.Holds() {
				continue
			}
			series := st.Series()
			name := series.Tenant()
			i, ok := at[series]
			if !ok {
				i = len(byTenant[name])
				at[series] = i
				byTenant[name] = append(byTenant[name], collected{series: series})
			}
			c := &byTenant[name][i]
			c.chunks = c.chunks.With(st)
		}
	}
	return byTenant
}

// mark says that the slot was sealed once more, the rollups' windows first: whoever finds the mark of raw
// finds its rollups.
func (x *sealer) mark(tenant, id string) error {
	for res := rollup.OneHour + 1; res > 0; res-- {
		if x.rawExpired && res-1 == rollup.Raw {
			break
		}
		at := x.into[res-1]
		if err := x.s.eng.Write(x.ctx, []engine.Batch{x.s.markRow(tenant, at, x.work.Slot, x.work.Partition, id)}); err != nil {
			return fmt.Errorf("storage: marking slot %d of %q as sealed: %w", x.work.Slot, tenant, err)
		}
		if err := x.s.stayListed(x.ctx, tenant, at.window); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) markRow(tenant string, at destination, slot int64, partition int, id string) engine.Batch {
	return engine.Batch{Table: engine.Sealed, Partition: format.SealedPartition(at.window, tenant), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Int(slot), engine.Int(int64(partition)), engine.Text(id)},
		Timestamp:  at.end * 1000, Expires: s.expires(at.window, tenant), Value: []byte{1},
	}}}
}

// series adds the rows of one series: its labels once a window, and its chunks. Its rollups follow when these
// are written.
func (x *sealer) series(c *collected, samples *chunk.Samples, sealedBefore bool) error {
	s, known := c.series, false
	named := x.deletesOf(c.series).IDs()
	if samples.Len() == 0 { // It brought exemplars only.
		if x.rawExpired {
			return nil
		}
		x.label(c, rollup.Raw)
		return x.exemplars(c)
	}
	if x.rawExpired {
		x.tasks = append(x.tasks, rollupTask{collected: c, chunk: x.build(samples, 1)})
		return nil
	}
	if sealedBefore {
		var err error
		if known, err = x.subtract(s, samples, &named); err != nil {
			return err
		}
	}
	// A seal whose writes arrived in part may have left chunks without labels, names or rollups.
	x.label(c, rollup.Raw)
	if err := x.exemplars(c); err != nil {
		return err
	}
	r := rollupTask{collected: c}
	if !known {
		at := x.into[rollup.Raw]
		r.exempt = named
		for _, piece := range format.SplitSamples(samples) {
			value := format.AppendRawChunk(nil, format.RawChunk{Exempt: r.exempt, Data: chunk.AppendChunk(nil, piece)})
			sum := sha256.Sum256(value)
			version := string(sum[:engine.IDLen])
			x.put(c, rollup.Raw, at.end*1000, format.ChunkKey(s.ID().String(), at.start, version), value)
			r.own = append(r.own, version)
			x.stats.Chunks++
			x.stats.Bytes += int64(len(value))
		}
		r.chunk = x.build(samples, uint64(len(r.own))*r.exempt.Weight(nil))
		x.stats.Series++
		x.stats.Samples += samples.Len()
	}
	x.tasks = append(x.tasks, r)
	return nil
}

// label adds the labels row of a series, and its names, where this process hasn't written them yet.
func (x *sealer) label(c *collected, res rollup.Resolution) {
	s, window := c.series, x.into[res].window
	where := head.WrittenRow{Window: window, At: c.at(res), Some: true}
	if x.s.expiring {
		where.Life = x.s.lifeOf(window, x.s.expiresAfter(window, x.s.lives(x.horizonsOf(s.Tenant()), x.others, s.Tenant(), c.class)))
	}
	if s.WrittenAt(res) == where {
		return
	}
	if n := len(x.written); n > 0 && x.written[n-1] == (seriesLabels{s, res, where}) {
		return
	}
	expires := x.s.expiresAfter(window, x.s.lives(x.horizonsOf(s.Tenant()), x.others, s.Tenant(), c.class))
	x.put(c, res, x.s.explains(window, expires), format.LabelsKey(res, s.ID().String()), format.AppendLabels(make([]byte, 0, format.LabelsSize(s.Labels())), s.Labels()))
	x.names(s, x.into[res])
	x.written = append(x.written, seriesLabels{s, res, where})
}

// put adds a row of a series to what is written next.
func (x *sealer) put(c *collected, res rollup.Resolution, timestamp int64, key engine.Key, value []byte) {
	s, window, at := c.series, x.into[res].window, c.at(res)
	n := len(x.rows)
	if n == 0 || !x.rows[n-1].of(format.TableOf(res), window, s, at) || x.rows[n-1].bytes+len(value) > engine.MaxBatch*3/4 {
		x.rows = append(x.rows, rowBatch{series: s, at: at, Batch: engine.Batch{
			Table: format.TableOf(res), Partition: format.SeriesPartition(window, s.Tenant(), s.Metric(), at),
		}, from: len(x.puts)})
	}
	b := &x.rows[len(x.rows)-1]
	expires := x.s.expiresAfter(window, x.s.lives(x.horizonsOf(s.Tenant()), x.others, s.Tenant(), c.class))
	x.puts = append(x.puts, engine.Mutation{Clustering: key, Timestamp: timestamp, Expires: expires, Value: value})
	b.bytes += len(value) + 128
	x.bytes += len(value) + 64
}

// rowBatch is a batch of rows of a metric, which gets its mutations when it is written.
type rowBatch struct {
	engine.Batch
	from   int     // of its first row among all that are written with it
	series *Series // one of the metric's
	at     format.ClassShard
	bytes  int
}

func (b *rowBatch) of(t *engine.Table, window int64, s *Series, at format.ClassShard) bool {
	return b.Table == t && b.Partition[0].Int == window && b.at == at && b.series.TenantOfHead() == s.TenantOfHead() && b.series.Metric() == s.Metric()
}

// subtract removes the samples that the sealed chunks of the slot hold already, and says whether none is left. It adds
// the deletes that those chunks name to named.
//
// Invariant: no chunk comes to lie where another one was cleaned. That one names more deletes than when it got its
// version, and this one names all of them.
func (x *sealer) subtract(s *Series, samples *chunk.Samples, named *format.TombstoneIDs) (known bool, err error) {
	var have chunk.Samples
	if err = x.readSealed(s, &have, named); err != nil || have.Len() == 0 {
		return false, err
	}
	have.Normalize()
	samples.Subtract(&have)
	return samples.Len() == 0, nil
}

// readSealed appends what isn't deleted of the slot's sealed chunks of a series, and the deletes that they name. One
// that can't be read is left out: the reader names it, and what comes now is sealed beside it.
func (x *sealer) readSealed(s *Series, into *chunk.Samples, named *format.TombstoneIDs) error {
	if err := x.ask(s); err != nil {
		return err
	}
	hidden := x.deletesOf(s)
	return x.eachSealed(s, x.shards, false, func(row engine.Row) error {
		c, err := format.DecodeRawChunk(row.Value, hidden, into)
		*named = named.Union(c.Exempt)
		if errors.Is(err, chunk.ErrCorrupt) {
			return nil
		}
		return err
	})
}

// ask reads how many shards a series' metric has.
func (x *sealer) ask(s *Series) error {
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

// eachSealed yields the sealed chunks of a series in the slot.
func (x *sealer) eachSealed(s *Series, shards int64, keysOnly bool, yield func(engine.Row) error) error {
	return x.eachRow(format.KindChunk, s, shards, keysOnly, yield)
}

// eachRow yields the sealed rows of a kind of a series in the slot.
func (x *sealer) eachRow(kind int64, s *Series, shards int64, keysOnly bool, yield func(engine.Row) error) error {
	at := x.into[rollup.Raw]
	key := engine.Key{engine.Int(kind), engine.Int(at.start), engine.Text(s.ID().String())}
	for in := range x.s.placesOf(s.ID(), shards) {
		for row, err := range x.s.eng.Scan(x.ctx, engine.Range{
			Table: engine.Raw, Partition: format.SeriesPartition(at.window, s.Tenant(), s.Metric(), in), From: key, To: key, KeysOnly: keysOnly,
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

// names adds the catalog rows of a series that this process hasn't written in this window yet.
func (x *sealer) names(s *Series, at destination) {
	expires := x.s.expiresAfter(at.window, x.s.livesLongest(x.horizonsOf(s.Tenant()), x.others, s.Tenant()))
	timestamp := x.s.explains(at.window, expires)
	add := func(kind int64, label, value string, row []byte) {
		name := x.s.catalog.name(at.window, x.s.lifeOf(at.window, expires), s.Tenant(), kind, label, value)
		if x.named[name] || x.s.catalog.has(name) {
			return
		}
		if x.named == nil {
			x.named = map[catalogName]bool{}
		}
		x.named[name] = true
		x.catalog = append(x.catalog, engine.Batch{
			Table: engine.Catalog, Partition: format.CatalogPartition(at.window, s.Tenant(), kind, label),
			Mutations: []engine.Mutation{{
				Clustering: engine.Key{engine.Text(value)}, Timestamp: timestamp, Expires: expires, Value: row,
			}},
		})
		x.bytes += len(label) + len(value) + 128
	}
	s.Labels().Range(func(l labels.Label) {
		if l.Name == labels.MetricName {
			add(format.CatalogMetric, "", l.Value, []byte{1})
		}
		add(format.CatalogLabel, "", l.Name, []byte{1})
		add(format.CatalogValue, l.Name, l.Value, []byte{1})
	})
}

// inTime says that the deletes which the seal knows of are all that are about what it has read. Those that were made since
// then stand for deleteRests; when they are gone, nothing may be written that they have deleted.
func (x *sealer) inTime() error {
	if took := Elapsed(x.begun, x.s.opts.Now()); took > deleteRests/2 {
		return fmt.Errorf("%w: sealing slot %d, partition %d was begun %v ago; it begins anew", engine.ErrUnavailable, x.work.Slot, x.work.Partition, took.Round(time.Second))
	}
	return nil
}

// write writes the rows that were added.
func (x *sealer) write() error {
	if err := x.inTime(); err != nil {
		return err
	}
	batches := x.catalog
	if x.namesFirst && len(batches) > 0 {
		if err := x.s.eng.Write(x.ctx, batches); err != nil {
			return fmt.Errorf("storage: writing names of slot %d, partition %d: %w", x.work.Slot, x.work.Partition, err)
		}
		batches = nil
	}
	for i, to := len(x.rows)-1, len(x.puts); i >= 0; i-- {
		b := &x.rows[i]
		b.Mutations, to = x.puts[b.from:to:to], b.from
	}
	for i := range x.rows {
		batches = append(batches, x.rows[i].Batch)
	}
	if err := x.s.eng.Write(x.ctx, batches); err != nil {
		return fmt.Errorf("storage: writing sealed rows of slot %d, partition %d: %w", x.work.Slot, x.work.Partition, err)
	}
	for _, w := range x.written {
		x.noteLabels(w)
	}
	x.s.catalog.add(x.named)
	clear(x.named)
	clear(x.rows)
	clear(x.puts)
	x.rows, x.puts, x.catalog, x.bytes, x.written = x.rows[:0], x.puts[:0], nil, 0, x.written[:0]
	return nil
}

// noteLabels remembers where a series' labels row was written.
func (r *sealedRows) noteLabels(w seriesLabels) {
	at := w.series.Written()
	at[w.res] = w.where
	shared := r.places[at]
	if shared == nil {
		if r.places == nil {
			r.places = map[head.Written]*head.Written{}
		}
		shared = &at
		r.places[at] = shared
	}
	w.series.SetWritten(shared)
}
