package pebble

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cassia-db/cassia/storage/engine"
)

// readOnlyFS permits reads and rejects changes, so that Pebble can't change a directory that is opened through it.
// Pebble's own ReadOnly mode, in which the log is replayed into memory, would still create a lock file.
type readOnlyFS struct{ vfs.FS }

var errReadOnlyFS = fmt.Errorf("%w: the files are unchanged", engine.ErrReadOnly)

func (f readOnlyFS) Unwrap() vfs.FS { return f.FS }

// Create implements vfs.FS, as do the methods below.
func (readOnlyFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errReadOnlyFS }

func (readOnlyFS) Link(string, string) error { return errReadOnlyFS }

func (readOnlyFS) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errReadOnlyFS
}

func (readOnlyFS) Remove(string) error { return errReadOnlyFS }

func (readOnlyFS) RemoveAll(string) error { return errReadOnlyFS }

func (readOnlyFS) Rename(string, string) error { return errReadOnlyFS }

func (readOnlyFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnlyFS
}

func (readOnlyFS) MkdirAll(string, os.FileMode) error { return errReadOnlyFS }

// Lock takes a shared lock on an existing file, so that no process can open the directory for writing. A directory
// without the file, such as a backup, has never been opened, and isn't locked.
func (f readOnlyFS) Lock(name string) (io.Closer, error) {
	if f.FS != vfs.Default {
		return noLock{}, nil
	}
	return shareLock(name)
}

type noLock struct{}

func (noLock) Close() error { return nil }

// ErrNoData means that a directory to read has no engine.
var ErrNoData = errors.New("pebble: no store found in the directory")

// openReadOnly opens the engine for reading only. Synced bytes are verified as when it is opened for writing.
func (e *Engine) openReadOnly(opts Options) (err error) {
	files := readOnlyFS{e.fs}
	e.reserve = 0
	if _, err := files.Stat(e.dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", ErrNoData, e.dir)
	}
	if e.lock, err = lockDirectory(e.dir, files); err != nil {
		return err
	}
	x, err := readExisting(files, e.dir, &opts)
	if err != nil {
		return err
	}
	if x.isNew() {
		return fmt.Errorf("%w: %s", ErrNoData, e.dir)
	}
	e.ledger = x.ledger
	e.events.blocks.DisablePauses()
	p := opts.pebbleOptions(e.events.listener(opts.Logger), e.lock)
	p.FS, p.ReadOnly, p.ErrorIfNotExists = e.events.blocks.FS(files), true, true
	p.Logger = &logger{log: opts.Logger, fail: e.failWith}
	if e.db, err = pebbledb.Open(e.dir, p); err != nil {
		return openError(e.dir, err)
	}
	return e.checkFormat()
}

// locks are the lock files that engines of this process hold on the operating system's file system. The operating
// system's locks belong to a process rather than to an open file: they don't exclude two engines of one process, and
// closing any handle of a file releases all locks on it.
var locks = struct {
	sync.Mutex
	held map[string]*heldLock
}{held: map[string]*heldLock{}}

// heldLock is a lock held by one writer or by any number of readers.
type heldLock struct {
	name    string
	readers int // 0: a writer
	file    io.Closer
}

var errHeld = errors.New("this process already uses it")

// shareLock takes a lock that multiple readers can hold.
func shareLock(name string) (io.Closer, error) {
	locks.Lock()
	defer locks.Unlock()
	if l := locks.held[name]; l != nil {
		if l.readers == 0 {
			return nil, errHeld
		}
		l.readers++
		return l, nil
	}
	l := &heldLock{name: name, readers: 1, file: noLock{}}
	switch file, err := readLock(name); {
	case err == nil:
		l.file = file
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	locks.held[name] = l
	return l, nil
}

// writeLocks is the operating system's file system with locks that also exclude processes that only read.
type writeLocks struct{ vfs.FS }

func (f writeLocks) Lock(name string) (io.Closer, error) {
	locks.Lock()
	defer locks.Unlock()
	if locks.held[name] != nil {
		return nil, errHeld
	}
	file, err := f.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	l := &heldLock{name: name, file: file}
	locks.held[name] = l
	return l, nil
}

// Close releases the lock.
func (l *heldLock) Close() error {
	locks.Lock()
	defer locks.Unlock()
	if l.readers > 1 {
		l.readers--
		return nil
	}
	delete(locks.held, l.name)
	return l.file.Close()
}
