package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// maxCommit is the approximate size in bytes at which the batches of one Write are split into multiple Pebble batches.
// A batch larger than half of a memtable would be flushed separately.
const maxCommit = 8 << 20

// Write implements engine.Engine. If ctx ends while the disk is busy, Write returns, and the batches may still be
// applied. They are applied before the batches of later calls of Write, which wait for them.
//
// Deletes ignore their timestamps. Rows are only deleted in tables in which a key has the same content forever. A
// delete has the timestamp with which its rows were written, and deleted rows never reappear. In this engine, the order
// of calls is the order of writes, so a delete applies exactly to the rows written before it, including rows of
// canceled writes.
func (e *Engine) Write(ctx context.Context, batches []engine.Batch) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	if err := engine.CheckClearing(batches); err != nil {
		e.release()
		return err
	}
	if err := e.checkReserve(ctx, batches); err != nil {
		e.release()
		return err
	}
	files, others := e.splitIngested(batches)
	commits, deleted, cleared := e.encodeBatches(others)
	if len(commits) == 0 && len(files) == 0 {
		e.release()
		return nil
	}
	slots := stagedSlots(batches)
	if err := e.enterSlots(ctx, slots); err != nil {
		e.release()
		return err
	}
	done := func() {
		e.gate.leaveGate(slots)
		e.release()
	}
	touched := e.versions.countersOf(batches)
	return e.runCommit(ctx, "write", done, func() error {
		err := countWrite(touched, func() error {
			if err := e.applyCommits(commits); err != nil || len(files) == 0 {
				return err
			}
			return e.ingestBatches(files)
		})
		if err != nil {
			return err
		}
		for _, prefix := range deleted {
			if prefix[0] != engine.Stage.ID || !e.exciser.recordDeleted(prefix) {
				e.reclaimer.recordDeleted(prefix)
			}
		}
		e.reclaimer.recordCleared(cleared)
		return nil
	})
}

func (e *Engine) TakesClear() bool { return true }

// applyCommits applies Pebble batches in order, and syncs them.
func (e *Engine) applyCommits(commits []*pebbledb.Batch) error {
	for i, b := range commits {
		// The log is sequential: syncing its end syncs everything before it.
		sync := pebbledb.NoSync
		if i == len(commits)-1 {
			sync = pebbledb.Sync
		}
		if err := e.runChange(func() error { return e.db.Apply(b, sync) }); err != nil {
			return err
		}
		if err := b.Close(); err != nil {
			return err
		}
	}
	return nil
}

// begin starts a call of an exported method: it returns the error of ctx, or registers the call as acquire does.
func (e *Engine) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.acquire()
}

// roomShare determines the part of the reserve that even writes that make room can't use: the reserve divided by
// roomShare. If the log can't be written because the disk is full, nothing can be written until the process restarts.
const roomShare = 8

// checkReserve rejects writes that would fill the disk. Deletes are always accepted. Writes that make room (see
// engine.WithMakingRoom) may use most of the reserve.
func (e *Engine) checkReserve(ctx context.Context, batches []engine.Batch) error {
	if e.reserve == 0 || !anyPut(batches) {
		return nil
	}
	usage, err := e.fs.GetDiskUsage(e.dir)
	if err != nil || usage.AvailBytes >= e.reserve {
		if refused := e.refused.Swap(0); refused > 0 {
			e.log.Info("disk space is available again; writes are accepted",
				"at", e.dir, "free_bytes", usage.AvailBytes, "refused", refused)
		}
		return nil //nolint:nilerr // A file system that doesn't report its free space has no reserve.
	}
	reserve := e.reserve
	if engine.MakesRoom(ctx) {
		if reserve /= roomShare; usage.AvailBytes >= reserve {
			return nil
		}
	}
	if e.refused.Add(1) == 1 {
		e.log.Error("writes are rejected, because the disk is almost full; free disk space, or shorten the retention",
			"at", e.dir, "free_bytes", usage.AvailBytes, "reserve_bytes", reserve)
	}
	return noRoomError(e.dir, usage.AvailBytes, reserve)
}

func noRoomError(dir string, free, reserve uint64) error {
	return fmt.Errorf("%w: the disk of %s has %d bytes free, and %d are kept in reserve; free disk space",
		engine.ErrUnavailable, dir, free, reserve)
}

