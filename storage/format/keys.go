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
	// exemplars, in raw only; start and version as for a chunk
	KindExemplars = 2
	// filters of labels pages, in tables of pages only
	KindFilter = 9
)

// Kinds of rows in table catalog. Never reused.
const (
	CatalogMetric = 0 // key field "value": a metric's name; value of the row: its number of shards
	CatalogLabel  = 1 // key field "value": a label's name
	CatalogValue  = 2 // key field "value": a value of the label in the partition key
	CatalogCounts = 3 // key field "value": see CountsKey; the rows have the counts of the series of a raw window
)

var noVersion = string(make([]byte, engine.IDLen))

// ClassShard identifies one of the partitions of a metric in a window: a class and a shard.
type ClassShard uint16

// ClassShardOf returns the ClassShard of a class and a shard.
func ClassShardOf(class, shard int64) ClassShard { return ClassShard(class*MaxShards + shard) }

// Class returns the class.
func (p ClassShard) Class() int64 { return int64(p) / MaxShards }

// Shard returns the shard, below MaxShards.
func (p ClassShard) Shard() int64 { return int64(p) % MaxShards }

// ClassShards yields all combinations of a class below classes and a shard below shards. These are the partitions that
// a metric may have in a window.
func ClassShards(classes, shards int64) iter.Seq[ClassShard] {
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

// SeriesPartition returns the partition key of labels and chunks of a metric's series, in the table of the window's
// resolution.
func SeriesPartition(window int64, tenant, metric string, at ClassShard) engine.Key {
	return AppendSeriesPartition(nil, window, tenant, metric, at)
}

// MetricOf returns the metric in a partition key of SeriesPartition.
func MetricOf(partition engine.Key) string { return partition[MetricField].Text }

// MetricField is the index of the metric in a partition key of SeriesPartition.
const MetricField = 3

// AppendSeriesPartition appends the key of SeriesPartition to dst.
func AppendSeriesPartition(dst engine.Key, window int64, tenant, metric string, at ClassShard) engine.Key {
	return append(dst, engine.Int(window), engine.Int(at.Class()), engine.Text(tenant), engine.Text(metric),
		engine.Int(at.Shard()))
}

// RawLabelsKey returns the clustering key of a series' labels in table raw.
func RawLabelsKey(series string) engine.Key {
	return engine.Key{engine.Int(KindLabels), engine.Int(0), engine.Text(series), engine.Text(noVersion)}
}

// ChunkKey returns the clustering key of a chunk in table raw.
func ChunkKey(series string, start int64, version string) engine.Key {
	return engine.Key{engine.Int(KindChunk), engine.Int(start), engine.Text(series), engine.Text(version)}
}

// ExemplarsKey returns the clustering key of a row of exemplars in table raw.
func ExemplarsKey(series string, start int64, version string) engine.Key {
	return engine.Key{engine.Int(KindExemplars), engine.Int(start), engine.Text(series), engine.Text(version)}
}

// SeriesField returns the index of the series in the clustering key of a resolution's table.
func SeriesField(res rollup.Resolution) int {
	if res == rollup.Raw {
		return 2
	}
	return 1
}

// RollupKey returns the clustering key of a rollup chunk. start is the start of its slot in table r5m, and of its day
// in r1h.
func RollupKey(series string, start int64) engine.Key {
	return engine.Key{engine.Int(KindChunk), engine.Text(series), engine.Int(start)}
}

// LabelsKey returns the clustering key of a series' labels in the table of a resolution.
func LabelsKey(res rollup.Resolution, series string) engine.Key {
	if res == rollup.Raw {
		return RawLabelsKey(series)
	}
	return engine.Key{engine.Int(KindLabels), engine.Text(series), engine.Int(0)}
}

// CatalogPartition returns the partition key of one kind of names of a tenant in a window. label is "" unless kind is
// CatalogValue.
func CatalogPartition(window int64, tenant string, kind int64, label string) engine.Key {
	return engine.Key{engine.Int(window), engine.Int(int64(ResolutionOf(window))), engine.Text(tenant),
		engine.Int(kind), engine.Text(label), engine.Int(0)}
}

// SealedPartition returns the partition key of the commit records of a tenant's window.
func SealedPartition(window int64, tenant string) engine.Key {
	return engine.Key{engine.Int(window), engine.Text(tenant)}
}

// StagePartition returns the partition key of the blobs of a slot and partition.
func StagePartition(slot int64, partition int) engine.Key {
	return engine.Key{engine.Int(slot), engine.Int(int64(partition))}
}

// stagedUnit is the number of slots in a partition of the table named staged. On Cassandra, deleted rows slow down
// reads for hours. A backfill of years deletes the rows of tens of thousands of slots. Because the rows are partitioned
// into units, a read encounters only the deleted rows of one unit.
const stagedUnit = 64

// UnitOf returns the unit of a slot.
func UnitOf(slot int64) int64 { return FloorDiv(slot, stagedUnit) }

// LastOfUnit returns the last slot of a unit.
func LastOfUnit(unit int64) int64 { return unit*stagedUnit + stagedUnit - 1 }

// The states of a row of the table named staged. The state is the last field of the key.
const (
	StagedListed  = 0
	StagedClosing = 1
)

// StagedPartition returns the partition key of the list of a unit's staged slots.
func StagedPartition(partition int, unit int64) engine.Key {
	return engine.Key{engine.Int(int64(partition)), engine.Int(unit)}
}

// StagedUnits returns the partition key of the list of a partition's units.
func StagedUnits(partition int) engine.Key { return StagedPartition(partition, math.MinInt64) }

// StagedKey returns the clustering key of a row that lists a slot or a unit.
func StagedKey(number int64, generation string, state int64) engine.Key {
	return engine.Key{engine.Int(number), engine.Text(generation), engine.Int(state)}
}

// LongShift is the difference between the start of a long chunk's interval and the start in its key. It makes all long
// chunks of a series sort before its other chunks.
const LongShift = 1 << 62

// LongKey returns the clustering key of a long chunk in tables r5m and r1h. start is the start of its interval, see
// LongInterval.
func LongKey(series string, start int64) engine.Key { return RollupKey(series, start-LongShift) }

// LongStart returns the start of the interval of a long chunk from the start in its clustering key. ok is false if the
// key doesn't belong to a long chunk.
func LongStart(start int64) (interval int64, ok bool) {
	if start >= -LongShift/2 {
		return 0, false
	}
	return start + LongShift, true
}

// LongInterval returns the start of the interval that contains start, both in milliseconds. One long chunk may replace
// all chunks that start in an interval. The interval is a day at 5m and a window at 1h.
func LongInterval(res rollup.Resolution, start int64) int64 {
	width := LongWidthMS(res)
	return FloorDiv(start, width) * width
}

// LongWidthMS returns the length of an interval of LongInterval in milliseconds.
func LongWidthMS(res rollup.Resolution) int64 {
	if res == rollup.OneHour {
		return Window1hMS
	}
	return DayMS
}
