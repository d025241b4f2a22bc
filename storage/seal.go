package storage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
)

// sealWriteBytes is about how much one write of the sealer holds.
const sealWriteBytes = 2 << 20

// SealStats says what a seal did.
type SealStats struct {
	// Blobs is how many stage rows were worked off; 0: there was nothing to do.
	Blobs int
	// Series and Samples were written, in Chunks chunks of Bytes bytes.
	Series, Samples, Chunks int
	Bytes                   int64
}

// Seal turns what the stage holds of a slot and partition into sealed rows:
//
//	close the generation ─► list the stage rows ─► chunks, labels, catalog ─► mark ─► delete what was read
//
// Every step may be repeated; after an error the next Seal begins anew. Two seals of one slot, even by two
// processes, end in the same rows.
func (s *Store) Seal(ctx context.Context, w Work) (stats SealStats, err error) {
	if err := s.Ready(); err != nil {
		return stats, fmt.Errorf("%w: %w", errNotRebuilt, err)
	}
	s.sealMu[w.Partition].Lock()
	defer s.sealMu[w.Partition].Unlock()
	begin := time.Now()
	gens, upTo := s.closeCell(w)
	if empty, err := s.empty(ctx, engine.Stage, stagePartition(w.Slot, w.Partition)); err != nil {
		return stats, err
	} else if empty && len(w.pending) == 0 {
		// What the head still has of the slot was sealed: by another process, or by a seal that didn't learn
		// that its last write had succeeded.
		s.release(w, gens)
		return stats, nil
	}
	extra, rows, left, err := s.gather(ctx, w, gens, upTo)
	if err != nil {
		return stats, err
	}
	if expired, ok := s.expiredWindow(); ok && s.period.windowOf(w.Slot) <= expired {
		s.skipExpired(w, append(gens, extra...))
	} else if len(rows) > 0 || slices.ContainsFunc(gens, (*generation).partial) {
		sealer := &sealer{s: s, ctx: ctx, work: w, window: s.period.windowOf(w.Slot)}
		if err := sealer.run(append(gens, extra...)); err != nil {
			return stats, err
		}
		sealer.assertSealed(append(gens, extra...))
		stats = sealer.stats
	}
	stats.Blobs = len(rows)
	if err := s.keepDefinitions(ctx, w, append(gens, extra...), rows); err != nil {
		return stats, err
	}
	if err := s.deleteStaged(ctx, w, rows, left); err != nil {
		return stats, err
	}
	s.release(w, gens)
	if stats.Blobs == 0 {
		return stats, nil
	}
	s.metrics.sealSeconds.Observe(time.Since(begin).Seconds())
	s.metrics.sealedSamples.Add(float64(stats.Samples))
	s.metrics.sealedChunks.Add(float64(stats.Chunks))
	return stats, nil
}

// SealAll seals all that is staged, whatever its age.
func (s *Store) SealAll(ctx context.Context) error {
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	for p := range s.period.Partitions {
		work, err := s.Waiting(ctx, p)
		if err != nil {
			return err
		}
		for _, w := range work {
			if _, err := s.Seal(ctx, w); err != nil {
				return fmt.Errorf("storage: sealing slot %d of partition %d: %w", w.Slot, w.Partition, err)
			}
		}
	}
	s.LetGo()
	return nil
}

