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
	// sealedTogether is of how many series in a slot the sealed chunks are read at once, where more than their keys is needed; sealedHeld of
	// how many they are kept in memory.
	sealedTogether = 256
	sealedHeld     = 4 * sealedTogether
	// sealedPassOver bounds Wanted.PassOver for these reads: values are larger than keys.
	sealedPassOver = 100
)

// sealedChunks are raw chunks of series in slots. A series that was asked for and has none in a slot has an entry, too.
type sealedChunks map[chunkAt]storedChunks

// storedChunks are the chunks of a series in a slot, as they are stored. unread is true if there may be more, which can't be read.
type storedChunks struct {
	values [][]byte
	unread bool
}

// readChunks adds the chunks that some series, by their metrics, have in the slot to found. It takes a few scans where one for each series takes
// as many as there are.
func (x *sealedSlot) readChunks(ctx context.Context, metrics map[string][]*Series, shards metricShards, found sealedChunks) error {
	into := x.into[rollup.Raw]
	var all []paged.Wanted
	for metric, series := range metrics {
		chunks := metricChunks{into.window, series[0].Tenant(), metric, shards.of(metric), into.start, into.start}
		for _, s := range series {
			found[chunkAt{into.start, s.ID()}] = storedChunks{}
		}
		for at, ids := range x.s.byPlace(chunks.at(), series, chunks.shards) {
			w := x.s.wantedChunks(engine.Raw, chunks, at, ids)
			w.PassOver = min(w.PassOver, sealedPassOver)
			w.Left = x.s.unread(w.Table, w.Partition, func(u paged.Unreadable) {
				for _, id := range ids {
					if u.Has(id, into.start, into.start) {
						key := chunkAt{into.start, format.SeriesIDFrom(id)}
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
			return fmt.Errorf("storage: reading sealed chunks of metric %q, tenant %q: %w", format.MetricOf(p), p[2].Text, err)
		}
		key := chunkAt{into.start, format.SeriesIDFrom(row.Clustering[2].Text)}
		found[key] = storedChunks{append(found[key].values, slices.Clone(row.Value)), found[key].unread}
	}
	return nil
}

// readChunksOf is readChunks for some series of one metric.
func (x *sealedSlot) readChunksOf(ctx context.Context, series []*Series, shards int64, found sealedChunks) error {
	metric := series[0].Metric()
	return x.readChunks(ctx, map[string][]*Series{metric: series}, metricShards{metric: shards}, found)
}

// visibleSamples appends what isn't deleted of chunks, and calls exempt with the deletes that each of them is exempt from. One that can't be
// read is left out: corrupt is why, of the last one.
func visibleSamples(chunks [][]byte, hiding format.Tombstones, into *chunk.Samples, exempt func(format.TombstoneIDs)) (corrupt, err error) {
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

// weighedSamples is visibleSamples that returns what the chunks weigh together.
func weighedSamples(chunks [][]byte, hiding format.Tombstones, into *chunk.Samples) (version uint64, corrupt, err error) {
	corrupt, err = visibleSamples(chunks, hiding, into, func(exempt format.TombstoneIDs) { version += exempt.Weight(hiding) })
	return version, corrupt, err
}
