package format

import (
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Kinds of rows in tables raw, r5m and r1h, their first clustering field. Never reused.
const (
	KindLabels = 0 // the labels of a series; start is 0 and version is noVersion
	KindChunk  = 1 // a chunk; start is its slot's start (in r1h its day's), version the hash of the value
	// exemplars, in raw alone; start and version as those of a chunk
	KindExemplars = 2
)

// Kinds of rows in table catalog. Never reused.
const (
	CatalogMetric = 0 // value: a metric's name; the row holds its number of shards
	CatalogLabel  = 1 // value: a label's name
	CatalogValue  = 2 // value: a value of the label that the partition names
)

var noVersion = string(make([]byte, engine.IDLen))

// ClassShard is one of the partitions of a metric in a window: of a class, and of a shard in it.
type ClassShard uint16

func ClassShardOf(class, shard int64) ClassShard { return ClassShard(class*MaxShards + shard) }

func (p ClassShard) Class() int64 { return int64(p) / MaxShards }
func (p ClassShard) Shard() int64 { return int64(p) % MaxShards }

// SeriesPartition is where labels and chunks of a metric's series are, in the table of the window's resolution.
func SeriesPartition(window int64, tenant, metric string, at ClassShard) engine.Key {
	return engine.Key{engine.Int(window), engine.Int(at.Class()), engine.Text(tenant), engine.Text(metric), engine.Int(at.Shard())}
}

func RawLabelsKey(series string) engine.Key {
	return engine.Key{engine.Int(KindLabels), engine.Int(0), engine.Text(series), engine.Text(noVersion)}
}

func ChunkKey(series string, start int64, version string) engine.Key {
	return engine.Key{engine.Int(KindChunk), engine.Int(start), engine.Text(series), engine.Text(version)}
}

func ExemplarsKey(series string, start int64, version string) engine.Key {
	return engine.Key{engine.Int(KindExemplars), engine.Int(start), engine.Text(series), engine.Text(version)}
}

// SeriesField is the place of the series in the clustering key of a resolution's table.
func SeriesField(res rollup.Resolution) int {
	if res == rollup.Raw {
		return 2
	}
	return 1
}

// RollupKey is where a rollup chunk is: start is its slot's start, or its day's.
func RollupKey(series string, start int64) engine.Key {
	return engine.Key{engine.Int(KindChunk), engine.Text(series), engine.Int(start)}
}

// LabelsKey is where a series' labels are, in the table of a resolution.
func LabelsKey(res rollup.Resolution, series string) engine.Key {
	if res == rollup.Raw {
		return RawLabelsKey(series)
	}
	return engine.Key{engine.Int(KindLabels), engine.Text(series), engine.Int(0)}
}

func CatalogPartition(window int64, tenant string, kind int64, label string) engine.Key {
	return engine.Key{engine.Int(window), engine.Int(int64(ResolutionOf(window))), engine.Text(tenant), engine.Int(kind), engine.Text(label), engine.Int(0)}
}

func SealedPartition(window int64, tenant string) engine.Key {
	return engine.Key{engine.Int(window), engine.Text(tenant)}
}

func StagePartition(slot int64, partition int) engine.Key {
	return engine.Key{engine.Int(slot), engine.Int(int64(partition))}
}

func PendingPartition(partition int, hour int64) engine.Key {
	return engine.Key{engine.Int(int64(partition)), engine.Int(hour)}
}
