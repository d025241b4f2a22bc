package storage

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// This file contains all code that deletes rows; a test of the source enforces this. Each function deletes rows under
// one condition:
//
//	dropPart          windows   past their retention boundaries, after being hidden for a week: see package retention
//	deleteStaged      stage     sealed with a commit record, or never acknowledged
//	unlistStaged      staged    their slots were found empty after the rows were marked as closing
//	deleteRows        defined   no staged blob depends on them
//	deleteHeld        held      stored, or not needed by any replica
//	deleteTombstone   deletes   cleaned, or never acknowledged
//	removeSuperseded  pages     entries superseded by rows or other entries, which readers see instead
//	compact           r5m, r1h  parts of a long chunk that is written in the same batch
//	replaceCounts     catalog   series counts for other states of a window, when its current counts are written
//
// In addition, some engines expire rows at the time that is fixed for their window: see package retention.

// tenantTables lists the tables whose keys begin with window and tenant.
var tenantTables = [...]*engine.Table{engine.Shards, engine.Metadata, engine.Sealed}

// dropWindow drops the rows of a window, and unlists the window once they are deleted.
func (s *Store) dropWindow(ctx context.Context, window int64, tenants []string) (gone bool, err error) {
	res := format.ResolutionOf(window)
	for _, t := range append(
		[]*engine.Table{format.TableOf(res), format.PagesOf(res), engine.Catalog}, tenantTables[:]...,
	) {
		if err := s.dropPrefix(ctx, t, engine.Key{engine.Int(window)}); err != nil {
			return false, err
		}
	}
	for _, tenant := range tenants {
		done, err := s.unlistWindow(ctx, tenant, window)
		if err != nil {
			return gone, err
		}
		gone = gone || done
	}
	return gone, nil
}

// dropTenant drops a tenant's rows in a window in which other tenants keep rows.
func (s *Store) dropTenant(ctx context.Context, window int64, tenant string) (gone bool, err error) {
	res := format.ResolutionOf(window)
	for class := range s.retention.Classes() {
		if err := s.dropRows(
			ctx, res, engine.Key{engine.Int(window), engine.Int(class), engine.Text(tenant)},
		); err != nil {
			return false, err
		}
	}
	if err := s.dropPrefix(
		ctx, engine.Catalog, engine.Key{engine.Int(window), engine.Int(int64(res)), engine.Text(tenant)},
	); err != nil {
		return false, err
	}
	for _, t := range tenantTables {
		if err := s.dropPrefix(ctx, t, engine.Key{engine.Int(window), engine.Text(tenant)}); err != nil {
			return false, err
		}
	}
	return s.unlistWindow(ctx, tenant, window)
}

// dropPart drops one range. gone is false after an error. For a range that is a whole window, gone is also false if the
// window stays listed for all of its tenants, see unlistWindow.
func (s *Store) dropPart(ctx context.Context, d dropRange, tenants []string) (gone bool, err error) {
	if d.class == wholeWindow && !s.retention.Expires() { // An import may restore the window.
		defer s.forgetWindow(d.window)
	}
	switch {
	case d.class == wholeWindow && d.tenant == "":
		return s.dropWindow(ctx, d.window, tenants)
	case d.class == wholeWindow:
		return s.dropTenant(ctx, d.window, d.tenant)
	}
	prefix := engine.Key{engine.Int(d.window), engine.Int(d.class)}
	if d.tenant != "" {
		prefix = append(prefix, engine.Text(d.tenant))
	}
	err = s.dropRows(ctx, format.ResolutionOf(d.window), prefix)
	return err == nil, err
}

// forgetWindow removes a window from this process's caches, so that later writes to the window write names and shards
// again, and imports also write labels.
func (s *Store) forgetWindow(window int64) {
	s.catalog.removeWindow(window)
	s.shards.DeleteFunc(func(of shardedMetric) bool { return of.window == window })
	s.imports.dropped.Store(true)
}

// dropRows drops the rows and pages of series at a resolution.
func (s *Store) dropRows(ctx context.Context, res rollup.Resolution, prefix engine.Key) error {
	if err := s.dropPrefix(ctx, format.TableOf(res), prefix); err != nil {
		return err
	}
	return s.dropPrefix(ctx, format.PagesOf(res), prefix)
}

func (s *Store) dropPrefix(ctx context.Context, t *engine.Table, prefix engine.Key) error {
	if err := s.eng.Drop(ctx, t, prefix); err != nil {
		return fmt.Errorf("storage: deleting window %d of %s: %w", prefix[0].Int, t, err)
	}
	return nil
}

