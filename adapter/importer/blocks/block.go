package blocks

import (
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tombstones"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// block is a block of a folder, which may be open or closed.
type block struct {
	found
	external labels.Labels

	opened     *tsdb.Block // nil: closed
	index      tsdb.IndexReader
	chunks     tsdb.ChunkReader
	tombstones tombstones.Reader
}

// sources returns the IDs of the original blocks of the block's samples.
func (b *block) sources() []string {
	var list []string
	for _, id := range b.meta.Compaction.Sources {
		list = append(list, id.String())
	}
	if len(list) == 0 {
		list = append(list, b.meta.ULID.String())
	}
	if b.resolution > rollup.Raw { // The corresponding raw blocks have the same sources.
		for i := range list {
			list[i] += "/" + b.resolution.String()
		}
	}
	return list
}

func (b *block) damaged(err error) error {
	return fmt.Errorf("%w %s: %w; move it away to import the other blocks", errDamaged, b.dir, err)
}

// open opens the block if it is closed.
func (b *block) open() (err error) {
	if b.opened != nil {
		return nil
	}
	if b.opened, err = tsdb.OpenBlock(nil, b.dir, pool{chunkenc.NewPool()}, nil); err != nil {
		b.opened = nil
		return b.damaged(err)
	}
	if b.index, err = b.opened.Index(); err == nil {
		if b.chunks, err = b.opened.Chunks(); err == nil {
			b.tombstones, err = b.opened.Tombstones()
		}
	}
	if err != nil { // Invariant: only a block that is being closed returns an error.
		return b.damaged(err)
	}
	return nil
}

func (b *block) close() error {
	if b.opened == nil {
		return nil
	}
	for _, r := range []interface{ Close() error }{b.index, b.chunks, b.tombstones} {
		_ = r.Close() // Close only releases references to the block.
	}
	err := b.opened.Close()
	b.opened, b.index, b.chunks, b.tombstones = nil, nil, nil, nil
	return err
}

// decode appends the samples of a chunk with minT <= t <= maxT that aren't deleted.
func decode(it chunkenc.Iterator, minT, maxT int64, deleted tombstones.Intervals, into *chunk.Samples) error {
	for {
		kind := it.Next()
		if kind == chunkenc.ValNone {
			return it.Err()
		}
		t := it.AtT()
		if t > maxT {
			return nil
		}
		if t < minT || isDeleted(deleted, t) {
			continue
		}
		switch kind {
		case chunkenc.ValFloat:
			_, v := it.At()
			into.AppendFloat(t, it.AtST(), v)
		case chunkenc.ValHistogram:
			_, h := it.AtHistogram(nil)
			into.AppendHistogram(chunk.Histogram{T: t, ST: it.AtST(), Int: h})
		case chunkenc.ValFloatHistogram:
			_, h := it.AtFloatHistogram(nil)
			into.AppendHistogram(chunk.Histogram{T: t, ST: it.AtST(), Float: h})
		}
	}
}

func isDeleted(intervals tombstones.Intervals, t int64) bool {
	for _, i := range intervals {
		if t <= i.Maxt {
			return t >= i.Mint
		}
	}
	return false
}

// sizeOf returns the approximate memory that samples use, in bytes.
func sizeOf(s *chunk.Samples) int {
	n := 16*len(s.T) + 8*len(s.ST)
	for _, h := range s.H {
		n += 200
		if h.Int != nil {
			n += 8 * (len(h.Int.PositiveBuckets) + len(h.Int.NegativeBuckets) + len(h.Int.PositiveSpans) +
				len(h.Int.NegativeSpans) + len(h.Int.CustomValues))
		} else {
			n += 8 * (len(h.Float.PositiveBuckets) + len(h.Float.NegativeBuckets) + len(h.Float.PositiveSpans) +
				len(h.Float.NegativeSpans) + len(h.Float.CustomValues))
		}
	}
	return n
}