// LetGo forgets the series that have nothing unsealed, and returns how many. While the head is being rebuilt
// it forgets none: some have nothing yet.
func (s *Store) LetGo() int {
	if s.Ready() != nil {
		return 0
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	return s.head.letGo()
}

// Forget lets go of what other processes have sealed of a partition. An owner's Seal does so by itself.
func (s *Store) Forget(ctx context.Context, partition int) error {
	now := s.opts.Now().UnixMilli()
	for _, slot := range s.head.slots(partition) {
		w := Work{Partition: partition, Slot: slot}
		if s.period.slotEnd(slot) > now {
			continue
		}
		staged, err := s.listStaged(ctx, w)
		if err != nil {
			return err
		}
		if !s.anySealed(w, staged) {
			continue
		}
		gens, _ := s.closeCell(w)
		// What was staged before the generations were closed is in this list, or is sealed.
		if staged, err = s.listStaged(ctx, w); err != nil {
			return err
		}
		s.release(w, slices.DeleteFunc(gens, func(g *generation) bool { return !g.sealed(staged) }))
	}
	s.follower.forget(partition)
	return nil
}

// listStaged lists the stage rows of a slot.
func (s *Store) listStaged(ctx context.Context, w Work) (map[stageRow]bool, error) {
	staged := map[stageRow]bool{}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Stage, Partition: stagePartition(w.Slot, w.Partition), KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("storage: listing stage of slot %d, partition %d: %w", w.Slot, w.Partition, err)
		}
		staged[stageRowOf(row)] = true
	}
	return staged, nil
}

// anySealed says whether a generation of the slot's seems to be sealed.
func (s *Store) anySealed(w Work, staged map[stageRow]bool) bool {
	p := &s.head.parts[w.Partition]
	p.mu.RLock()
	defer p.mu.RUnlock()
	c := p.cells[w.Slot]
	if c == nil {
		return false
	}
	gens := slices.Clone(c.closed)
	for _, g := range []*generation{c.open, c.followed} {
		if g != nil {
			gens = append(gens, g)
		}
	}
	return slices.ContainsFunc(gens, func(g *generation) bool { return len(g.rows) > 0 && g.sealed(staged) })
}

// sealed says whether none of the generation's rows is staged any more.
func (g *generation) sealed(staged map[stageRow]bool) bool {
	return !slices.ContainsFunc(g.rows, func(r stageRow) bool { return staged[r] })
}

// skipExpired counts what came too late to be sealed at all: its window is gone.
func (s *Store) skipExpired(w Work, gens []*generation) {
	var samples chunk.Samples
	for _, g := range gens {
		for _, st := range g.strands {
			_ = st.read(-maxTime, maxTime, &samples)
		}
	}
	s.metrics.expiredSamples.Add(float64(samples.Len()))
	s.opts.Logger.Warn("left out samples past their retention, found unsealed", "samples", samples.Len(), "slot", w.Slot, "partition", w.Partition)
}

// closeCell closes the cell's open generation and returns all closed ones, and the last seq given out so
// far: this process' rows after it belong to generations to come.
func (s *Store) closeCell(w Work) ([]*generation, int64) {
	p := &s.head.parts[w.Partition]
	p.mu.RLock()
	_, ok := p.cells[w.Slot]
	seq := p.seq
	p.mu.RUnlock()
	if !ok { // Nearly always: no need to wait for the commit under way.
		return nil, seq
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.cells[w.Slot]
	if c == nil {
		return nil, p.seq
	}
	c.closeGeneration()
	return slices.Clone(c.closed), c.seq
}

// gather lists the stage rows to seal. Where gens, the closed generations, lack some of them, extra is one
// that holds them. left are the rows that can't be read: they stay. The generations may hold more than the
// rows: that is durable too, or was sealed before.
func (s *Store) gather(ctx context.Context, w Work, gens []*generation, upTo int64) (extra []*generation, rows []stageRow, left map[stageRow]bool, err error) {
	covered := map[stageRow]bool{}
	for _, g := range gens {
		for _, r := range g.rows {
			covered[r] = true
		}
	}
	left = map[stageRow]bool{}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Stage, Partition: stagePartition(w.Slot, w.Partition), KeysOnly: true}) {
		if err != nil {
			return nil, nil, nil, fmt.Errorf("storage: listing stage of slot %d, partition %d: %w", w.Slot, w.Partition, err)
		}
		switch r := stageRowOf(row); {
		case r.writer == s.writer && r.seq > upTo: // of a generation to come
		case covered[r]:
			rows = append(rows, r)
		default:
			left[r] = true
		}
	}
	if len(left) == 0 {
		return nil, rows, nil, nil
	}
	// Rows of writes whose answer was an error, or that a rebuild could not read. A stream is read from
	// its beginning, for only so it explains itself.
	gen, err := s.load(ctx, w, func(r stageRow) bool { return r.writer != s.writer || r.seq <= upTo })
	if err != nil || gen == nil || gen.partial() {
		return nil, rows, left, err
	}
	for _, r := range gen.rows {
		if left[r] {
			delete(left, r)
			rows = append(rows, r)
		}
	}
	return []*generation{gen}, rows, left, nil
}

