package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/rollup"
)

const (
	// maxReadSeries is the number of series in a slot whose sealed chunks, including their values, are read together.
	// maxHeldSeries is the number of series whose chunks are kept in memory.
	maxReadSeries = 256
	maxHeldSeries = 4 * maxReadSeries
	// sealedPassOver is the max Wanted.PassOver of reads of sealed chunks. It is smaller than for reads of keys only,
	// because values are larger.
	sealedPassOver = 100
)

// sealedChunks maps series and slots to raw chunks. It also contains an entry without chunks if a series was read and
// has no chunks in a slot.
type sealedChunks map[chunkKey]storedChunks

// storedChunks are the stored chunks of a series in a slot. unread is true if there may be more chunks that are
// unreadable.
type storedChunks struct {
	values [][]byte
	unread bool
}

// readChunks adds the slot's chunks of some series, given by metric, to found. It needs only a few scans even for many
// series.
func (x *sealedSlot) readChunks(
	ctx context.Context, metrics map[string][]*Series, shards metricShards, found sealedChunks,
) error {
	into := x.into[rollup.Raw]
	var all []paged.Wanted
	for metric, series := range metrics {
		chunks := metricChunks{into.window, series[0].Tenant(), metric, shards.count(metric), into.start, into.start}
		for _, s := range series {
			found[chunkKey{into.start, s.ID()}] = storedChunks{}
		}
		for at, ids := range x.s.groupByShard(chunks.tenantWindow(), series, chunks.shards) {
			w := x.s.wantedChunks(engine.Raw, chunks, at, ids)
			w.PassOver = min(w.PassOver, sealedPassOver)
			w.Left = x.s.unreadReporter(w.Table, w.Partition, func(u paged.Unreadable) {
				for _, id := range ids {
					if u.Has(id, into.start, into.start) {
						key := chunkKey{into.start, format.SeriesIDFrom(id)}
						found[key] = storedChunks{found[key].values, true}
					}
				}
			})
			all = append(all, w)
		}
	}
	for row, err := range x.s.rows.Several(ctx, all) {
		if err != nil {
			p := all[row.At].Partition
			return fmt.Errorf(
				"storage: reading sealed chunks of metric %q, tenant %q: %w", format.MetricOf(p), p[2].Text, err,
			)
		}
		key := chunkKey{into.start, format.SeriesIDFrom(row.Clustering[2].Text)}
		found[key] = storedChunks{append(found[key].values, slices.Clone(row.Value)), found[key].unread}
	}
	return nil
}

// readMetricChunks calls readChunks for some series of one metric.
func (x *sealedSlot) readMetricChunks(ctx context.Context, series []*Series, shards int64, found sealedChunks) error {
	metric := series[0].Metric()
	return x.readChunks(ctx, map[string][]*Series{metric: series}, metricShards{metric: shards}, found)
}

// visibleSamples appends the samples in chunks to into, except deleted samples. It calls exempt for each chunk with the
// deletes that don't apply to the chunk. Unreadable chunks are skipped; corrupt is the error of the last one.
func visibleSamples(
	chunks [][]byte, hiding format.Tombstones, into *chunk.Samples, exempt func(format.TombstoneIDs),
) (corrupt, err error) {
	for _, value := range chunks {
		c, err := format.DecodeRawChunk(value, hiding, into)
		exempt(c.Exempt)
		switch {
		case errors.Is(err, chunk.ErrCorrupt):
			corrupt = err
		case err != nil:
			return nil, err
		}
	}
	return corrupt, nil
}

// versionedSamples calls visibleSamples, and also returns the sum of the chunks' weights (see TombstoneIDs.Weight),
// which is the version of rollups computed from the chunks.
func versionedSamples(
	chunks [][]byte, hiding format.Tombstones, into *chunk.Samples,
) (version uint64, corrupt, err error) {
	corrupt, err = visibleSamples(
		chunks, hiding, into, func(exempt format.TombstoneIDs) { version += exempt.Weight(hiding) },
	)
	return version, corrupt, err
}
