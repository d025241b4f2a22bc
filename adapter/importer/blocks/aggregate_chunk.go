package blocks

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// encodingAggregates is the encoding of Thanos' aggregate chunks. An aggregate chunk contains five chunks of samples,
// in the order of the aggregates:
//
//	+---------+----------+- - - -+---------+- -
//	| length  | encoding | bytes | length  | …
//	| uvarint | 1 byte   |       | uvarint |
//	+---------+----------+- - - -+---------+- -
//
// length is the number of bytes after the encoding. A missing aggregate has the length 0 and no encoding.
const encodingAggregates chunkenc.Encoding = 0xff

// The aggregates of a chunk. Each aggregate has one sample per window that isn't empty. The counter has two more
// samples. It starts with the first sample of the chunk, and ends with a copy of the chunk's last value that has the
// timestamp of the last window. The samples in between are the values at the ends of the windows, each plus the values
// before all earlier resets.
const (
	aggregateCount = iota
	aggregateSum
	aggregateMin
	aggregateMax
	aggregateCounter

	aggregates
)

// errAggregates means that a chunk of aggregates is damaged.
var errAggregates = errors.New("blocks: damaged chunk of aggregates")

// pool decodes the chunks of Thanos' aggregates and of Prometheus.
type pool struct{ chunkenc.Pool }

// Get implements chunkenc.Pool.
func (p pool) Get(e chunkenc.Encoding, b []byte) (chunkenc.Chunk, error) {
	if e == encodingAggregates {
		return &aggregateChunk{data: b}, nil
	}
	return p.Pool.Get(e, b)
}

// Put implements chunkenc.Pool.
func (p pool) Put(c chunkenc.Chunk) error {
	if _, ok := c.(*aggregateChunk); ok {
		return nil
	}
	return p.Pool.Put(c)
}

// aggregateChunk is a chunk of aggregates. As a chunk of samples, it is empty.
type aggregateChunk struct{ data []byte }

// Bytes implements chunkenc.Chunk.
func (c *aggregateChunk) Bytes() []byte { return c.data }

// Encoding implements chunkenc.Chunk.
func (*aggregateChunk) Encoding() chunkenc.Encoding { return encodingAggregates }

// Appender implements chunkenc.Chunk.
func (*aggregateChunk) Appender() (chunkenc.Appender, error) {
	return nil, errors.New("blocks: chunks of aggregates are only read")
}

// Iterator implements chunkenc.Chunk.
func (*aggregateChunk) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	return chunkenc.NewNopIterator()
}

// NumSamples implements chunkenc.Chunk.
func (*aggregateChunk) NumSamples() int { return 0 }

// Compact implements chunkenc.Chunk.
func (*aggregateChunk) Compact() {}

// Reset implements chunkenc.Chunk.
func (c *aggregateChunk) Reset(data []byte) { c.data = data }

// stamped is a sample of an aggregate.
type stamped struct {
	t int64
	v float64
}

// points returns the samples of each aggregate, or nil for a missing aggregate.
func (c *aggregateChunk) points() (all [aggregates][]stamped, err error) {
	rest := c.data
	for i := range all {
		length, n := binary.Uvarint(rest)
		if n <= 0 {
			return all, fmt.Errorf("%w: aggregate %d is missing", errAggregates, i)
		}
		if rest = rest[n:]; length == 0 {
			continue
		}
		if length >= uint64(len(rest)) { // The length excludes the encoding.
			return all, fmt.Errorf("%w: aggregate %d is truncated", errAggregates, i)
		}
		if all[i], err = pointsOf(chunkenc.Encoding(rest[0]), rest[1:1+length]); err != nil {
			return all, fmt.Errorf("%w: aggregate %d: %w", errAggregates, i, err)
		}
		rest = rest[1+length:]
	}
	return all, nil
}

func pointsOf(e chunkenc.Encoding, data []byte) ([]stamped, error) {
	if e != chunkenc.EncXOR || len(data) < 2 { // The chunk starts with the number of samples.
		return nil, fmt.Errorf("%d bytes of encoding %d", len(data), e)
	}
	c, err := chunkenc.FromData(e, data)
	if err != nil {
		return nil, err
	}
	var list []stamped
	it := c.Iterator(nil)
	for it.Next() != chunkenc.ValNone {
		t, v := it.At()
		list = append(list, stamped{t, v})
	}
	return list, it.Err()
}