// release lets the head forget what is sealed.
func (s *Store) release(w Work, gens []*generation) {
	p := &s.head.parts[w.Partition]
	p.mu.RLock()
	c := p.cells[w.Slot]
	p.mu.RUnlock()
	if c != nil {
		s.head.drop(c, gens)
	}
}

// deleteStaged deletes exactly the rows that were read, and the pending rows that were listed before, but
// not those of rows that are left.
func (s *Store) deleteStaged(ctx context.Context, w Work, rows []stageRow, left map[stageRow]bool) error {
	if err := s.deleteRows(ctx, engine.Stage, stagePartition(w.Slot, w.Partition), rows); err != nil {
		return err
	}
	byHour := map[int64]*engine.Batch{}
	for _, p := range w.pending {
		if left[p.row] {
			continue
		}
		b := byHour[p.hour]
		if b == nil {
			b = &engine.Batch{Table: engine.Pending, Partition: pendingPartition(w.Partition, p.hour)}
			byHour[p.hour] = b
		}
		b.Mutations = append(b.Mutations, engine.Mutation{
			Op: engine.Delete, Timestamp: stageTimestamp,
			Clustering: engine.Key{engine.Int(p.slot), engine.Text(p.row.writer), engine.Int(p.row.seq)},
		})
	}
	for _, b := range byHour {
		if err := s.writeInPieces(ctx, *b); err != nil {
			return err
		}
	}
	return nil
}

// writeInPieces writes a batch of small mutations that needn't be applied together.
func (s *Store) writeInPieces(ctx context.Context, b engine.Batch) error {
	const piece = 2000
	for from := 0; from < len(b.Mutations); from += piece {
		part := engine.Batch{Table: b.Table, Partition: b.Partition, Mutations: b.Mutations[from:min(from+piece, len(b.Mutations))]}
		if err := s.eng.Write(ctx, []engine.Batch{part}); err != nil {
			return fmt.Errorf("storage: deleting worked-off rows of %s: %w", b.Table, err)
		}
	}
	return nil
}

// sealer writes the sealed rows of one slot and partition.
type sealer struct {
	s      *Store
	ctx    context.Context
	work   Work
	window int64
	stats  SealStats

	rows    []engine.Batch // what the next write holds
	bytes   int
	catalog []engine.Batch
	named   map[catalogName]bool // what is among catalog
	written []seriesLabels       // what is among rows
	expires int64                // of the window's rows, seconds since 1970; 0: never

	// shards are those of the metric that was asked for last.
	asked   string
	askedOf *headTenant
	shards  int64
}

// seriesLabels is a series' labels row in a window and shard.
type seriesLabels struct {
	series *Series
	where  writtenLabels
}

func (x *sealer) run(gens []*generation) error {
	x.expires = x.s.expires(x.window)
	byTenant := collect(gens)
	names := make([]string, 0, len(byTenant))
	for name := range byTenant {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := x.tenant(name, byTenant[name]); err != nil {
			return err
		}
	}
	return nil
}

// collected is a series with what the generations hold of it.
type collected struct {
	series  *Series
	strands []*strand
	shard   int64
}

// collect groups the strands of generations by tenant and series, in the order of metrics and ids.
func collect(gens []*generation) map[string][]collected {
	at := map[*Series]int{}
	byTenant := map[string][]collected{}
	for _, g := range gens {
		for _, st := range g.strands {
			if !st.some {
				continue
			}
			name := st.series.tenant.name
			i, ok := at[st.series]
			if !ok {
				i = len(byTenant[name])
				at[st.series] = i
				byTenant[name] = append(byTenant[name], collected{series: st.series})
			}
			byTenant[name][i].strands = append(byTenant[name][i].strands, st)
		}
	}
	for _, list := range byTenant {
		slices.SortFunc(list, func(a, b collected) int {
			return cmp.Or(strings.Compare(a.series.metric, b.series.metric), bytes.Compare(a.series.id[:], b.series.id[:]))
		})
	}
	return byTenant
}

