package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/prometheus/prometheus/model/labels"

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

// places yields all partitions that a metric may have in a window, where it has so many shards.
func (s *Store) places(shards int64) iter.Seq[classShard] {
	return func(yield func(classShard) bool) {
		for class := range s.classes.count() {
			for shard := range shards {
				if !yield(classShardOf(class, shard)) {
					return
				}
			}
		}
	}
}

// placesOf yields those in which a series may have rows.
func (s *Store) placesOf(id SeriesID, shards int64) iter.Seq[classShard] {
	return func(yield func(classShard) bool) {
		for class := range s.classes.count() {
			for shard := range shardsOf(id, shards) {
				if !yield(classShardOf(class, shard)) {
					return
				}
			}
		}
	}
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

const labelsVersion = 1

var errBadLabels = errors.New("storage: malformed labels")

// appendLabels appends the labels of a series, without its metric's name, which stands in the row's key:
//
//	+---------+-----------+------+-----------+-------+----
//	| version | name len  | name | value len | value | …
//	| 1 byte  | uvarint   |      | uvarint   |       |
//	+---------+-----------+------+-----------+-------+----
func appendLabels(dst []byte, ls labels.Labels) []byte {
	dst = append(dst, labelsVersion)
	ls.Range(func(l labels.Label) {
		if l.Name != labels.MetricName {
			dst = appendString(appendString(dst, l.Name), l.Value)
		}
	})
	return dst
}

// labelsBytes is about how many bytes appendLabels appends: no fewer, if no name or value is longer than 127 bytes.
func labelsBytes(ls labels.Labels) (n int) {
	n = 1
	ls.Range(func(l labels.Label) { n += len(l.Name) + len(l.Value) + 2 })
	return n
}

// parseLabels is the inverse of appendLabels.
func parseLabels(b []byte, metric string, builder *labels.ScratchBuilder) (labels.Labels, error) {
	if len(b) == 0 || b[0] != labelsVersion {
		return labels.EmptyLabels(), fmt.Errorf("%w: unknown version", errBadLabels)
	}
	b = b[1:]
	builder.Reset()
	builder.Add(labels.MetricName, metric)
	for len(b) > 0 {
		var name, value []byte
		var err error
		if name, b, err = takeString(b); err != nil {
			return labels.EmptyLabels(), err
		}
		if value, b, err = takeString(b); err != nil {
			return labels.EmptyLabels(), err
		}
		builder.Add(string(name), string(value))
	}
	builder.Sort()
	return builder.Labels(), nil
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func takeString(b []byte) (s, rest []byte, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, fmt.Errorf("%w: truncated", errBadLabels)
	}
	return b[w : w+int(n)], b[w+int(n):], nil
}