// checkCheckpointReserve rejects a checkpoint of dir if the log might not be writable: Pebble syncs it first, and an
// error would end all writes. reserve is that of writes.
func checkCheckpointReserve(fs vfs.FS, dir string, reserve uint64) error {
	usage, err := fs.GetDiskUsage(dir)
	if err != nil || usage.AvailBytes >= reserve/roomShare {
		return nil //nolint:nilerr // A file system that doesn't report its free space has no reserve.
	}
	return noRoomError(dir, usage.AvailBytes, reserve/roomShare)
}

func anyPut(batches []engine.Batch) bool {
	for i := range batches {
		for j := range batches[i].Mutations {
			if batches[i].Mutations[j].Op == engine.Put {
				return true
			}
		}
	}
	return false
}

// encodeBatches converts batches to the min number of Pebble batches that maxCommit allows. For each batch with deletes
// it also returns a prefix of the deleted keys: the table and the first field, by which space is freed. cleared are the
// cleared ranges.
func (e *Engine) encodeBatches(
	batches []engine.Batch,
) (commits []*pebbledb.Batch, deleted [][]byte, cleared []keyRange) {
	var w batchWriter
	for i := range batches {
		if len(batches[i].Mutations) == 0 {
			continue
		}
		if w.batch == nil || w.batch.Len() > maxCommit {
			w.batch = e.db.NewBatch()
			commits = append(commits, w.batch)
		}
		if w.add(&batches[i]) {
			deleted = append(deleted, slotPrefix(&batches[i]))
		}
	}
	return commits, deleted, w.cleared
}

// batchWriter adds mutations to a Pebble batch, which copies them.
type batchWriter struct {
	batch    *pebbledb.Batch
	key, end []byte
	cleared  []keyRange
}

// add adds b's mutations and returns whether any of them deletes. It adds Clear mutations first, because later entries
// in a Pebble batch supersede earlier entries.
func (w *batchWriter) add(b *engine.Batch) (deletes bool) {
	t := b.Table
	for i := range b.Mutations {
		if m := &b.Mutations[i]; m.Op == engine.Clear {
			_, start, end := rangeBounds(&engine.Range{Table: t, Partition: b.Partition, From: m.Clustering, To: m.To})
			_ = w.batch.DeleteRange(start, end, nil)
			w.cleared = append(w.cleared, keyRange{start, end})
		}
	}
	w.key = appendPartition(w.key[:0], t, b.Partition)
	partition := len(w.key)
	for i := range b.Mutations {
		m := &b.Mutations[i]
		if m.Op == engine.Clear {
			continue
		}
		w.key = appendKey(w.key[:partition], t.Clustering, m.Clustering)
		deletes = deletes || m.Op != engine.Put
		// Pebble batches that aren't indexed only grow in memory, so adding to them can't fail.
		switch {
		case m.Op == engine.Delete:
			_ = w.batch.Delete(w.key, nil)
		case m.Op == engine.DeleteRange:
			w.end = append(w.end[:0], w.key[:partition]...)
			w.end = appendKey(w.end, t.Clustering, m.To)
			// To is included. No key is a prefix of another one, so the byte string after To's key ends the range.
			w.end = append(w.end, 0)
			_ = w.batch.DeleteRange(w.key, w.end, nil)
		case t.Converging:
			op := w.batch.MergeDeferred(len(w.key), timestampLen+len(m.Value))
			copy(op.Key, w.key)
			putTimestamp(op.Value, m.Timestamp)
			copy(op.Value[timestampLen:], m.Value)
			_ = op.Finish()
		default:
			_ = w.batch.Set(w.key, m.Value, nil)
		}
	}
	return deletes
}

// runCommit runs work, which writes to Pebble: see run.
func (e *Engine) runCommit(ctx context.Context, op string, done func(), work func() error) error {
	err := e.failedErr()
	if e.readOnly {
		err = fmt.Errorf("pebble: %s: %w", op, engine.ErrReadOnly)
	}
	if err != nil {
		done()
		return err
	}
	if err := e.awaitAbandoned(ctx); err != nil {
		done()
		return err
	}
	select {
	case e.commits <- struct{}{}:
	case <-e.failed:
		done()
		return e.failedErr()
	case <-ctx.Done():
		done()
		return ctx.Err()
	}
	ended := make(chan struct{})
	err = e.run(ctx, op, func() {
		<-e.commits
		done()
		close(ended)
	}, work)
	select {
	case <-ended:
	default:
		e.detachWrite(ended)
	}
	return err
}

