package storage

import (
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Kinds of rows in tables raw, r5m and r1h, their first clustering field. Never reused.
const (
	kindLabels = 0 // the labels of a series; start is 0 and version is noVersion
	kindChunk  = 1 // a chunk; start is its slot's start (in r1h its day's), version the hash of the value
	// exemplars, in raw alone; start and version as those of a chunk
	kindExemplars = 2
)

// Kinds of rows in table catalog. Never reused.
const (
	catalogMetric = 0 // value: a metric's name; the row holds its number of shards
	catalogLabel  = 1 // value: a label's name
	catalogValue  = 2 // value: a value of the label that the partition names
)

var noVersion = string(make([]byte, engine.IDLen))

// classShard is one of the partitions of a metric in a window: of a class, and of a shard in it.
type classShard uint16

func classShardOf(class, shard int64) classShard { return classShard(class*maxShards + shard) }

func (p classShard) class() int64 { return int64(p) / maxShards }
func (p classShard) shard() int64 { return int64(p) % maxShards }

// seriesPartition is where labels and chunks of a metric's series are, in the table of the window's resolution.
func seriesPartition(window int64, tenant, metric string, at classShard) engine.Key {
	return engine.Key{engine.Int(window), engine.Int(at.class()), engine.Text(tenant), engine.Text(metric), engine.Int(at.shard())}
}

func labelsKey(series string) engine.Key {
	return engine.Key{engine.Int(kindLabels), engine.Int(0), engine.Text(series), engine.Text(noVersion)}
}

func chunkKey(series string, start int64, version string) engine.Key {
	return engine.Key{engine.Int(kindChunk), engine.Int(start), engine.Text(series), engine.Text(version)}
}

func exemplarsKey(series string, start int64, version string) engine.Key {
	return engine.Key{engine.Int(kindExemplars), engine.Int(start), engine.Text(series), engine.Text(version)}
}

// seriesField is the place of the series in the clustering key of a resolution's table.
func seriesField(res rollup.Resolution) int {
	if res == rollup.Raw {
		return 2
	}
	return 1
}

// rollupKey is where a rollup chunk is: start is its slot's start, or its day's.
func rollupKey(series string, start int64) engine.Key {
	return engine.Key{engine.Int(kindChunk), engine.Text(series), engine.Int(start)}
}

// labelsKeyOf is where a series' labels are, in the table of a resolution.
func labelsKeyOf(res rollup.Resolution, series string) engine.Key {
	if res == rollup.Raw {
		return labelsKey(series)
	}
	return engine.Key{engine.Int(kindLabels), engine.Text(series), engine.Int(0)}
}

func catalogPartition(window int64, tenant string, kind int64, label string) engine.Key {
	return engine.Key{engine.Int(window), engine.Int(int64(resolutionOf(window))), engine.Text(tenant), engine.Int(kind), engine.Text(label), engine.Int(0)}
}

func sealedPartition(window int64, tenant string) engine.Key {
	return engine.Key{engine.Int(window), engine.Text(tenant)}
}

func stagePartition(slot int64, partition int) engine.Key {
	return engine.Key{engine.Int(slot), engine.Int(int64(partition))}
}

func pendingPartition(partition int, hour int64) engine.Key {
	return engine.Key{engine.Int(int64(partition)), engine.Int(hour)}
}