// deleteStaged deletes exactly the stage rows that were read for works.
func (s *Store) deleteStaged(ctx context.Context, works []*sealedWork) error {
	var staged []engine.Batch
	for _, w := range works {
		staged = append(staged, deletionBatch(engine.Stage, format.StagePartition(w.Slot, w.Partition), w.rows))
	}
	return s.writeInPieces(ctx, staged...)
}

// unlistStaged unlists the empty slots or units in found, which maps the number of each slot or unit to the rows that
// list it. The function empty selects the numbers of the empty slots or units.
//
//	rows found ─► closing, durable ─► empty ─► exactly the rows found are deleted
//
// A writer that concurrently stages samples finds the slot closing, and lists the slot by another row
// (design/several-processes.md).
func (s *Store) unlistStaged(
	ctx context.Context, list engine.Key, found map[int64][]listedRow,
	empty func(context.Context, []int64) ([]int64, error),
) error {
	writeAll := func(numbers []int64, m func(number int64, r listedRow) engine.Mutation) error {
		b := engine.Batch{Table: engine.Staged, Partition: list}
		for _, n := range numbers {
			for _, r := range found[n] {
				b.Mutations = append(b.Mutations, m(n, r))
			}
		}
		return s.writeInPieces(ctx, b)
	}
	numbers, now := slices.Sorted(maps.Keys(found)), s.opts.Now().UnixMilli()
	if err := writeAll(numbers, func(n int64, r listedRow) engine.Mutation {
		return engine.Mutation{
			Clustering: format.StagedKey(n, r.generation, format.StagedClosing), Timestamp: format.StageTimestamp,
			Value: binary.AppendVarint(nil, now),
		}
	}); err != nil {
		return err
	}
	numbers, err := empty(ctx, numbers)
	if err != nil {
		return err
	}
	return writeAll(numbers, func(n int64, r listedRow) engine.Mutation {
		return engine.Mutation{
			Op: engine.DeleteRange, Clustering: format.StagedKey(n, r.generation, format.StagedListed),
			To:        format.StagedKey(n, r.generation, format.StagedClosing),
			Timestamp: format.StageTimestamp,
		}
	})
}

// writeInPieces writes batches of small mutations that needn't be applied atomically.
func (s *Store) writeInPieces(ctx context.Context, batches ...engine.Batch) error {
	const piece = 2000
	var now []engine.Batch
	n := 0
	write := func() error {
		if err := s.eng.Write(ctx, now); err != nil {
			return fmt.Errorf("storage: writing rows of %s: %w", now[0].Table, err)
		}
		now, n = nil, 0
		return nil
	}
	for _, b := range batches {
		for part := range slices.Chunk(b.Mutations, piece) {
			if n > 0 && n+len(part) > piece {
				if err := write(); err != nil {
					return err
				}
			}
			now = append(now, engine.Batch{Table: b.Table, Partition: b.Partition, Mutations: part, Expires: b.Expires})
			n += len(part)
		}
	}
	if n == 0 {
		return nil
	}
	return write()
}

// deleteRows deletes rows of table stage or defined.
func (s *Store) deleteRows(ctx context.Context, t *engine.Table, partition engine.Key, rows []format.StageRow) error {
	return s.writeInPieces(ctx, deletionBatch(t, partition, rows))
}

// deletionBatch returns a batch that deletes rows of table stage or defined, as ranges of consecutive numbers.
func deletionBatch(t *engine.Table, partition engine.Key, rows []format.StageRow) engine.Batch {
	slices.SortFunc(rows, func(a, b format.StageRow) int {
		return cmp.Or(strings.Compare(a.Writer, b.Writer), cmp.Compare(a.Seq, b.Seq))
	})
	batch := engine.Batch{Table: t, Partition: partition}
	for i := 0; i < len(rows); {
		j := i + 1
		for j < len(rows) && rows[j].Writer == rows[i].Writer && rows[j].Seq == rows[j-1].Seq+1 {
			j++
		}
		batch.Mutations = append(batch.Mutations, engine.Mutation{
			Op: engine.DeleteRange, Clustering: rows[i].Key(), To: rows[j-1].Key(), Timestamp: format.StageTimestamp,
		})
		i = j
	}
	return batch
}

