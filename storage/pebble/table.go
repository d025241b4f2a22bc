package pebble

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/block/blockkind"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
)

// badRange is a range of keys that a damaged part of a sorted file may contain, from start (included) to end
// (excluded). Rows of other files in this range are uncertain as well, because the damaged part may have overwritten
// or deleted them.
type badRange struct {
	start, end []byte
	file       string
	table      uint64 // the engine's number; multiple tables may use parts of one file
	err        error
}

// tableFile is a sorted file that is verified. Every byte is in a block or in the footer, and each of these has a
// checksum:
//
//	+------------+---+------------+-------+------------------------------+--------+
//	| data block | … | data block | index | range deletes, properties, … | footer |
//	+------------+---+------------+-------+------------------------------+--------+
//
// If a data block is damaged, the keys from the last key before the block to the index's separator after the block are
// unreadable. If the index can't be read, the keys between the rows that an iterator can reach from both ends are
// unreadable. Any other damage affects the whole file, because Pebble then reads none of it.
type tableFile struct {
	fs    FS
	name  string
	table uint64
	// smallest and largest are the bounds, both included, of the part of the file that the engine uses. Both are nil if
	// it uses the whole file.
	smallest, largest []byte
	opts              sstable.ReaderOptions
}

// tableReaderOptions returns the options for reading all files of an engine.
func tableReaderOptions() sstable.ReaderOptions {
	o := &pebbledb.Options{Merger: newMerger()}
	o.EnsureDefaults()
	return o.MakeReaderOptions()
}

// verify reads the whole file at path and returns its damaged ranges. An error means that the disk failed or the
// context ended.
func (t *tableFile) verify(ctx context.Context, path string) ([]badRange, error) {
	f, err := t.fs.Open(path)
	if err != nil {
		return nil, err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return nil, err
	}
	r, err := sstable.NewReader(ctx, readable, t.opts) // NewReader closes the file if it fails.
	if err != nil {
		return t.orFail(ctx, err, t.wholeRange(err))
	}
	defer r.Close()
	l, err := r.Layout()
	if err != nil {
		return t.orFail(ctx, err, t.unreachableRange(ctx, r, err))
	}
	for _, h := range otherBlocks(l) {
		if err := readBlock(ctx, r, h); err != nil {
			return t.orFail(ctx, err, t.wholeRange(err))
		}
	}
	return t.dataBlocks(ctx, r, l)
}

// orFail returns found if err means that bytes are damaged, and otherwise an error.
func (t *tableFile) orFail(ctx context.Context, err error, found []badRange) ([]badRange, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if !pebbledb.IsCorruptionError(err) {
		return nil, err
	}
	return found, nil
}

func (t *tableFile) wholeRange(err error) []badRange { return []badRange{t.badRangeOf(nil, nil, err)} }

// badRangeOf returns the range from start to end, limited to the file's bounds.
func (t *tableFile) badRangeOf(start, end []byte, err error) badRange {
	if start == nil || bytes.Compare(start, t.smallest) < 0 {
		start = t.smallest
	}
	if t.largest != nil {
		if last := append(slices.Clone(t.largest), 0); end == nil || bytes.Compare(end, last) > 0 {
			end = last
		}
	}
	return badRange{start: slices.Clone(start), end: slices.Clone(end), file: t.name, table: t.table, err: err}
}

// otherBlocks returns the blocks that contain neither rows nor the index of rows.
func otherBlocks(l *sstable.Layout) []block.Handle {
	list := []block.Handle{l.RangeDel, l.RangeKey, l.ValueIndex, l.Properties, l.MetaIndex, l.BlobReferenceIndex}
	list = append(list, l.ValueBlock...)
	for _, f := range l.Filter {
		list = append(list, f.Handle)
	}
	return slices.DeleteFunc(list, func(h block.Handle) bool { return h.Length == 0 })
}

func readBlock(ctx context.Context, r *sstable.Reader, h block.Handle) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := r.BlockReader().Read(ctx, block.NoReadEnv, nil, h, blockkind.Metadata, noMetadata)
	if err == nil {
		b.Release()
	}
	return err
}