func (x *sealer) tenant(name string, list []collected) error {
	sealedBefore, err := x.sealedBefore(name)
	if err != nil {
		return err
	}
	if err := x.s.listWindow(x.ctx, name, x.window); err != nil {
		return err
	}
	if err := x.spread(name, list); err != nil {
		return err
	}
	var samples chunk.Samples
	for i, c := range list {
		samples.Reset()
		for _, st := range c.strands {
			// Closed generations don't change any more, so no lock is needed.
			if err := st.read(-maxTime, maxTime, &samples); err != nil {
				return fmt.Errorf("storage: reading back %s: %w", c.series.labels, err)
			}
		}
		samples.Normalize()
		if err := x.series(c.series, c.shard, &samples, sealedBefore); err != nil {
			return err
		}
		last := i == len(list)-1
		if x.bytes >= sealWriteBytes || last {
			if err := x.flush(); err != nil {
				return err
			}
		}
	}
	mark := engine.Batch{Table: engine.Sealed, Partition: sealedPartition(x.window, name), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Int(x.work.Slot), engine.Int(int64(x.work.Partition)), engine.Text(newID())},
		Timestamp:  x.s.period.slotEnd(x.work.Slot) * 1000, Expires: x.expires, Value: []byte{1},
	}}}
	if err := x.s.eng.Write(x.ctx, []engine.Batch{mark}); err != nil {
		return fmt.Errorf("storage: marking slot %d of %q as sealed: %w", x.work.Slot, name, err)
	}
	return nil
}

// sealedBefore says whether the slot has a mark already: then what comes now is late, or comes again.
func (x *sealer) sealedBefore(tenant string) (bool, error) {
	at := engine.Key{engine.Int(x.work.Slot), engine.Int(int64(x.work.Partition))}
	for _, err := range x.s.eng.Scan(x.ctx, engine.Range{
		Table: engine.Sealed, Partition: sealedPartition(x.window, tenant), From: at, To: at, KeysOnly: true, Limit: 1,
	}) {
		return err == nil, err
	}
	return false, nil
}

// series adds the rows of one series: its labels once a window, and its chunks.
func (x *sealer) series(s *Series, shard int64, samples *chunk.Samples, sealedBefore bool) error {
	known := false
	if sealedBefore {
		var err error
		if known, err = x.covered(s, samples); err != nil {
			return err
		}
	}
	// A seal whose writes arrived in part may have left chunks without labels, or without names.
	where := writtenLabels{x.window, shard}
	named := s.hasWritten && s.written == where
	if known && named {
		return nil
	}
	key := rawPartition(x.window, s.tenant.name, s.metric, shard)
	if n := len(x.rows); n == 0 || x.rows[n-1].Table != engine.Raw || !slices.Equal(x.rows[n-1].Partition, key) || x.batchBytes() > engine.MaxBatch/2 {
		x.rows = append(x.rows, engine.Batch{Table: engine.Raw, Partition: key})
	}
	timestamp := x.s.period.slotEnd(x.work.Slot) * 1000
	id := s.id.String()
	put := func(k engine.Key, value []byte) {
		b := &x.rows[len(x.rows)-1]
		b.Mutations = append(b.Mutations, engine.Mutation{Clustering: k, Timestamp: timestamp, Expires: x.expires, Value: value})
		x.bytes += len(value) + 64
	}
	if !named {
		put(labelsKey(id), appendLabels(nil, s.labels))
		x.names(s)
		x.written = append(x.written, seriesLabels{s, where})
	}
	if known {
		return nil
	}
	start := x.s.period.slotStart(x.work.Slot)
	for _, piece := range pieces(samples) {
		value := chunk.AppendChunk(nil, piece)
		version := sha256.Sum256(value)
		if x.batchBytes()+len(value) > engine.MaxBatch*3/4 {
			x.rows = append(x.rows, engine.Batch{Table: engine.Raw, Partition: key})
		}
		put(chunkKey(id, start, string(version[:engine.IDLen])), value)
		x.stats.Chunks++
		x.stats.Bytes += int64(len(value))
	}
	x.stats.Series++
	x.stats.Samples += samples.Len()
	return nil
}

