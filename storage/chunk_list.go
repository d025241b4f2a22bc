package storage

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// chunkList are the versions of the raw chunks of some series in some slots; nil: they weren't listed.
type chunkList map[chunkAt][]string

type chunkAt struct {
	start  int64
	series format.SeriesID
}

// has reports whether a series may have chunks in the slot that starts then.
func (l chunkList) has(start int64, id format.SeriesID) bool {
	return l == nil || len(l[chunkAt{start, id}]) > 0
}

// metricChunks are the chunks of a metric that start from one time to another, in a window, of so many shards.
type metricChunks struct {
	window         int64
	tenant, metric string
	shards         int64
	first, last    int64
}

// listChunks adds the raw chunks of some series of a metric to found.
func (s *Store) listChunks(ctx context.Context, of metricChunks, series []*Series, found chunkList) error {
	for at, ids := range s.byPlace(series, of.shards) {
		r := engine.Range{
			Table: engine.Raw, Partition: format.SeriesPartition(of.window, of.tenant, of.metric, at), KeysOnly: true,
			From: engine.Key{engine.Int(format.KindChunk), engine.Int(of.first), engine.Text(ids[0])},
			To:   engine.Key{engine.Int(format.KindChunk), engine.Int(of.last), engine.Text(ids[len(ids)-1])},
		}
		err := s.scanFor(ctx, r, func(row engine.Row) (next engine.Key) {
			start, id := row.Clustering[1].Int, row.Clustering[2].Text
			switch i, mine := slices.BinarySearch(ids, id); {
			case mine:
				key := chunkAt{start: start}
				copy(key.series[:], id)
				found[key] = append(found[key], strings.Clone(row.Clustering[3].Text))
				return nil
			case i < len(ids):
				return engine.Key{engine.Int(format.KindChunk), engine.Int(start), engine.Text(ids[i])}
			default:
				return engine.Key{engine.Int(format.KindChunk), engine.Int(start + 1), engine.Text(ids[0])}
			}
		})
		if err != nil {
			return fmt.Errorf("storage: listing the chunks of %q: %w", of.metric, err)
		}
	}
	return nil
}

// fineChunks reads the 5m chunks of some series of a metric, of each in order, as rollups does of one.
func (s *Store) fineChunks(ctx context.Context, of metricChunks, series []*Series, found map[format.SeriesID][]rollupChunk) error {
	for at, ids := range s.byPlace(series, of.shards) {
		r := engine.Range{
			Table: engine.R5m, Partition: format.SeriesPartition(of.window, of.tenant, of.metric, at),
			From: format.RollupKey(ids[0], of.first), To: format.RollupKey(ids[len(ids)-1], of.last),
		}
		err := s.scanFor(ctx, r, func(row engine.Row) (next engine.Key) {
			id, start := row.Clustering[1].Text, row.Clustering[2].Int
			i, mine := slices.BinarySearch(ids, id)
			switch {
			case mine && start >= of.first && start <= of.last:
				var key format.SeriesID
				copy(key[:], id)
				found[key] = append(found[key], rollupChunkOf(at, row))
				return nil
			case mine && start > of.last:
				i++
			}
			if i == len(ids) {
				return r.To
			}
			return format.RollupKey(ids[i], of.first)
		})
		if err != nil {
			return fmt.Errorf("storage: reading rollups of %q: %w", of.metric, err)
		}
	}
	for _, x := range series {
		found[x.ID()] = bestOfEach(found[x.ID()])
	}
	return nil
}

// byPlace returns where rows of some series may be, and of which of them, in the order of ids.
func (s *Store) byPlace(series []*Series, shards int64) map[format.ClassShard][]string {
	places := map[format.ClassShard][]string{}
	for _, x := range series {
		id := x.ID().String()
		for at := range s.placesOf(x.ID(), shards) {
			places[at] = append(places[at], id)
		}
	}
	for at, ids := range places {
		slices.Sort(ids)
		places[at] = slices.Compact(ids)
	}
	return places
}

// scanFor scans rows in order. take returns nil for a row that it takes, and for another one the next key that may be of a row to take,
// which comes after it: with many others between, the scan goes on there.
func (s *Store) scanFor(ctx context.Context, r engine.Range, take func(engine.Row) (next engine.Key)) error {
	most := s.distance().passOver
	for again := true; again; {
		again = false
		others := 0
		for row, err := range s.rows.Scan(ctx, r) {
			if err != nil {
				return err
			}
			next := take(row)
			if next == nil {
				others = 0
				continue
			}
			if others++; others > most {
				r.From, again = next, true
				break
			}
		}
	}
	return nil
}

// places yields all partitions that a metric may have in a window, where it has so many shards.
func (s *Store) places(shards int64) iter.Seq[format.ClassShard] {
	return func(yield func(format.ClassShard) bool) {
		for class := range s.classes.count() {
			for shard := range shards {
				if !yield(format.ClassShardOf(class, shard)) {
					return
				}
			}
		}
	}
}

// placesOf yields those in which a series may have rows.
func (s *Store) placesOf(id format.SeriesID, shards int64) iter.Seq[format.ClassShard] {
	return func(yield func(format.ClassShard) bool) {
		for class := range s.classes.count() {
			for shard := range format.ShardsOf(id, shards) {
				if !yield(format.ClassShardOf(class, shard)) {
					return
				}
			}
		}
	}
}
