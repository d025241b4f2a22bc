package pebble

import (
	"bytes"
	"encoding/binary"
	"io"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// timestampLen is the size of the timestamp before every value of a converging table:
//
//	+---------------------------+-------+
//	| timestamp, sign bit       | value |
//	| flipped, 8 bytes big-end. |       |
//	+---------------------------+-------+
//
// So the larger of two stored values by bytes is the one that engine.Table.Converging requires: the value with the
// higher timestamp, and at the same timestamp the larger value.
const timestampLen = 8

func putTimestamp(dst []byte, timestamp int64) {
	binary.BigEndian.PutUint64(dst, uint64(timestamp)^1<<63)
}

// newMerger returns the merge operator of converging tables: the largest stored value wins. The result doesn't depend
// on order or grouping, so a write needs no read, and Pebble may merge at every compaction. The operator's name is
// stored in the files and must never change.
func newMerger() *pebbledb.Merger {
	return &pebbledb.Merger{
		Name: "cassia.greatest",
		Merge: func(_, value []byte) (pebbledb.ValueMerger, error) {
			return &greatest{value: bytes.Clone(value)}, nil
		},
	}
}

type greatest struct{ value []byte }

func (g *greatest) MergeNewer(value []byte) error { return g.MergeOlder(value) }

func (g *greatest) MergeOlder(value []byte) error {
	if bytes.Compare(value, g.value) > 0 {
		g.value = append(g.value[:0], value...)
	}
	return nil
}

func (g *greatest) Finish(bool) ([]byte, io.Closer, error) { return g.value, nil, nil }
