package pebble

import (
	"bytes"
	"encoding/binary"
	"io"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// timestampLen is the size of the timestamp in front of every value of a converging table:
//
//	+---------------------------+-------+
//	| timestamp, sign bit       | value |
//	| flipped, 8 bytes big-end. |       |
//	+---------------------------+-------+
//
// So the greatest of two stored values by bytes is the one that engine.Table.Converging asks for: that
// with the greater timestamp, and at one timestamp the greater value.
const timestampLen = 8

func putTimestamp(dst []byte, timestamp int64) {
	binary.BigEndian.PutUint64(dst, uint64(timestamp)^1<<63)
}

// newMerger returns the merge operator of converging tables: the greatest stored value wins. Taking a
// maximum doesn't depend on order or grouping, so a write needs no read before it, and Pebble may merge
// whenever it compacts. The name is kept in the files: it must never change.
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