func noMetadata(*block.Metadata, []byte) error { return nil }

// dataBlocks reads all blocks of rows, and returns their damaged ranges.
func (t *tableFile) dataBlocks(
	ctx context.Context, r *sstable.Reader, l *sstable.Layout,
) (found []badRange, err error) {
	if format, err := r.TableFormat(); err != nil || format < sstable.TableFormatPebblev5 {
		return nil, fmt.Errorf("pebble: %s has the unknown format %v: %w", t.name, format, err)
	}
	var before []byte // the separator after the last readable block
	damaged := false  // the previous block was damaged
	for _, h := range l.Index {
		index, err := r.BlockReader().Read(ctx, block.NoReadEnv, nil, h, blockkind.Metadata, noMetadata)
		if err != nil {
			return t.orFail(ctx, err, t.unreachableRange(ctx, r, err))
		}
		var it colblk.IndexIter
		if err := it.Init(t.opts.Comparer, index.BlockData(), sstable.NoTransforms); err != nil {
			index.Release()
			return nil, err
		}
		for ok := it.First(); ok; ok = it.Next() {
			data, err := it.BlockHandleWithProperties()
			if err == nil {
				err = readBlock(ctx, r, data.Handle)
			}
			if err != nil && !pebbledb.IsCorruptionError(err) {
				index.Release()
				return nil, err
			}
			separator := slices.Clone(it.Separator())
			end := append(slices.Clone(separator), 0)
			switch {
			case err == nil:
				before = separator
			case damaged:
				found[len(found)-1] = t.badRangeOf(found[len(found)-1].start, end, found[len(found)-1].err)
			default:
				found = append(found, t.badRangeOf(t.afterLast(ctx, r, before), end, err))
			}
			damaged = err != nil
		}
		index.Release()
	}
	return slices.DeleteFunc(found, func(b badRange) bool {
		return b.end != nil && bytes.Compare(b.start, b.end) >= 0
	}), nil
}

// afterLast returns the first key after the last row of the block that ends at separator, or nil if there is no such
// block. The block must be readable and the block after it damaged. afterLast doesn't seek beyond separator, because
// that would read the damaged block first.
func (t *tableFile) afterLast(ctx context.Context, r *sstable.Reader, separator []byte) []byte {
	if separator == nil {
		return nil
	}
	after := append(slices.Clone(separator), 0)
	it, err := t.iter(ctx, r)
	if err != nil {
		return after
	}
	defer it.Close()
	if kv := it.SeekGE(separator, 0); kv != nil && bytes.Equal(kv.K.UserKey, separator) {
		return after
	}
	if kv := it.SeekLT(separator, 0); kv != nil {
		return append(slices.Clone(kv.K.UserKey), 0)
	}
	return after
}

func (t *tableFile) iter(ctx context.Context, r *sstable.Reader) (sstable.Iterator, error) {
	return r.NewPointIter(ctx, sstable.IterOptions{
		Transforms: sstable.NoTransforms, Env: sstable.NoReadEnv,
		ReaderProvider: sstable.MakeTrivialReaderProvider(r), BlobContext: sstable.AssertNoBlobHandles,
	})
}

// unreachableRange returns as damaged the range between the rows that an iterator can reach from both ends.
func (t *tableFile) unreachableRange(ctx context.Context, r *sstable.Reader, cause error) []badRange {
	it, err := t.iter(ctx, r)
	if err != nil {
		return t.wholeRange(cause)
	}
	defer it.Close()
	var start, end []byte
	for kv := it.First(); kv != nil && ctx.Err() == nil; kv = it.Next() {
		start = append(append(start[:0], kv.K.UserKey...), 0)
	}
	for kv := it.Last(); kv != nil && ctx.Err() == nil; kv = it.Prev() {
		end = append(end[:0], kv.K.UserKey...)
	}
	if end != nil && bytes.Compare(start, end) >= 0 {
		return t.wholeRange(cause)
	}
	return []badRange{t.badRangeOf(start, end, cause)}
}
