package format

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// A metric's rows of a window are one partition, which must not grow without bound. Where a metric has many
// series, or long ones, the sealer spreads them over shards by their ids, more of them when it grows. Table
// shards holds the number, before the first row that needs it; readers read all shards. A series whose
// metric has grown has rows in two of them.
const (
	// shardRows and shardBytes are about what one shard gets in a window: half of what a partition of
	// Cassandra's should hold, for late samples come on top.
	shardRows  = 500_000
	shardBytes = 48 << 20
	// MaxShards bounds the shards of a metric.
	MaxShards = 1 << 10
	// RollupBytes is about how large a rollup chunk of floats gets, if the raw chunk isn't smaller.
	RollupBytes = 256
)

// ShardOf returns the shard of a series where its metric has so many.
func ShardOf(id SeriesID, shards int64) int64 {
	if shards <= 1 {
		return 0
	}
	return int64(binary.LittleEndian.Uint32(id[:])) % shards
}

// ShardsFor returns how many shards a metric needs in a window of a resolution if it has so many series, of so
// many bytes, in one slot and partition: a power of two, so that a growing metric's shards are split and not
// mixed.
func (p Period) ShardsFor(res rollup.Resolution, series int, bytes int64) int64 {
	chunks := p.RawWindowMS / p.SlotMS // of a series in a window
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

// ShardsPartition is the partition key of the numbers of shards of a tenant's metrics in a window.
func ShardsPartition(window int64, tenant string) engine.Key {
	return engine.Key{engine.Int(window), engine.Text(tenant)}
}

// ShardsRow returns the row that a metric has n shards in a window. Its timestamp grows with n, so that the greatest wins.
// It doesn't expire: a greater number that lives shorter than the one before would hide that, and when it is gone no row
// would say where rows lie.
func ShardsRow(window int64, tenant, metric string, n int64) engine.Batch {
	return engine.Batch{Table: engine.Shards, Partition: ShardsPartition(window, tenant), Mutations: []engine.Mutation{{
		Clustering: engine.Key{engine.Text(metric)}, Timestamp: n, Value: binary.AppendUvarint(nil, uint64(n)),
	}}}
}

// ParseShards reads the value of ShardsRow. It returns ErrMalformedShards, and 1, for anything else.
func ParseShards(value []byte) (int64, error) {
	n, w := binary.Uvarint(value)
	if w <= 0 || w != len(value) || n < 1 || n > MaxShards {
		return 1, ErrMalformedShards
	}
	return int64(n), nil
}

// ErrMalformedShards is returned for a row of table shards that can't be read.
var ErrMalformedShards = fmt.Errorf("format: malformed shard count; the maximum is %d", MaxShards)

// ShardsOf yields the shards in which a series may have rows where its metric has so many: also those in which it had them
// when there were fewer.
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
