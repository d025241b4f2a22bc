package storage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// deleteRests is how long a delete stands after it was asked for where several processes share an engine, though all
// it deletes is gone: a seal that was begun before it may still be on its way, and bring what it has in memory.
const deleteRests = 48 * time.Hour

// WorkOffDeletes makes the rollups anew that a tenant's deletes touch, as far as there are samples, and those that
// their ends cut.
func (s *Store) WorkOffDeletes(ctx context.Context, tenant string) error {
	ctx = engine.WithMakingRoom(ctx)
	if err := s.member.MayWrite(); err != nil {
		return err
	}
	all, err := s.deletesOf(ctx, tenant)
	if err != nil {
		return err
	}
	err = s.eachDeletedWindow(ctx, tenant, rollup.Raw, all, func(window int64, _ format.Tombstones) error {
		_, err := s.rollWindow(ctx, tenant, window, func() {})
		return err
	})
	for i := 0; i < len(all) && err == nil; i++ {
		err = s.trimEnds(ctx, tenant, all[i])
	}
	return err
}

// eachDeletedWindow calls f for the windows of a resolution that deletes of a tenant touch, in order.
func (s *Store) eachDeletedWindow(
	ctx context.Context, tenant string, res rollup.Resolution, all format.Tombstones,
	f func(window int64, ds format.Tombstones) error,
) error {
	if len(all) == 0 {
		return nil
	}
	p := s.period
	first, last := all[0].Start, all[0].End
	for _, d := range all {
		first, last = min(first, d.Start), max(last, d.End)
	}
	// A slot's window is that of its beginning.
	windows, err := s.readableWindows(ctx, tenant, p.WindowOfSlot(res, p.SlotOf(first)), p.WindowAt(res, last))
	if err != nil {
		return err
	}
	for _, w := range windows {
		start, end := p.WindowSpan(w)
		if ds := all.Filter(func(d *format.Tombstone) bool { return d.Touches(start, end) }); len(ds) > 0 {
			if err := f(w, ds); err != nil {
				return err
			}
		}
	}
	return nil
}

// CleanTombstones removes what a tenant has deleted from the sealed rows, and then the deletes themselves. It may be
// repeated at any time, and after any error. Where samples are gone and only rollups are left, whole buckets go.
//
//	for each window:  rollups made anew ─► chunks rewritten ─┐
//	older windows:    buckets taken out ─────────────────────┴─► the deletes' rows
//
// A chunk is rewritten in its place, and one that is empty stays: rollups count the chunks that they are made of. One
// that can't be read stays, too, with the deletes that are about it, which goes as an error when all else is done.
func (s *Store) CleanTombstones(ctx context.Context, tenant string) (err error) {
	defer func() { err = explainError("storage: deleted samples still take disk space", err) }()
	ctx = engine.WithMakingRoom(ctx)
	if err := cmp.Or(s.Ready(), s.clock.MayRemove()); err != nil {
		return err
	}
	s.deletes.cleaning.Lock()
	defer s.deletes.cleaning.Unlock()
	if err := s.peers.settle(ctx, tenant); err != nil {
		return err
	}
	// Deletes from now on wait for the next time.
	all, err := s.loadTombstones(ctx, tenant)
	if err != nil {
		return err
	}
	staged, err := s.peers.toMark(ctx, all)
	if err != nil {
		return err
	}
	unread := unreadDeletes{}
	err = s.eachDeletedWindow(ctx, tenant, rollup.Raw, all, func(window int64, ds format.Tombstones) error {
		if err := s.markStaged(ctx, tenant, window, staged, ds); err != nil {
			return err
		}
		if _, err := s.rollWindow(ctx, tenant, window, func() {}); err != nil {
			return err
		}
		return s.cleanWindow(ctx, tenant, window, ds, unread)
	})
	if err != nil {
		return err
	}
	for _, res := range rollup.Resolutions {
		if err := s.eachDeletedWindow(ctx, tenant, res, all, func(window int64, ds format.Tombstones) error {
			return s.trimWindow(ctx, tenant, window, ds, unread, func(int64) bool { return true })
		}); err != nil {
			return err
		}
	}
	if err := s.clearPages(ctx, tenant, all); err != nil {
		return err
	}
	if err := s.dropDeletes(
		ctx, tenant, all.Filter(func(d *format.Tombstone) bool { return unread[d.ID] == nil }),
	); err != nil {
		return err
	}
	return unread.err()
}

