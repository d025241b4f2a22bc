package format

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// The rows of a metric in a window are one partition of the engine's table. The size of partitions must be limited. If
// a metric has many or long series, the sealer spreads them over shards by their ids, and adds shards when the metric
// grows. Table shards has the number of shards. It is written before the first row that needs it, and readers read all
// shards. A series whose metric has grown may have rows in multiple shards.
const (
	// shardRows and shardBytes are the approximate size of a shard in a window: half of the recommended max size of a
	// Cassandra partition, because late samples are added later.
	shardRows  = 500_000
	shardBytes = 48 << 20
	// MaxShards is the max number of shards of a metric.
	MaxShards = 1 << 10
	// RollupBytes is the approximate max size of a rollup chunk of floats, unless the raw chunk is smaller.
	RollupBytes = 256
)

// ShardOf returns the shard of a series if its metric has this number of shards.
func ShardOf(id SeriesID, shards int64) int64 {
	if shards <= 1 {
		return 0
	}
	return int64(binary.LittleEndian.Uint32(id[:])) % shards
}

// ShardsFor returns the number of shards that a metric needs in a window of a resolution. series is the number of its
// series in one slot and partition, and bytes the size of their chunks. The result is a power of two, so that the
// shards of a growing metric are split and not mixed.
func (p Period) ShardsFor(res rollup.Resolution, series int, bytes int64) int64 {
	chunks := p.RawWindowMS / p.SlotMS // chunks of a series in a window
	switch res {
	case rollup.FiveMinutes:
		chunks, bytes = Window5mMS/p.SlotMS, min(bytes, int64(series)*RollupBytes)
	case rollup.OneHour:
		chunks, bytes = Window1hMS/DayMS, min(bytes, int64(series)*RollupBytes)
	}
	rows := int64(series) * int64(p.Partitions) * (chunks + 1)
	total := bytes * int64(p.Partitions) * chunks
	n := int64(1)
	for n < MaxShards && (n*shardRows < rows || n*shardBytes < total) {
		n *= 2
	}
	return n
}

// ShardsPartition returns the partition key of the shard counts of a tenant's metrics in a window.
func ShardsPartition(window int64, tenant string) engine.Key {
	return engine.Key{engine.Int(window), engine.Text(tenant)}
}

// ShardsRow returns the row that sets the number of shards of a metric in a window to n. Its timestamp grows with n, so
// that the highest number wins. The row doesn't expire: a higher number with a shorter TTL would hide the previous
// number, and after the higher number had expired, no row would have a number.
func ShardsRow(window int64, tenant, metric string, n int64) engine.Batch {
	return engine.Batch{Table: engine.Shards, Partition: ShardsPartition(window, tenant), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(metric)}, Timestamp: n, Value: binary.AppendUvarint(nil, uint64(n)),
	}}}
}

// ParseShards parses the value of ShardsRow. It returns ErrMalformedShards, and 1, for invalid values.
func ParseShards(value []byte) (int64, error) {
	n, w := binary.Uvarint(value)
	if w <= 0 || w != len(value) || n < 1 || n > MaxShards {
		return 1, ErrMalformedShards
	}
	return int64(n), nil
}

// ErrMalformedShards is returned for an invalid row of table shards.
var ErrMalformedShards = fmt.Errorf("format: malformed shard count; the maximum is %d", MaxShards)

// ShardsOf yields the shards in which a series may have rows if its metric now has this number of shards. They include
// the series' shards from the times when the metric had fewer shards.
func ShardsOf(id SeriesID, shards int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for before := int64(-1); ; shards /= 2 {
			if shard := ShardOf(id, shards); shard != before {
				if before = shard; !yield(shard) {
					return
				}
			}
			if shards <= 1 {
				return
			}
		}
	}
}
