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

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
)

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
		if known, err = x.subtract(s, samples); err != nil {
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

// subtract removes the samples that the sealed chunks of the slot hold already, and says whether none is left.
func (x *sealer) subtract(s *Series, samples *chunk.Samples) (known bool, err error) {
	var have chunk.Samples
	err = x.readSealed(s, &have)
	if errors.Is(err, chunk.ErrCorrupt) {
		return false, nil // The reader names it; what comes now is sealed beside it.
	}
	if err != nil || have.Len() == 0 {
		return false, err
	}
	have.Normalize()
	samples.Subtract(&have)
	return samples.Len() == 0, nil
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
