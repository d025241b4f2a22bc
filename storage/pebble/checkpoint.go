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

// Checkpoint writes a copy of everything that is durable to dir, which must not exist, as an engine of its own: the state of one
// moment after the call. On one file system the copy shares its files, and takes neither time nor space.
//
// Pebble's own Checkpoint isn't of one moment. It takes the list of tables first and copies the logs last, with the records that
// were added to them meanwhile, but without the tables: of rows that are ingested elsewhere and then deleted where they were, the
// copy has the delete only. So changes wait until Pebble has its list, and the logs are copied as they were by then:
//
//	no change under way ─► log synced ─► list of tables ─► lengths of the logs ─► tables linked, manifest and logs copied
//	└────────────────────────── changes wait ──────────────────────────┘
//
// Each change that is under way ends first: waiting takes as long as the longest of them, not as long as copying.
func (e *Engine) Checkpoint(dir string) error {
	if e.readOnly {
		return fmt.Errorf("pebble: checkpoint: %w", engine.ErrReadOnly)
	}
	if err := e.use(); err != nil {
		return err
	}
	return e.run(context.Background(), "checkpoint to "+dir, e.release, func() error {
		e.copying.Lock()
		defer e.copying.Unlock()
		if problems := e.ledger.verify(); len(problems) > 0 { // The copy of a damaged file would pass for whole.
			return problems[0]
		}
		// Pebble waits for the files that it is removing, which may be many. Despite its name this waits for them, and does nothing else.
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

// checkpointOf makes a checkpoint of the moment when the last change has ended. The caller must hold copying.
func (e *Engine) checkpointOf(dir string) error {
	e.changes.Lock()
	release := sync.OnceFunc(e.changes.Unlock)
	defer release() // Pebble may have returned early.
	e.files.begin(&copiedTo{dir: dir, begun: release})
	defer e.files.begin(nil)
	return e.db.Checkpoint(dir, pebbledb.WithFlushedWAL())
}

// checkCopy returns an error unless the manifest of a copy is whole and the copy has each table that the manifest names, in its size.
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
		return nil // Its edits aren't all understood; Pebble reads them.
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

// errBadCopy means that a checkpoint isn't a whole copy. It was removed.
var errBadCopy = errors.New("pebble: the checkpoint is incomplete")

// beginManifest has Pebble begin a manifest of its own if it hasn't yet. After a start that was interrupted between its manifest and its
// log, the next one goes on with that manifest, of which Pebble's own checkpoint copies nothing.
func (e *Engine) beginManifest() error {
	if e.ledger.hasOwnManifest() {
		return nil
	}
	err := e.change(func() error { return e.db.Set([]byte(formatKey), []byte(formatVersion), pebbledb.Sync) }) // So that there is something to flush.
	if err == nil {
		err = e.db.Flush()
	}
	if err != nil {
		return fmt.Errorf("pebble: open %s: %w", e.dir, err)
	}
	return nil
}

// change runs an operation of Pebble's that changes rows. A checkpoint has all of it, or nothing.
//
// Invariant: every such operation is run by change. Flushes and compactions change no rows.
func (e *Engine) change(op func() error) error {
	e.changes.RLock()
	defer e.changes.RUnlock()
	return op()
}

// copiedTo is the directory that Pebble makes a checkpoint in.
type copiedTo struct {
	dir string
	// begun is called when Pebble has the list of tables.
	begun func()
	// lengths are the bytes of each log at that moment; nil: it hasn't come yet.
	lengths map[string]int64
}

// begin has the checkpoint under way written to a directory; nil: none is under way.
func (f *vitalFS) begin(c *copiedTo) { f.copying.Store(c) }

// isCopy reports whether a file is one of the checkpoint under way.
func (f *vitalFS) isCopy(name string) bool {
	c := f.copying.Load()
	return c != nil && f.FS.PathDir(name) == c.dir
}

// MkdirAll implements vfs.FS. Making its directory is the first that Pebble does for a checkpoint after it has the list of tables.
func (f *vitalFS) MkdirAll(name string, perm os.FileMode) error {
	if c := f.copying.Load(); c != nil && name == c.dir && c.lengths == nil {
		c.lengths = f.ledger.lengths()
		c.begun()
	}
	return f.FS.MkdirAll(name, perm)
}

// createCopy creates a file of a checkpoint. An error with it is no reason to refuse writes.
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

// prefixFile keeps the first bytes that are written to it.
type prefixFile struct {
	vfs.File
	left int64
}

// Write implements vfs.File.
func (f *prefixFile) Write(p []byte) (int, error) {
	kept := p[:min(int64(len(p)), f.left)]
	n, err := f.File.Write(kept)
	f.left -= int64(n)
	if err != nil {
		return n, err
	}
	return len(p), nil
}
