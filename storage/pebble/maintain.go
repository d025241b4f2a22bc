package pebble

import (
	"context"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// DiskUsage returns the bytes that the engine's files take, its log included; 0 once closed.
func (e *Engine) DiskUsage() uint64 {
	if e.use() != nil {
		return 0
	}
	defer e.release()
	return e.db.Metrics().DiskSpaceUsage()
}

// Checkpoint writes a copy of everything that is durable to dir, which must not exist, as an engine of its
// own. On one file system the copy shares its files, and takes neither time nor space.
func (e *Engine) Checkpoint(dir string) error {
	if err := e.use(); err != nil {
		return err
	}
	defer e.release()
	return translate("checkpoint to "+dir, e.db.Checkpoint(dir, pebbledb.WithFlushedWAL()))
}

// Compact writes out what is in memory and rewrites all files, so that nothing deleted takes space. It
// returns when that is done.
func (e *Engine) Compact(ctx context.Context) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.release()
	return translate("compact", e.db.Compact(ctx, []byte{0x00}, []byte{0xff}, true))
}
