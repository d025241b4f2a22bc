package storage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/rollup"
)

// rollupTimestamp returns the timestamp of a rollup chunk. Of several chunks with the same key, the chunk with the
// highest version has the highest timestamp, so it wins. Chunks of the same time have similar timestamps, so an engine
// that groups rows by timestamp keeps them together.
func rollupTimestamp(endMS int64, version uint64) int64 {
	return endMS*1000 + int64(min(version, 1<<30))
}

// timestampOf returns the timestamp of a rollup chunk with the given start.
func (s *Store) timestampOf(res rollup.Resolution, start int64, version uint64) int64 {
	end := start + format.DayMS
	if res == rollup.FiveMinutes {
		end = s.period.SlotEnd(s.period.SlotOf(start + 1))
	}
	return rollupTimestamp(end, version)
}

// appendRollup encodes buckets. If histograms make them too large for a row, it drops the histograms' sums. If they are
// still too large, it drops the histograms, and queries read samples instead.
func appendRollup(b *rollup.Buckets, res rollup.Resolution, version uint64) []byte {
	if len(b.End) == 0 {
		return nil
	}
	value := rollup.AppendChunk(nil, b, res.Width(), version)
	for _, drop := range []func(*rollup.Buckets){
		(*rollup.Buckets).DropHistogramSums, (*rollup.Buckets).DropHistograms,
	} {
		if len(value) <= engine.MaxValue/2 {
			return value
		}
		drop(b)
		value = rollup.AppendChunk(nil, b, res.Width(), version)
	}
	return value
}

// appendOrEmpty encodes buckets, or an empty rollup if there are no buckets.
func appendOrEmpty(b *rollup.Buckets, res rollup.Resolution, version uint64) []byte {
	if value := appendRollup(b, res, version); value != nil {
		return value
	}
	return rollup.AppendEmpty(nil, version)
}

// rollupChunk is a stored rollup chunk.
type rollupChunk struct {
	start   int64
	version uint64
	data    []byte
}

// readRollups reads the rollup chunks of a series in a window that start between from and to, in order. If the number
// of the metric's shards has grown, two chunks may have the same start. In this case the chunk with the higher version
// wins. unread is true if there may be more chunks that are unreadable.
func (s *Store) readRollups(
	ctx context.Context, res rollup.Resolution, window int64, series *Series, shards, from, to int64,
) (found []rollupChunk, unread bool, err error) {
	id := series.IDText()
	for at := range s.unexpiredShardsOf(tenantWindow{series.Tenant(), window}, series.ID(), shards) {
		rows := engine.Range{
			Table: format.TableOf(res), Partition: format.SeriesPartition(window, series.Tenant(), series.Metric(), at),
			From: format.RollupKey(id, from), To: format.RollupKey(id, to),
		}
		left := s.unreadReporter(
			rows.Table, rows.Partition, func(u paged.Unreadable) { unread = unread || u.Has(id, from, to) },
		)
		for row, err := range s.rows.ScanReadable(ctx, rows, left) {
			if err != nil {
				return nil, false, fmt.Errorf("storage: reading %s of metric %q, tenant %q, from %s on: %w",
					format.TableOf(res).Name, series.Metric(), series.Tenant(),
					time.UnixMilli(from).UTC().Format(time.RFC3339), err)
			}
			found = append(found, parseRollupRow(row))
		}
	}
	return newestByStart(found), unread, nil
}

func parseRollupRow(row engine.Row) rollupChunk {
	return rollupChunk{
		start: row.Clustering[2].Int, version: rollup.VersionOf(row.Value), data: slices.Clone(row.Value),
	}
}

// newestByStart sorts chunks by start, and keeps the chunk with the highest version for each start.
func newestByStart(list []rollupChunk) []rollupChunk {
	slices.SortStableFunc(list, func(a, b rollupChunk) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.version, a.version))
	})
	return slices.CompactFunc(list, func(a, b rollupChunk) bool { return a.start == b.start })
}
