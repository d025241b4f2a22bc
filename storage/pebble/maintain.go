package pebble

import (
	"context"
	"fmt"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cassia-db/cassia/storage/engine"
)

// DiskUsage returns the size in bytes of the engine's files, including the log; 0 if it is closed or has failed.
func (e *Engine) DiskUsage() uint64 {
	if m := e.metrics(); m != nil {
		return m.DiskSpaceUsage()
	}
	return 0
}

// Usage returns the approximate size in bytes, in sorted files, of the partitions of a table whose keys start with
// prefix; a nil prefix selects all. It includes overwritten rows that aren't compacted yet, and excludes memtables and
// the log. Because an estimate counts whole blocks, at least one even for an empty range, small ranges are read
// instead, and the sizes of their keys and values are returned.
func (e *Engine) Usage(ctx context.Context, t *engine.Table, prefix engine.Key) (bytes uint64, err error) {
	if err := e.begin(ctx); err != nil {
		return 0, err
	}
	from := appendPartition(nil, t, prefix)
	found := make(chan uint64, 1)
	err = e.run(ctx, "disk usage of "+t.Name, e.release, func() error {
		to := afterPrefix(nil, from)
		n, err := e.db.EstimateDiskUsage(from, to)
		if err == nil && n > 0 && n <= smallUsage {
			var rows uint64
			if rows, err = rowBytes(ctx, e.db, from, to, n); err == nil {
				n = rows
			} else if pebbledb.IsCorruptionError(err) {
				err = nil // The estimate doesn't need the unreadable rows.
			}
		}
		found <- n
		return err
	})
	if err != nil {
		return 0, err
	}
	return <-found, nil
}

// smallUsage is the max estimate at which Usage reads the rows.
const smallUsage = 256 << 10

// rowBytes returns the size of the keys and values of a range. It stops when the size reaches the parameter most.
func rowBytes(ctx context.Context, db *pebbledb.DB, from, to []byte, most uint64) (bytes uint64, err error) {
	it, err := db.NewIterWithContext(ctx, &pebbledb.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return 0, err
	}
	for valid := it.First(); valid && bytes < most; valid = it.Next() {
		value := it.LazyValue()
		bytes += uint64(len(it.Key()) + value.Len())
	}
	return min(bytes, most), it.Close()
}

// metrics returns Pebble's own metrics, or nil if the engine is closed or has failed.
func (e *Engine) metrics() *pebbledb.Metrics {
	if e.failedErr() != nil || e.acquire() != nil {
		return nil
	}
	found := make(chan *pebbledb.Metrics, 1)
	err := e.run(context.Background(), "metrics", e.release, func() error {
		found <- e.db.Metrics()
		return nil
	})
	if err != nil {
		return nil
	}
	return <-found
}

// CompactAll flushes the memtables and merges all files into the lowest level, so that deleted rows take no space. If
// ctx ends, it returns and the compactions under way continue in the background.
func (e *Engine) CompactAll(ctx context.Context) error {
	if e.readOnly {
		return fmt.Errorf("pebble: compact: %w", engine.ErrReadOnly)
	}
	if err := e.begin(ctx); err != nil {
		return err
	}
	return e.run(ctx, "compact", e.release, func() error {
		return e.db.Compact(withoutCancel(ctx), []byte{0x00}, []byte{0xff}, true)
	})
}
