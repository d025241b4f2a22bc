package storage

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
)

// chunkList maps series and slots to their raw chunks. It is nil if chunks weren't listed at all.
type chunkList map[chunkKey]listedChunks

// listedChunks holds the versions of the chunks of a series in a slot. unread is true if there may be more chunks that
// are unreadable.
type listedChunks struct {
	versions []string
	unread   bool
}

type chunkKey struct {
	start  int64
	series format.SeriesID
}

// contains reports whether a series may have chunks in the slot with the given start. A nil list may contain any chunk,
// so contains then returns true.
func (l chunkList) contains(start int64, id format.SeriesID) bool {
	found := l[chunkKey{start, id}]
	return l == nil || len(found.versions) > 0 || found.unread
}

// metricChunks identifies the chunks of a metric in a window that start between first and last. shards is the metric's
// number of shards.
type metricChunks struct {
	window         int64
	tenant, metric string
	shards         int64
	first, last    int64
}

func (c *metricChunks) tenantWindow() tenantWindow { return tenantWindow{c.tenant, c.window} }

// seriesChunks identifies the chunks of some series of a metric.
type seriesChunks struct {
	metricChunks
	series []*Series
}

// listChunks lists the raw chunks that list identifies, and adds them to found.
func (s *Store) listChunks(ctx context.Context, list []seriesChunks, found chunkList) error {
	var all []paged.Wanted
	for _, of := range list {
		for at, ids := range s.groupByShard(of.tenantWindow(), of.series, of.shards) {
			w := s.wantedChunks(engine.Raw, of.metricChunks, at, ids)
			w.KeysOnly = true
			w.Left = s.unreadReporter(w.Table, w.Partition, func(u paged.Unreadable) {
				for _, id := range ids {
					if u.Has(id, of.first, of.last) { // All entries of a page have the same start.
						key := chunkKey{u.From, format.SeriesIDFrom(id)}
						found[key] = listedChunks{found[key].versions, true}
					}
				}
			})
			all = append(all, w)
		}
	}
	for row, err := range s.rows.Several(ctx, all) {
		if err != nil {
			return fmt.Errorf(
				"storage: listing the chunks of metric %q: %w", format.MetricOf(all[row.At].Partition), err,
			)
		}
		key := chunkKey{row.Clustering[1].Int, format.SeriesIDFrom(row.Clustering[2].Text)}
		found[key] = listedChunks{append(found[key].versions, strings.Clone(row.Clustering[3].Text)), found[key].unread}
	}
	return nil
}

// wantedChunks returns the request for a metric's chunks of some series in a class and shard.
func (s *Store) wantedChunks(t *engine.Table, of metricChunks, at format.ClassShard, ids []string) paged.Wanted {
	return paged.Wanted{
		Table: t, Partition: format.SeriesPartition(of.window, of.tenant, of.metric, at), IDs: ids, First: of.first,
		Last:     of.last,
		PassOver: s.workSizes().passOver,
	}
}

// read5mChunks reads the 5m chunks that list identifies into found, sorted per series like the result of readRollups.
// It adds series with unreadable chunks to unread.
func (s *Store) read5mChunks(
	ctx context.Context, list []seriesChunks, found map[format.SeriesID][]rollupChunk, unread map[format.SeriesID]bool,
) error {
	var all []paged.Wanted
	for _, of := range list {
		for at, ids := range s.groupByShard(of.tenantWindow(), of.series, of.shards) {
			w := s.wantedChunks(engine.R5m, of.metricChunks, at, ids)
			w.Left = s.unreadReporter(w.Table, w.Partition, func(u paged.Unreadable) {
				for _, id := range ids {
					if u.Has(id, of.first, of.last) {
						unread[format.SeriesIDFrom(id)] = true
					}
				}
			})
			all = append(all, w)
		}
	}
	for row, err := range s.rows.Several(ctx, all) {
		if err != nil {
			return fmt.Errorf("storage: reading rollups of metric %q: %w", format.MetricOf(all[row.At].Partition), err)
		}
		id := format.SeriesIDFrom(row.Clustering[1].Text)
		found[id] = append(found[id], parseRollupRow(row.Row))
	}
	for _, of := range list {
		for _, x := range of.series {
			found[x.ID()] = newestByStart(found[x.ID()])
		}
	}
	return nil
}

// groupByShard groups the ids of series by the classes and shards in which the series may have rows in a window. The
// ids of each group are sorted.
func (s *Store) groupByShard(in tenantWindow, series []*Series, shards int64) map[format.ClassShard][]string {
	places, classes := map[format.ClassShard][]string{}, s.retention.UnexpiredClasses(in.tenant, in.window)
	for _, x := range series {
		id := x.IDText()
		for at := range classShardsIn(classes, x.ID(), shards) {
			ids := places[at]
			if ids == nil {
				ids = make([]string, 0, len(series)/int(shards)+1)
			}
			places[at] = append(ids, id)
		}
	}
	for at, ids := range places {
		slices.Sort(ids)
		places[at] = slices.Compact(ids)
	}
	return places
}

// unexpiredShards yields the classes and shards of a window. It omits classes that are past their retention.
func (s *Store) unexpiredShards(in tenantWindow, shards int64) iter.Seq[format.ClassShard] {
	return func(yield func(format.ClassShard) bool) {
		for _, class := range s.retention.UnexpiredClasses(in.tenant, in.window) {
			for shard := range shards {
				if !yield(format.ClassShardOf(class, shard)) {
					return
				}
			}
		}
	}
}

// unexpiredShardsOf yields the classes and shards in which a series may have rows that aren't past their retention.
func (s *Store) unexpiredShardsOf(in tenantWindow, id format.SeriesID, shards int64) iter.Seq[format.ClassShard] {
	return classShardsIn(s.retention.UnexpiredClasses(in.tenant, in.window), id, shards)
}

// classShardsIn yields the classes and shards in which a series may have rows, given the possible classes.
func classShardsIn(classes []int64, id format.SeriesID, shards int64) iter.Seq[format.ClassShard] {
	return func(yield func(format.ClassShard) bool) {
		for _, class := range classes {
			for shard := range format.ShardsOf(id, shards) {
				if !yield(format.ClassShardOf(class, shard)) {
					return
				}
			}
		}
	}
}
