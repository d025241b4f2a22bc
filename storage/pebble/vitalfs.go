package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// retryAfter is the min duration of a failing operation on an ordinary file. Pebble retries a flush immediately, and
// would do nothing else on a full disk.
const retryAfter = time.Second

// vitalFS is the file system between Pebble and its files. It handles write errors.
//
// The log, the manifest and the directory are vital: after an error their content is unknown (a sync after a failed
// sync may even succeed without having written anything). Pebble then panics, on any goroutine and with any locks held,
// so that the process may end without a log line. So Pebble never receives the error: the operation calls failWith,
// which rejects all further writes, and never returns. failWith releases writers that wait for the operation, reads
// continue, and the next start replays the log.
//
// Until arm is called, errors are returned so that Open returns them, unless compactions may run: see checkOpening.
type vitalFS struct {
	vfs.FS
	fail  func(error)
	armed atomic.Bool
	// flushed is set when Pebble starts to flush a log.
	flushed atomic.Bool
	// failedOrdinary is called when an operation on a file that isn't vital fails.
	failedOrdinary func(error)
	// ledger tracks the bytes that are written.
	ledger *ledger
	// copying is the checkpoint under way, or nil.
	copying atomic.Pointer[copiedTo]
}

func (f *vitalFS) enable() { f.armed.Store(true) }

// isVital reports whether a file is a log or a manifest, without which nothing can be written.
func isVital(name string) bool {
	base := filepath.Base(name)
	return strings.HasSuffix(base, ".log") || strings.Contains(base, "MANIFEST")
}

// checkResult handles the result of an operation on a file. After an error of a vital file, it calls failWith and never
// returns. Other errors are returned after retryAfter. Before arm, checkOpening handles them.
func (f *vitalFS) checkResult(op, name string, isVital bool, err error) error {
	if err == nil || !f.armed.Load() {
		return f.checkOpening(op, name, err)
	}
	if !isVital {
		f.failedOrdinary(err)
		time.Sleep(retryAfter)
		return err
	}
	f.fail(fmt.Errorf("%s %s: %w", op, name, err))
	select {}
}

// checkOpening returns an operation's error before arm is called. After a flush, compactions may be running. If
// Pebble's Open then returned an error, it would close files that compactions use, which would make them panic. So the
// error is returned neither to Open nor to compactions. Errors of tables are returned, because they affect only
// compactions.
func (f *vitalFS) checkOpening(op, name string, err error) error {
	if err == nil || f.armed.Load() || !f.flushed.Load() || isTable(name) {
		return err
	}
	f.fail(fmt.Errorf("%s %s: %w", op, name, err))
	select {}
}

func (f *vitalFS) Unwrap() vfs.FS { return f.FS }

// Open implements vfs.FS. If a compaction can't open a file, Pebble immediately retries the compaction, as it retries a
// flush.
func (f *vitalFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil && isTable(name) && !errors.Is(err, fs.ErrNotExist) {
		return nil, f.checkResult("open", name, false, err)
	}
	return file, err
}

func (f *vitalFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if f.isCopy(name) {
		return f.createCopy(name, category)
	}
	if err := f.ledger.beforeRemove(name); err != nil { // An existing file with this name is truncated.
		return nil, f.checkResult("create", name, isVital(name), err)
	}
	manifest := f.ledger.namedManifest(name)
	if manifest != "" { // After this, the manifest in the marker's name is the current one.
		if err := f.ledger.writeIfChanged(); err != nil {
			return nil, f.checkResult("create", name, true, err)
		}
	}
	file, err := f.FS.Create(name, category)
	if err == nil {
		f.ledger.recordCreated(name)
	}
	if err == nil && manifest != "" {
		f.ledger.setManifest(manifest)
	}
	return f.wrap("create", name, file, err)
}

func (f *vitalFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.ledger.beforeRemove(oldname); err != nil {
		return nil, f.checkResult("reuse", newname, true, err)
	}
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	if err == nil {
		f.ledger.recordCreated(newname)
	}
	return f.wrap("reuse", newname, file, err)
}

func (f *vitalFS) Remove(name string) error {
	if err := f.ledger.beforeRemove(name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *vitalFS) Rename(oldname, newname string) error {
	err := f.FS.Rename(oldname, newname)
	if err == nil {
		f.ledger.recordRenamed(oldname, newname)
	}
	return f.checkOpening("rename", newname, err)
}

func (f *vitalFS) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	return names, f.checkOpening("list", dir, err)
}

func (f *vitalFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	own := f.FS.PathJoin(name) == f.ledger.dir
	if err != nil {
		return nil, f.checkResult("open", name, own, err)
	}
	return &vitalFile{File: file, fs: f, name: name, vital: own}, nil
}

func (f *vitalFS) wrap(op, name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, f.checkResult(op, name, isVital(name), err)
	}
	return &vitalFile{File: file, fs: f, name: name, vital: isVital(name)}, nil
}

// vitalFile is a file or directory that is open for writing.
type vitalFile struct {
	vfs.File
	fs    *vitalFS
	name  string
	vital bool
}

func (f *vitalFile) checkResult(op string, err error) error {
	return f.fs.checkResult(op, f.name, f.vital, err)
}

func (f *vitalFile) Write(p []byte) (int, error) {
	then := f.fs.ledger.beforeWrite(f.name, p)
	n, err := f.File.Write(p)
	f.fs.ledger.recordWritten(f.name, then, n == len(p))
	return n, f.checkResult("write", err)
}

func (f *vitalFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(p, offset)
	return n, f.checkResult("write", err)
}

func (f *vitalFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *vitalFile) SyncData() error { return f.sync(f.File.SyncData) }
func (f *vitalFile) Close() error    { return f.checkResult("close", f.File.Close()) }

func (f *vitalFile) sync(sync func() error) error {
	at := f.fs.ledger.beforeSync(f.name)
	err := sync()
	if err == nil {
		f.fs.ledger.recordSynced(f.name, at)
	}
	return f.checkResult("sync", err)
}

func (f *vitalFile) SyncTo(length int64) (bool, error) {
	at := f.fs.ledger.beforeSync(f.name)
	full, err := f.File.SyncTo(length)
	if err == nil && full {
		f.fs.ledger.recordSynced(f.name, at)
	}
	return full, f.checkResult("sync", err)
}

// stopWaitingOnClose is called when a write fails that Pebble may retry. Calls that wait for the retries may never end,
// so Close doesn't wait for them.
func (e *Engine) stopWaitingOnClose(err error) {
	if e.closed.Load() {
		e.stickOnce.Do(func() {
			e.sticking = err
			close(e.stuck)
		})
	}
}