// clearPages removes from pages what stands there of series that deletes are about, and that was rewritten as rows.
func (s *Store) clearPages(ctx context.Context, tenant string, all format.Tombstones) error {
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		err := s.eachDeletedWindow(ctx, tenant, res, all, func(window int64, ds format.Tombstones) error {
			return s.eachDeletedSeries(ctx, tenant, window, ds,
				func(part engine.Key, _ format.ClassShard, series map[string]deletedSeries) error {
					return s.removeSuperseded(ctx, res, part, series)
				})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cleanWindow rewrites the chunks of a window of raw rows.
func (s *Store) cleanWindow(
	ctx context.Context, tenant string, window int64, ds format.Tombstones, unread unreadDeletes,
) error {
	return s.eachDeletedSeries(ctx, tenant, window, ds, func(
		part engine.Key, at format.ClassShard, series map[string]deletedSeries,
	) error {
		c, err := s.newCleaner(ctx, tenant, window, part, at.Class())
		if errors.Is(err, retention.ErrWindowOver) {
			return nil
		}
		if err != nil {
			return err
		}
		c.unread = unread
		left := s.unreadReporter(engine.Raw, part, func(u paged.Unreadable) {
			for id, x := range series {
				if u.Has(id, u.From, u.To) {
					unread.add(x.deletes.InSlot(s.period, s.period.SlotOf(u.From+1)), u.Err)
				}
			}
		})
		for row, err := range s.rows.ScanReadable(ctx, engine.Range{
			Table: engine.Raw, Partition: part, From: engine.Key{engine.Int(format.KindChunk)},
			To: engine.Key{engine.Int(format.KindExemplars)},
		}, left) {
			if err != nil {
				return fmt.Errorf("storage: cleaning window %d of tenant %q: %w", window, tenant, err)
			}
			slot := s.period.SlotOf(row.Clustering[1].Int + 1)
			id := row.Clustering[2].Text
			if err := c.row(row, slot, series[id].deletes.InSlot(s.period, slot)); err != nil {
				return err
			}
			if err := c.flushAt(ctx, engine.MaxBatch/2); err != nil {
				return err
			}
		}
		return c.flush(ctx)
	})
}

// eachDeletedSeries calls f for the partitions of a window's rows with the series, by id, that deletes are about.
func (s *Store) eachDeletedSeries(
	ctx context.Context, tenant string, window int64, ds format.Tombstones,
	f func(part engine.Key, at format.ClassShard, series map[string]deletedSeries) error,
) error {
	names, err := s.metricsIn(ctx, tenant, window)
	if err != nil {
		return err
	}
	for _, metric := range names {
		if err := s.eachDeletedOf(ctx, tenant, window, metric, ds, f); err != nil {
			return err
		}
	}
	return nil
}

// eachDeletedOf is eachDeletedSeries for one metric.
func (s *Store) eachDeletedOf(
	ctx context.Context, tenant string, window int64, metric string, ds format.Tombstones,
	f func(part engine.Key, at format.ClassShard, series map[string]deletedSeries) error,
) error {
	if ds = ds.OfMetric(metric); len(ds) == 0 {
		return nil
	}
	shards, err := s.readShards(ctx, window, tenant, metric)
	if err != nil {
		return err
	}
	builder := labels.NewScratchBuilder(16)
	for at := range s.unexpiredShards(tenantWindow{tenant, window}, shards) {
		part, series := format.SeriesPartition(window, tenant, metric, at), map[string]deletedSeries{}
		for row, err := range s.rows.Scan(ctx, engine.Range{
			Table: format.TableOf(format.ResolutionOf(window)), Partition: part,
			From: engine.Key{engine.Int(format.KindLabels)}, To: engine.Key{engine.Int(format.KindLabels)},
		}) {
			if err != nil {
				return fmt.Errorf("storage: cleaning window %d of tenant %q: %w", window, tenant, err)
			}
			ls, err := format.ParseLabels(row.Value, metric, &builder)
			if err != nil {
				continue // Readers name it.
			}
			if found := ds.OfSeries(ls); len(found) > 0 {
				series[strings.Clone(
					row.Clustering[format.SeriesField(format.ResolutionOf(window))].Text,
				)] = deletedSeries{ls, found}
			}
		}
		if len(series) == 0 {
			continue
		}
		if err := f(part, at, series); err != nil {
			return err
		}
	}
	return nil
}

// deletedSeries is a series with the deletes that are about it.
type deletedSeries struct {
	labels  labels.Labels
	deletes format.Tombstones
}

// cleaner rewrites chunks of one partition.
type cleaner struct {
	s      *Store
	tenant string
	window int64
	batch  engine.Batch
	bytes  int
	unread unreadDeletes
}

// newCleaner returns retention.ErrWindowOver where the rows are about to vanish anyway.
func (s *Store) newCleaner(
	ctx context.Context, tenant string, window int64, part engine.Key, class int64,
) (*cleaner, error) {
	c := &cleaner{
		s: s, tenant: tenant, window: window,
		batch: engine.Batch{Table: format.TableOf(format.ResolutionOf(window)), Partition: part},
	}
	return c, s.retention.SetExpiry(ctx, &c.batch, tenant, class, window)
}

// row rewrites a row of raw, of samples or exemplars, without its deleted samples. A row that can't be read stays, and
// so do the deletes that it isn't exempt from.
func (c *cleaner) row(row engine.Row, slot int64, ds format.Tombstones) error {
	if len(ds) == 0 {
		return nil
	}
	raw, left, err := restOf(row, ds)
	ds = raw.Exempt.SelectApplying(ds)
	if err != nil {
		c.reportCorrupt(row.Clustering[2].Text, row.Clustering[1].Int, ds, err)
	}
	if err != nil || len(ds) == 0 {
		return nil
	}
	cleaned := format.RawChunk{Exempt: raw.Exempt.Union(ds.IDs()), Cleaned: true, Data: left}
	k := row.Clustering
	c.put(engine.Key{k[0], k[1], engine.Text(strings.Clone(k[2].Text)), engine.Text(strings.Clone(k[3].Text))},
		// The more deletes were applied to it, the better.
		c.s.period.SlotEnd(slot)*1000+int64(cleaned.Exempt.Count()), format.AppendRawChunk(nil, cleaned))
	return nil
}

// restOf returns a row of raw, and what isn't deleted of it, encoded; nil: all is.
func restOf(row engine.Row, ds format.Tombstones) (raw format.RawChunk, left []byte, err error) {
	if row.Clustering[0].Int == format.KindExemplars {
		list, raw, err := format.DecodeRawExemplars(row.Value, ds)
		if len(list) > 0 {
			left = format.AppendExemplars(nil, list)
		}
		return raw, left, err
	}
	var samples chunk.Samples
	if raw, err = format.DecodeRawChunk(row.Value, ds, &samples); err == nil && samples.Len() > 0 {
		samples.Normalize()
		left = chunk.AppendChunk(nil, &samples)
	}
	return raw, left, err
}

func (c *cleaner) put(key engine.Key, timestamp int64, value []byte) {
	c.batch.Mutations = append(c.batch.Mutations, engine.Mutation{Clustering: key, Timestamp: timestamp, Value: value})
	c.bytes += len(value) + 128
}

func (c *cleaner) flushAt(ctx context.Context, bytes int) error {
	if c.bytes < bytes {
		return nil
	}
	return c.flush(ctx)
}

func (c *cleaner) flush(ctx context.Context) error {
	if len(c.batch.Mutations) == 0 {
		return nil
	}
	if err := c.s.rows.WriteRows(ctx, []engine.Batch{c.batch}); err != nil {
		return fmt.Errorf("storage: writing cleaned rows: %w", err)
	}
	c.batch.Mutations, c.bytes = nil, 0
	return nil
}

// stagedIn lists what waits in the stage in slots that deletes touch.
func (s *Store) stagedIn(ctx context.Context, ds format.Tombstones) (found []Work, err error) {
	if len(ds) == 0 {
		return nil, nil
	}
	for partition := range s.period.Partitions() {
		work, err := s.WaitingWork(ctx, partition)
		if err != nil {
			return nil, err
		}
		for _, w := range work {
			if len(ds.InSlot(s.period, w.Slot)) == 0 {
				continue
			}
			if empty, err := s.isEmptyPartition(ctx, engine.Stage, format.StagePartition(w.Slot, partition)); err != nil {
				return nil, err
			} else if !empty {
				found = append(found, w)
			}
		}
	}
	return found, nil
}

// markStaged marks staged slots of a window that deletes touch as sealed before. A seal of one that failed
// may have left chunks, which name no delete and are cleaned now as others are: the next seal, which would write them
// once more in their place, has to find them. Invariant: see slotSealer.subtractSealed.
func (s *Store) markStaged(
	ctx context.Context, tenant string, window int64, staged []Work, ds format.Tombstones,
) error {
	for _, w := range staged {
		in := ds.InSlot(s.period, w.Slot)
		if len(in) == 0 || s.period.WindowOfSlot(rollup.Raw, w.Slot) != window {
			continue
		}
		for _, at := range s.destinationsOf(w.Slot) {
			if err := s.listWindow(ctx, tenant, at.window); err != nil {
				return err
			}
		}
		// Another id than the delete's, whose mark means that the rollups were made anew for it; and always the same.
		id := sha256.Sum256([]byte(in[0].ID))
		mark := []format.CommitKey{{Slot: w.Slot, Partition: w.Partition, ID: string(id[:engine.IDLen])}}
		for res := rollup.Raw; res <= rollup.OneHour; res++ {
			// Raw first: a trim takes rollups without it for the only data.
			if err := s.writeCommitRecords(ctx, tenant, res, format.CommitMaintenance, mark); err != nil {
				return err
			}
		}
	}
	return nil
}