func (x *sealer) batchBytes() (n int) {
	for _, m := range x.rows[len(x.rows)-1].Mutations {
		n += len(m.Value) + 128
	}
	return n
}

// covered says whether the sealed chunks of the slot hold all the samples already.
func (x *sealer) covered(s *Series, samples *chunk.Samples) (bool, error) {
	var have chunk.Samples
	err := x.readSealed(s, &have)
	if errors.Is(err, chunk.ErrCorrupt) {
		return false, nil // The reader names it; what comes now is sealed beside it.
	}
	if err != nil || have.Len() == 0 {
		return false, err
	}
	have.Normalize()
	return have.Covers(samples), nil
}

// readSealed appends the samples of the slot's sealed chunks of a series.
func (x *sealer) readSealed(s *Series, into *chunk.Samples) error {
	if x.asked != s.metric || x.askedOf != s.tenant {
		shards, err := x.s.readShards(x.ctx, x.window, s.tenant.name, s.metric)
		if err != nil {
			return err
		}
		x.asked, x.askedOf, x.shards = s.metric, s.tenant, shards
	}
	at := engine.Key{engine.Int(kindChunk), engine.Int(x.s.period.slotStart(x.work.Slot)), engine.Text(s.id.String())}
	for shards := x.shards; ; shards /= 2 { // Also where it went when there were fewer.
		if shards > 1 && shardOf(s.id, shards) == shardOf(s.id, shards/2) {
			continue
		}
		for row, err := range x.s.eng.Scan(x.ctx, engine.Range{
			Table: engine.Raw, Partition: rawPartition(x.window, s.tenant.name, s.metric, shardOf(s.id, shards)), From: at, To: at,
		}) {
			if err == nil {
				err = chunk.Decode(row.Value, into)
			}
			if err != nil {
				return fmt.Errorf("storage: reading sealed chunks of %s: %w", s.labels, err)
			}
		}
		if shards <= 1 {
			return nil
		}
	}
}

// names adds the catalog rows of a series that this process hasn't written in this window yet.
func (x *sealer) names(s *Series) {
	add := func(kind int64, label, value string, row []byte) {
		name := x.s.catalog.name(x.window, s.tenant.name, kind, label, value)
		if x.named[name] || x.s.catalog.has(name) {
			return
		}
		if x.named == nil {
			x.named = map[catalogName]bool{}
		}
		x.named[name] = true
		x.catalog = append(x.catalog, engine.Batch{
			Table: engine.Catalog, Partition: catalogPartition(x.window, s.tenant.name, kind, label),
			Mutations: []engine.Mutation{{
				Clustering: engine.Key{engine.Text(value)}, Timestamp: x.s.period.slotEnd(x.work.Slot) * 1000, Expires: x.expires, Value: row,
			}},
		})
		x.bytes += len(label) + len(value) + 128
	}
	s.labels.Range(func(l labels.Label) {
		if l.Name == labels.MetricName {
			add(catalogMetric, "", l.Value, []byte{1})
		}
		add(catalogLabel, "", l.Name, []byte{1})
		add(catalogValue, l.Name, l.Value, []byte{1})
	})
}

func (x *sealer) flush() error {
	err := x.s.eng.Write(x.ctx, append(x.rows, x.catalog...))
	if err != nil {
		return fmt.Errorf("storage: writing sealed rows of slot %d, partition %d: %w", x.work.Slot, x.work.Partition, err)
	}
	for _, w := range x.written {
		w.series.written, w.series.hasWritten = w.where, true
	}
	x.s.catalog.add(x.named)
	clear(x.named)
	x.rows, x.catalog, x.bytes, x.written = nil, nil, 0, x.written[:0]
	return nil
}
