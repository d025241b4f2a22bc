package pebble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// Checkpoint writes a copy of all durable rows to dir, which must not exist, as a separate engine: the state at one
// moment after the call. On the same file system the copy shares files with the engine, and takes almost no time and
// space.
//
// Pebble's own Checkpoint doesn't copy the state at one moment. It takes the list of tables first and copies the logs
// last, with the records appended in between, but without the tables created in between. If rows are ingested under a
// new key and then deleted under the old one, the copy would have only the delete. So changes wait until Pebble has its
// list, and the logs are copied up to their lengths at that time:
//
//	no change under way ─► log synced ─► list of tables ─► lengths of the logs ─► tables linked, manifest and logs copied
//	└────────────────────────── changes wait ──────────────────────────┘
//
// The checkpoint first waits for changes under way, and new changes wait during that time. They don't wait for the
// copying.
func (e *Engine) Checkpoint(dir string) error {
	if e.readOnly {
		return fmt.Errorf("pebble: checkpoint: %w", engine.ErrReadOnly)
	}
	if err := checkCheckpointReserve(e.fs, e.dir, e.reserve); err != nil {
		return fmt.Errorf("pebble: checkpoint: %w", err)
	}
	if err := e.acquire(); err != nil {
		return err
	}
	return e.run(context.Background(), "checkpoint to "+dir, e.release, func() error {
		e.copying.Lock()
		defer e.copying.Unlock()
		if problems := e.ledger.verify(); len(problems) > 0 {
			// A copy of a damaged file would be mistaken for an intact file.
			return problems[0]
		}
		// Pebble's Checkpoint waits until it has removed obsolete files, which may be many. Wait for it before changes
		// are blocked. This is all the method does, despite its name.
		e.db.TestOnlyWaitForCleaning()
		if err := e.checkpointOf(e.fs.PathDir(e.fs.PathJoin(dir, ledgerName))); err != nil {
			return err
		}
		if err := e.checkCopy(dir); err != nil {
			return errors.Join(err, e.fs.RemoveAll(dir))
		}
		return noteCopyOf(e.fs, dir, e.ledger.currentHeader())
	})
}

// checkpointOf makes a checkpoint of the state when no change is under way. The caller must hold copying.
func (e *Engine) checkpointOf(dir string) error {
	e.changes.Lock()
	release := sync.OnceFunc(e.changes.Unlock)
	defer release() // Pebble may have returned early.
	e.files.setCheckpoint(&copiedTo{dir: dir, begun: release})
	defer e.files.setCheckpoint(nil)
	return e.db.Checkpoint(dir, pebbledb.WithFlushedWAL())
}

// checkCopy returns an error unless the manifest of a copy is intact and the copy has all of the manifest's tables,
// with their sizes.
func (e *Engine) checkCopy(dir string) error {
	desc, err := pebbledb.Peek(dir, e.fs)
	if err != nil || !desc.Exists {
		return fmt.Errorf("pebble: checkpoint: %s has no manifest: %w", dir, errors.Join(errBadCopy, err))
	}
	f, err := e.fs.Open(desc.ManifestFilename)
	if err != nil {
		return fmt.Errorf("pebble: checkpoint: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("pebble: checkpoint: %w", err)
	}
	state, err := readManifestState(f)
	switch {
	case info.Size() == 0:
		return fmt.Errorf("%w: %s is empty", errBadCopy, desc.ManifestFilename)
	case errors.Is(err, errManifest):
		return nil // The manifest has edits that only Pebble can read.
	case err != nil:
		return fmt.Errorf("pebble: checkpoint: %s: %w", desc.ManifestFilename, err)
	case !state.isWhole:
		return fmt.Errorf("%w: %s is truncated", errBadCopy, desc.ManifestFilename)
	}
	for number, live := range state.liveFiles() {
		name := e.fs.PathJoin(dir, fmt.Sprintf("%06d.sst", number))
		info, err := e.fs.Stat(name)
		if err != nil {
			return fmt.Errorf("%w: %w", errBadCopy, err)
		}
		if live.size != 0 && uint64(info.Size()) != live.size {
			return fmt.Errorf("%w: %s has %d bytes instead of %d", errBadCopy, name, info.Size(), live.size)
		}
	}
	return nil
}

// errBadCopy means that a checkpoint was incomplete and has been removed.
var errBadCopy = errors.New("pebble: the checkpoint is incomplete")

// beginManifest makes Pebble create a new manifest, unless it has created one since the engine was opened. If a start
// was interrupted between writing the manifest and the log, the next start continues that manifest, and Pebble's
// checkpoint would copy nothing of it.
func (e *Engine) beginManifest() error {
	if e.ledger.hasOwnManifest() {
		return nil
	}
	// Write a row, so that there is something to flush.
	err := e.runChange(func() error { return e.db.Set([]byte(formatKey), []byte(formatVersion), pebbledb.Sync) })
	if err == nil {
		err = e.db.Flush()
	}
	if err != nil {
		return fmt.Errorf("pebble: open %s: %w", e.dir, err)
	}
	return nil
}

// runChange runs an operation of Pebble that changes rows. A checkpoint contains the operation completely or not at
// all.
//
// Invariant: every operation that changes rows is run by runChange. Flushes and compactions change no rows.
func (e *Engine) runChange(op func() error) error {
	e.changes.RLock()
	defer e.changes.RUnlock()
	return op()
}

// copiedTo is the checkpoint that Pebble is writing to a directory.
type copiedTo struct {
	dir string
	// begun is called when Pebble has the list of tables.
	begun func()
	// lengths has the number of bytes of each log when begun was called; nil before.
	lengths map[string]int64
}

// setCheckpoint sets the destination of the checkpoint under way. c is nil if there is none.
func (f *vitalFS) setCheckpoint(c *copiedTo) { f.copying.Store(c) }

// isCopy reports whether a file belongs to the checkpoint under way.
func (f *vitalFS) isCopy(name string) bool {
	c := f.copying.Load()
	return c != nil && f.FS.PathDir(name) == c.dir
}

// MkdirAll implements vfs.FS. Creating the directory of the checkpoint is the first operation after Pebble has taken
// the list of tables.
func (f *vitalFS) MkdirAll(name string, perm os.FileMode) error {
	if c := f.copying.Load(); c != nil && name == c.dir && c.lengths == nil {
		c.lengths = f.ledger.lengths()
		c.begun()
	}
	return f.FS.MkdirAll(name, perm)
}

// createCopy creates a file of a checkpoint. An error doesn't stop writes to the engine.
func (f *vitalFS) createCopy(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	if length, ok := f.copying.Load().lengths[f.FS.PathBase(name)]; ok && isLog(name) {
		return &prefixFile{File: file, left: length}, nil
	}
	return file, nil
}

// prefixFile writes a limited number of bytes and discards the rest.
type prefixFile struct {
	vfs.File
	left int64
}

func (f *prefixFile) Write(p []byte) (int, error) {
	kept := p[:min(int64(len(p)), f.left)]
	n, err := f.File.Write(kept)
	f.left -= int64(n)
	if err != nil {
		return n, err
	}
	return len(p), nil
}
