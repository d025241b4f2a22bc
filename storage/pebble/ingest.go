package pebble

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// largeRun is the min size in bytes of a run that gets its own sorted file. A run is the rows of one partition and
// kind. Keys that are written later often sort between two runs: labels of more series sort before the chunks of the
// first series. A file with both runs would overlap these keys, and be compacted again.
const largeRun = 256 << 10

// ingester writes sorted files from the rows of one Write and passes them to Pebble, which puts them in the lowest
// level where nothing overlaps them. So these rows use neither the log nor a memtable, are compressed once, and are
// compacted only when other rows are written between them.
//
//	rows ─► sorted ─► files, synced ─► linked, the directory synced ─► manifest, synced: all rows are visible at once
//
// A crash before the last step leaves files that Pebble removes when it opens the directory.
type ingester struct {
	e *Engine
	ingestBuffers
	paths []string
}

// ingestBuffers is memory that ingesters reuse.
type ingestBuffers struct {
	rows        []ingestRow
	keys, value []byte
}

var ingestPool = sync.Pool{New: func() any { return &ingestBuffers{} }}

// ingestRow is a row to write. Its key is keys[from:to] of the ingester, and keys[from:run] the prefix of its run: the
// rows of one partition and kind.
type ingestRow struct {
	from, run, to int
	table         *engine.Table
	mutation      *engine.Mutation
}

// isIngested reports whether rows of a table may be written as sorted files. Only sealed rows are written many at a
// time.
func isIngested(t *engine.Table) bool {
	switch t {
	case engine.Raw, engine.R5m, engine.R1h, engine.RawPages, engine.R5mPages, engine.R1hPages:
		return true
	}
	return false
}

// splitIngested splits batches into the batches to be written as sorted files and the other batches. Sorted files are
// only used for many rows, because each file has a fixed cost.
func (e *Engine) splitIngested(batches []engine.Batch) (files, others []engine.Batch) {
	bytes := 0
	for i := range batches {
		b := &batches[i]
		if !isIngested(b.Table) {
			continue
		}
		for j := range b.Mutations {
			if b.Mutations[j].Op != engine.Put { // The order of mutations matters.
				return nil, batches
			}
			bytes += len(b.Mutations[j].Value) + rowOverhead
		}
	}
	if bytes == 0 || bytes < e.ingestBytes {
		return nil, batches
	}
	for i := range batches {
		if isIngested(batches[i].Table) {
			files = append(files, batches[i])
		} else {
			others = append(others, batches[i])
		}
	}
	return files, others
}

// rowOverhead is the approximate size of a sealed row's key.
const rowOverhead = 64

// ingestBatches writes batches, which have only Puts, as sorted files. When it returns nil, they are durable and became
// visible atomically.
func (e *Engine) ingestBatches(batches []engine.Batch) (err error) {
	buffers := ingestPool.Get().(*ingestBuffers)
	x := &ingester{e: e, ingestBuffers: *buffers}
	defer func() {
		clear(x.rows[:cap(x.rows)])
		*buffers = ingestBuffers{x.rows[:0], x.keys[:0], x.value}
		ingestPool.Put(buffers)
	}()
	for i := range batches {
		x.add(&batches[i])
	}
	x.sort()
	defer func() {
		if err != nil {
			err = errors.Join(err, x.remove())
		}
	}()
	for from := 0; from < len(x.rows); {
		to := x.endOfFile(from)
		if err := x.writeFile(x.rows[from:to]); err != nil {
			return fmt.Errorf("pebble: writing a sorted file: %w", err)
		}
		from = to
	}
	// The caller's context isn't passed, because an ingestion canceled halfway can't be undone.
	return e.runChange(func() error { return e.db.Ingest(context.Background(), x.paths) })
}

