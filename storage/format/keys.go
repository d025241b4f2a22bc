package format

import (
	"iter"
	"math"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Kinds of rows in tables raw, r5m and r1h, their first clustering field. Never reused.
const (
	KindLabels = 0 // the labels of a series; start is 0, and version 16 zero bytes
	KindChunk  = 1 // a chunk; start is its slot's start (in r1h its day's), version the hash of the value
	// exemplars, in raw only; start and version as those of a chunk
	KindExemplars = 2
	// filters of labels pages, in tables of pages only
	KindFilter = 9
)

// Kinds of rows in table catalog. Never reused.
const (
	CatalogMetric = 0 // value: a metric's name; the row holds its number of shards
	CatalogLabel  = 1 // value: a label's name
	CatalogValue  = 2 // value: a value of the label that the partition names
	CatalogCounts = 3 // value: see CountsKey; the rows hold how many series a window of raw rows has
)

var noVersion = string(make([]byte, engine.IDLen))

// ClassShard names one of the partitions of a metric in a window: the shard of a class.
type ClassShard uint16

// ClassShardOf returns the partition of a shard of a class.
func ClassShardOf(class, shard int64) ClassShard { return ClassShard(class*MaxShards + shard) }

// Class returns the class.
func (p ClassShard) Class() int64 { return int64(p) / MaxShards }

// Shard returns the shard, below MaxShards.
func (p ClassShard) Shard() int64 { return int64(p) % MaxShards }

// Places yields all partitions that a metric with so many shards may have in a window, of so many classes.
func Places(classes, shards int64) iter.Seq[ClassShard] {
	return func(yield func(ClassShard) bool) {
		for class := range classes {
			for shard := range shards {
				if !yield(ClassShardOf(class, shard)) {
					return
				}
			}
		}
	}
}

// SeriesPartition is the partition key of labels and chunks of a metric's series, in the table of the window's resolution.
func SeriesPartition(window int64, tenant, metric string, at ClassShard) engine.Key {
	return AppendSeriesPartition(nil, window, tenant, metric, at)
}

// MetricOf returns the metric of a partition key of SeriesPartition.
func MetricOf(partition engine.Key) string { return partition[MetricField].Text }

// MetricField is the field of a partition key of SeriesPartition that is its metric.
const MetricField = 3

// AppendSeriesPartition appends SeriesPartition to a key, which has its memory.
func AppendSeriesPartition(dst engine.Key, window int64, tenant, metric string, at ClassShard) engine.Key {
	return append(dst, engine.Int(window), engine.Int(at.Class()), engine.Text(tenant), engine.Text(metric), engine.Int(at.Shard()))
}

// RawLabelsKey is the clustering key of a series' labels in table raw.
func RawLabelsKey(series string) engine.Key {
	return engine.Key{engine.Int(KindLabels), engine.Int(0), engine.Text(series), engine.Text(noVersion)}
}

// ChunkKey is the clustering key of a chunk in table raw.
func ChunkKey(series string, start int64, version string) engine.Key {
	return engine.Key{engine.Int(KindChunk), engine.Int(start), engine.Text(series), engine.Text(version)}
}

// ExemplarsKey is the clustering key of a row of exemplars, in table raw.
func ExemplarsKey(series string, start int64, version string) engine.Key {
	return engine.Key{engine.Int(KindExemplars), engine.Int(start), engine.Text(series), engine.Text(version)}
}

// SeriesField is the index of the series in the clustering key of a resolution's table.
func SeriesField(res rollup.Resolution) int {
	if res == rollup.Raw {
		return 2
	}
	return 1
}

// RollupKey is the clustering key of a rollup chunk: start is its slot's start in table r5m, its day's in r1h.
func RollupKey(series string, start int64) engine.Key {
	return engine.Key{engine.Int(KindChunk), engine.Text(series), engine.Int(start)}
}

// LabelsKey is the clustering key of a series' labels in the table of a resolution.
func LabelsKey(res rollup.Resolution, series string) engine.Key {
	if res == rollup.Raw {
		return RawLabelsKey(series)
	}
	return engine.Key{engine.Int(KindLabels), engine.Text(series), engine.Int(0)}
}

// CatalogPartition is the partition key of a kind of a tenant's names in a window; label is "" unless kind is CatalogValue.
func CatalogPartition(window int64, tenant string, kind int64, label string) engine.Key {
	return engine.Key{engine.Int(window), engine.Int(int64(ResolutionOf(window))), engine.Text(tenant), engine.Int(kind), engine.Text(label), engine.Int(0)}
}

// SealedPartition is the partition key of the marks of a tenant's window.
func SealedPartition(window int64, tenant string) engine.Key {
	return engine.Key{engine.Int(window), engine.Text(tenant)}
}

// StagePartition is the partition key of the blobs of a slot and partition.
func StagePartition(slot int64, partition int) engine.Key {
	return engine.Key{engine.Int(slot), engine.Int(int64(partition))}
}

// StagedUnit is how many slots a partition of table staged lists. Rows that were deleted stay in the way of reads for hours, on Cassandra: a
// backfill of years deletes those of tens of thousands of slots, and each read passes over those of one unit.
const StagedUnit = 64

// UnitOf returns the unit that a slot belongs to.
func UnitOf(slot int64) int64 { return FloorDiv(slot, StagedUnit) }

// LastOfUnit returns the last slot of a unit.
func LastOfUnit(unit int64) int64 { return unit*StagedUnit + StagedUnit - 1 }

// The states of a row of table staged: the last field of its key.
const (
	StagedListed  = 0
	StagedClosing = 1
)

// StagedPartition is the partition key of the list of a unit's staged slots.
func StagedPartition(partition int, unit int64) engine.Key {
	return engine.Key{engine.Int(int64(partition)), engine.Int(unit)}
}

// StagedUnits is the partition key of the list of a partition's units that have such lists.
func StagedUnits(partition int) engine.Key { return StagedPartition(partition, math.MinInt64) }

// StagedKey is the key of a row that lists a slot, or a unit.
func StagedKey(number int64, generation string, state int64) engine.Key {
	return engine.Key{engine.Int(number), engine.Text(generation), engine.Int(state)}
}

// LongShift is by how much the start in the key of a long chunk is less than that of its interval: all long chunks of a series stand before
// its chunks.
const LongShift = 1 << 62

// LongKey is the clustering key of a long chunk in tables r5m and r1h: start is that of its interval, see LongInterval.
func LongKey(series string, start int64) engine.Key { return RollupKey(series, start-LongShift) }

// LongStart returns the start of the interval of a long chunk, from the start in a clustering key; ok is false if that is the key of a chunk.
func LongStart(start int64) (interval int64, ok bool) {
	if start >= -LongShift/2 {
		return 0, false
	}
	return start + LongShift, true
}

// LongInterval returns the start of the interval whose chunks may be one long chunk, of a chunk that starts at a time, milliseconds: a day at 5m, a
// window at 1h.
func LongInterval(res rollup.Resolution, start int64) int64 {
	width := LongWidthMS(res)
	return FloorDiv(start, width) * width
}

// LongWidthMS is how long an interval of LongInterval is, milliseconds.
func LongWidthMS(res rollup.Resolution) int64 {
	if res == rollup.OneHour {
		return Window1hMS
	}
	return DayMS
}