// run runs work on a goroutine and waits until work ends, ctx ends, or writing fails. After a failure, work that waits
// for the log or the manifest never ends. done is called when work has ended, even if run has already returned.
func (e *Engine) run(ctx context.Context, op string, done func(), work func() error) error {
	result := make(chan error, 1)
	go func() {
		err := e.recoverPanics(op, work)
		done()
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.failed:
		return e.failedErr()
	}
}

// detachWrite records a commit under way whose caller has returned.
func (e *Engine) detachWrite(ended <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.detachedWrites = append(e.detachedWrites, ended)
}

// awaitAbandoned waits until all commits whose callers have returned have ended.
//
// Invariant: a write whose caller has returned is applied before any later write. Otherwise a row that was put and then
// deleted, because its state was unknown, could be written after its delete.
func (e *Engine) awaitAbandoned(ctx context.Context) error {
	for {
		e.mu.Lock()
		if len(e.detachedWrites) == 0 {
			e.mu.Unlock()
			return nil
		}
		first := e.detachedWrites[0]
		e.mu.Unlock()
		select {
		case <-first:
		case <-e.failed:
			return e.failedErr()
		case <-ctx.Done():
			return ctx.Err()
		}
		e.mu.Lock()
		e.detachedWrites = slices.DeleteFunc(
			e.detachedWrites, func(ended <-chan struct{}) bool { return ended == first },
		)
		e.mu.Unlock()
	}
}

// recoverPanics converts Pebble's panics to errors. After any failure within a commit, nothing can be written, because
// the content of the log is unknown.
func (e *Engine) recoverPanics(op string, work func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
			return
		case error:
			e.failWith(fmt.Errorf("%w\n%s", p, debug.Stack()))
		default:
			e.failWith(fmt.Errorf("%v\n%s", p, debug.Stack()))
		}
		err = e.failedErr()
	}()
	if err := work(); err != nil {
		return translateError(op, err)
	}
	return nil
}

// Drop implements engine.Engine with one range delete, synced. The space is freed in the background, within about
// Options.DropDelay.
func (e *Engine) Drop(ctx context.Context, t *engine.Table, prefix engine.Key) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	if err := engine.CheckDrop(t, prefix); err != nil {
		e.release()
		return err
	}
	start := appendPartition(nil, t, prefix)
	end := afterPrefix(nil, start)
	return e.runCommit(ctx, "drop", e.release, func() error {
		drop := func() error { return e.db.DeleteRange(start, end, pebbledb.Sync) }
		if err := countWrite(e.versions.allCounters(t), func() error { return e.runChange(drop) }); err != nil {
			return err
		}
		e.reclaimer.recordDeleted(start)
		return nil
	})
}

// CompareAndSet implements engine.Engine. Calls are serialized: conditional tables are small and rarely written.
func (e *Engine) CompareAndSet(
	ctx context.Context, t *engine.Table, partition, clustering engine.Key, old, value []byte,
) (bool, []byte, error) {
	if err := e.begin(ctx); err != nil {
		return false, nil, err
	}
	if err := engine.CheckCompareAndSet(t, partition, clustering, value); err != nil {
		e.release()
		return false, nil, err
	}
	if e.readOnly { // Otherwise a call that finds another value would return no error.
		e.release()
		return false, nil, fmt.Errorf("pebble: compare and set in %s: %w", t, engine.ErrReadOnly)
	}
	select {
	case e.cas <- struct{}{}:
	case <-ctx.Done():
		e.release()
		return false, nil, ctx.Err()
	case <-e.failed:
		e.release()
		return false, nil, e.failedErr()
	}
	done := func() {
		<-e.cas
		e.release()
	}
	key := appendKey(appendPartition(nil, t, partition), t.Clustering, clustering)
	found, err := e.get(key)
	if err != nil {
		done()
		return false, nil, translateError("read "+t.Name, err)
	}
	if (found == nil) != (old == nil) || !bytes.Equal(found, old) {
		done()
		return false, found, nil
	}
	value = append([]byte{}, value...)
	// The next call may start when the row is written, not when this caller returns, because it must see the row.
	err = e.runCommit(ctx, "compare and set", done, func() error {
		set := func() error { return e.db.Set(key, value, pebbledb.Sync) }
		return countWrite(e.versions.allCounters(t), func() error { return e.runChange(set) })
	})
	return err == nil, nil, err
}

// get returns a copy of a row's value, or nil if the row doesn't exist. An empty value isn't returned as nil.
func (e *Engine) get(key []byte) ([]byte, error) {
	value, closer, err := e.db.Get(key)
	if errors.Is(err, pebbledb.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append([]byte{}, value...), closer.Close()
}