func (x *ingester) add(b *engine.Batch) {
	from := len(x.keys)
	x.keys = appendPartition(x.keys, b.Table, b.Partition)
	partition := x.keys[from:len(x.keys):len(x.keys)]
	for i := range b.Mutations {
		m := &b.Mutations[i]
		r := ingestRow{from: len(x.keys), table: b.Table, mutation: m}
		x.keys = append(x.keys, partition...)
		x.keys = appendKey(x.keys, b.Table.Clustering[:1], m.Clustering[:1])
		r.run = len(x.keys)
		x.keys = appendKey(x.keys, b.Table.Clustering[1:], m.Clustering[1:])
		r.to = len(x.keys)
		x.rows = append(x.rows, r)
	}
}

func (x *ingester) key(r *ingestRow) []byte    { return x.keys[r.from:r.to] }
func (x *ingester) prefix(r *ingestRow) []byte { return x.keys[r.from:r.run] }

// sort sorts the rows, and keeps the winning row of each key.
func (x *ingester) sort() {
	slices.SortStableFunc(x.rows, func(a, b ingestRow) int { return bytes.Compare(x.key(&a), x.key(&b)) })
	kept := x.rows[:0]
	for _, r := range x.rows {
		if n := len(kept); n == 0 || !bytes.Equal(x.key(&kept[n-1]), x.key(&r)) {
			kept = append(kept, r)
		} else if !r.table.Converging || isWinner(r.mutation, kept[n-1].mutation) {
			kept[n-1] = r
		}
	}
	x.rows = kept
}

// isWinner reports whether a wins over b in a converging table.
func isWinner(a, b *engine.Mutation) bool {
	return cmp.Or(cmp.Compare(a.Timestamp, b.Timestamp), bytes.Compare(a.Value, b.Value)) > 0
}

// endOfFile returns the end of the file that starts at a row. A large run is a file of its own. Any other file ends
// before the next large run, or with the rows of its table.
func (x *ingester) endOfFile(from int) int {
	to := x.endOfRun(from)
	if x.bytes(from, to) >= largeRun {
		return to
	}
	for to < len(x.rows) && x.rows[to].table == x.rows[from].table {
		end := x.endOfRun(to)
		if x.bytes(to, end) >= largeRun {
			break
		}
		to = end
	}
	return to
}

// endOfRun returns the end of the rows of one partition and kind.
func (x *ingester) endOfRun(from int) int {
	to := from + 1
	for to < len(x.rows) && bytes.Equal(x.prefix(&x.rows[to]), x.prefix(&x.rows[from])) {
		to++
	}
	return to
}

func (x *ingester) bytes(from, to int) (n int) {
	for i := from; i < to; i++ {
		n += x.rows[i].to - x.rows[i].from + len(x.rows[i].mutation.Value)
	}
	return n
}

// writeFile writes and syncs a sorted file. Its name has a form that Pebble removes when it opens the directory.
func (x *ingester) writeFile(rows []ingestRow) error {
	path := x.e.files.PathJoin(x.e.dir, fmt.Sprintf("%s%06d.dbtmp", ingestPrefix, x.e.ingests.Add(1)))
	f, err := x.e.files.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	x.paths = append(x.paths, path)
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), x.e.writerOptions)
	for i := range rows {
		if err := x.put(w, &rows[i]); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	return w.Close()
}

// ingestPrefix is the prefix of the names of files that are being written.
const ingestPrefix = "CURRENT."

func (x *ingester) put(w *sstable.Writer, r *ingestRow) error {
	if !r.table.Converging {
		return w.Set(x.key(r), r.mutation.Value)
	}
	x.value = slices.Grow(x.value[:0], timestampLen)[:timestampLen]
	putTimestamp(x.value, r.mutation.Timestamp)
	x.value = append(x.value, r.mutation.Value...)
	return w.Merge(x.key(r), x.value)
}

// remove removes the files after an error.
func (x *ingester) remove() error {
	var errs []error
	for _, p := range x.paths {
		if err := x.e.files.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ingestWriterOptions returns the options for writing sorted files, which are the same as in the last level of the
// tree.
func ingestWriterOptions(p *pebbledb.Options, format sstable.TableFormat) sstable.WriterOptions {
	p.EnsureDefaults()
	return p.MakeWriterOptions(len(p.Levels)-1, format)
}