// deleteHeld deletes held rows. Rows of a replica with consecutive numbers are deleted as one range.
func (s *Store) deleteHeld(ctx context.Context, at ha.ClusterName, rows []ha.HeldID) error {
	byEra := map[int64][]ha.HeldID{}
	for _, h := range rows {
		byEra[h.Epoch] = append(byEra[h.Epoch], h)
	}
	var batches []engine.Batch
	for era, list := range byEra {
		slices.SortFunc(list, func(a, b ha.HeldID) int {
			return cmp.Or(cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Writer, b.Writer), cmp.Compare(a.Seq, b.Seq))
		})
		const piece = 500
		for part := range slices.Chunk(list, piece) {
			b := engine.Batch{Table: engine.Held, Partition: format.HeldPartition(at.Tenant, at.Cluster, era)}
			for i := 0; i < len(part); {
				last := i
				for last+1 < len(part) && part[last+1].Replica == part[i].Replica &&
					part[last+1].Writer == part[i].Writer && part[last+1].Seq == part[last].Seq+1 {
					last++
				}
				m := engine.Mutation{Op: engine.Delete, Clustering: part[i].Key(), Timestamp: ha.HeldTimestamp}
				if last > i {
					m.Op, m.To = engine.DeleteRange, part[last].Key()
				}
				b.Mutations = append(b.Mutations, m)
				i = last + 1
			}
			batches = append(batches, b)
		}
	}
	if err := s.eng.Write(ctx, batches); err != nil {
		return fmt.Errorf("storage: deleting held samples: %w", err)
	}
	return nil
}

// deleteTombstone deletes the row of a tombstone. The deletion has the timestamp of the row's last write, so the
// tombstone can't reappear.
func (s *Store) deleteTombstone(ctx context.Context, tenant, id string) error {
	err := s.eng.Write(ctx, []engine.Batch{
		{Table: engine.Deletes, Partition: deletePartition(tenant), Mutations: []engine.Mutation{{
			Op: engine.Delete, Clustering: engine.Key{engine.Text(id)}, Timestamp: format.TombstoneTimestamp,
		}}},
	})
	if err != nil {
		return fmt.Errorf("storage: removing a delete: %w", err)
	}
	return nil
}

// removeSuperseded removes superseded entries of some series from the pages of a partition. Entries that supersede
// other entries are first rewritten as rows.
func (s *Store) removeSuperseded(
	ctx context.Context, res rollup.Resolution, partition engine.Key, series map[string]deletedSeries,
) error {
	// Pages don't contain parts of long chunks. This compaction removes superseded parts.
	if res != rollup.Raw && s.rows.HasLong(partition[0].Int) {
		// Scans that started earlier must end before the compaction.
		if err := s.beginLong(ctx, partition[0].Int); err != nil {
			return err
		}
		if _, err := s.compactPartition(ctx, res, partition, func() {}); err != nil {
			return fmt.Errorf("storage: removing rewritten data from long chunks of %s: %w", format.TableOf(res), err)
		}
	}
	ids := make(map[string]bool, len(series))
	for id := range series {
		ids[id] = true
	}
	window, class, tenant := partition[0].Int, partition[1].Int, partition[2].Text
	expires, err := s.retention.Expiry(ctx, tenant, class, window)
	if errors.Is(err, retention.ErrWindowOver) {
		return nil
	}
	if err != nil {
		return err
	}
	err = s.rows.RemoveOutdone(ctx, format.TableOf(res), partition, ids, paged.Rewriting{
		Timestamp: func(start int64, version uint64) int64 { return s.timestampOf(res, start, version) },
		Expires:   expires,
	})
	if err != nil {
		return fmt.Errorf("storage: removing rewritten data from pages of %s: %w", format.TableOf(res), err)
	}
	return nil
}

// replaceCounts writes the series counts of a window's current state and deletes the counts of its other states, in one
// batch.
func (s *Store) replaceCounts(
	ctx context.Context, u *ended.OverWindow, others []string, rows []engine.Mutation, expires int64,
) error {
	batch := engine.Batch{
		Expires: expires, Table: engine.Catalog, Partition: format.CountsPartition(u.Window, u.Tenant),
	}
	for _, key := range others {
		batch.Mutations = append(batch.Mutations, engine.Mutation{
			Op: engine.Delete, Clustering: engine.Key{engine.Text(key)}, Timestamp: s.period.WindowEnd(u.Window) * 1000,
		})
	}
	batch.Mutations = append(batch.Mutations, rows...)
	if len(batch.Mutations) == 0 {
		return nil
	}
	if err := s.eng.Write(ctx, []engine.Batch{batch}); err != nil {
		return fmt.Errorf("storage: writing counts: %w", err)
	}
	return nil
}
