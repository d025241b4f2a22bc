package pebble

import (
	"context"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// DiskUsage returns the bytes that the engine's files take, its log included; 0 once it is closed or has
// failed.
func (e *Engine) DiskUsage() uint64 {
	if m := e.metrics(); m != nil {
		return m.DiskSpaceUsage()
	}
	return 0
}

// metrics returns Pebble's own metrics, or nil once the engine is closed or has failed.
func (e *Engine) metrics() *pebbledb.Metrics {
	if e.failedErr() != nil || e.use() != nil {
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

// Checkpoint writes a copy of everything that is durable to dir, which must not exist, as an engine of its
// own. On one file system the copy shares its files, and takes neither time nor space.
func (e *Engine) Checkpoint(dir string) error {
	if err := e.use(); err != nil {
		return err
	}
	return e.run(context.Background(), "checkpoint to "+dir, e.release, func() error {
		return e.db.Checkpoint(dir, pebbledb.WithFlushedWAL())
	})
}

// Compact writes out what is in memory and merges all files into the lowest level, so that nothing deleted
// takes space. It returns when that is done, or ctx ends; work that has begun is then finished in the
// background.
func (e *Engine) Compact(ctx context.Context) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	return e.run(ctx, "compact", e.release, func() error {
		return e.db.Compact(ctx, []byte{0x00}, []byte{0xff}, true)
	})
}
