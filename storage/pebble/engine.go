package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/storage/engine"
)

// formatVersion is the version of everything this package writes: key encodings, value prefixes, the
// merger. It stands in a row of its own, under a table ID that no table has.
const formatVersion = "1"

// formatKey holds formatVersion.
const formatKey = "\x00format"

// slowDisk is how long an operation on a file may take without being counted as slow.
const slowDisk = 5 * time.Second

// maxCommits bounds the Write calls that are on their way to the disk.
const maxCommits = 64

var (
	errBadFormat = errors.New("pebble: unknown format")
	errUnclosed  = errors.New("pebble: writing failed before, the files stay open until the process ends")
)

// Engine keeps wide rows in Pebble. It is an engine.Engine, and a prometheus.Collector.
type Engine struct {
	db        *pebbledb.DB
	fs        vfs.FS
	dir       string
	reserve   uint64
	refused   atomic.Int64 // writes, since the disk has had less room than reserve
	readOnly  bool
	log       *slog.Logger
	events    *events
	collector *collector
	onFatal   func(error)

	commits chan struct{} // bounds commits under way
	cas     chan struct{} // held while a row is compared and set

	failOnce sync.Once
	failure  error         // why nothing can be written any more; set before failed is closed
	failed   chan struct{} // closed when nothing can be written any more

	mu sync.Mutex
	// abandoned are the ends of writes under way whose callers have left, in the order in which they left.
	abandoned []<-chan struct{}

	uses   int           // calls under way
	idle   chan struct{} // closed when closing and no call is under way
	closed atomic.Bool
	lock   *pebbledb.Lock
	watch  io.Closer // watches for a slow disk

	reclaimer *reclaimer
	exciser   *exciser
	gate      gate         // before slots of the stage
	changes   sync.RWMutex // see change
	copying   sync.Mutex   // held while a checkpoint is made
	ledger    *ledger
	versions  versions

	readers      readers
	damaged      damaged
	tableOptions sstable.ReaderOptions

	// files are what Pebble writes through; ingested files are made there, with writerOptions, from ingestBytes on.
	files         *vitalFS
	writerOptions sstable.WriterOptions
	ingestBytes   int
	ingests       atomic.Uint64
}

var (
	_ engine.Engine        = (*Engine)(nil)
	_ engine.Versioned     = (*Engine)(nil)
	_ engine.Clearing      = (*Engine)(nil)
	_ prometheus.Collector = (*Engine)(nil)
)

// Open opens the engine in dir, or creates it there. It returns engine.ErrLocked if another Engine has it
// open, in this process or another, and ErrForeign where it would have to create one among files that aren't an engine's.
// Any number may have it open for reading only at once.
func Open(dir string, opts Options) (*Engine, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if opts.FS == nil {
		// The lock is by name within a process: one directory must not have two names.
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("pebble: path of %s: %w", dir, err)
		}
		dir = abs
		if resolved, err := filepath.EvalSymlinks(abs); err == nil {
			dir = resolved
		}
		if err := checkRestored(dir); err != nil {
			return nil, err
		}
	}
	e := &Engine{
		dir: dir, reserve: opts.ReserveBytes, log: opts.Logger, events: newEvents(), collector: newCollector(), onFatal: opts.OnFatal,
		commits: make(chan struct{}, maxCommits),
		cas:     make(chan struct{}, 1),
		failed:  make(chan struct{}),
		idle:    make(chan struct{}),

		tableOptions: tableReaderOptions(),
	}
	if err := e.open(opts); err != nil {
		return nil, errors.Join(err, e.closeAll())
	}
	return e, nil
}

func (e *Engine) open(opts Options) (err error) {
	// Pebble panics when it can't write its manifest or a marker while it opens.
	defer func() {
		p := recover()
		cause, isError := p.(error)
		if _, bug := p.(runtime.Error); bug || p != nil && !isError {
			panic(p)
		}
		if isError {
			err = fmt.Errorf("pebble: open %s: %w", e.dir, cause)
		}
	}()
	if e.fs = opts.FS; e.fs == nil {
		e.fs = vfs.Default
	}
	if e.readOnly = opts.ReadOnly; e.readOnly {
		return e.openReadOnly(opts)
	}
	if err := e.fs.MkdirAll(e.dir, 0o755); err != nil {
		return fmt.Errorf("pebble: create %s: %w", e.dir, err)
	}
	if err := checkForeign(e.dir, e.fs); err != nil {
		return err
	}
	locking := e.fs
	if locking == vfs.Default {
		locking = writeLocks{e.fs}
	}
	if e.lock, err = lockDirectory(e.dir, locking); err != nil {
		return err
	}
	watched, watch := vfs.WithDiskHealthChecks(e.fs, slowDisk, nil, e.events.diskSlow)
	e.watch = watch
	if e.ledger, err = openLedger(watched, e.dir); err != nil {
		return err
	}
	files := &vitalFS{FS: watched, fail: e.fail, ledger: e.ledger}
	p := opts.pebbleOptions(e.events.listener(opts.Logger), e.lock)
	p.FS = checkedFS{files, &e.events.blocks}
	e.readers.cache, e.readers.memTables = pebbledb.NewCache(opts.CacheBytes), e.memTableBytes
	p.Cache = e.readers.cache
	p.Logger = &logger{log: opts.Logger, fail: e.fail}
	if e.db, err = pebbledb.Open(e.dir, p); err != nil {
		return unopened(e.dir, err)
	}
	e.files, e.ingestBytes = files, opts.IngestBytes
	e.writerOptions = ingestWriterOptions(p, e.db.TableFormat())
	files.arm()
	e.ledger.run(func(err error) {
		e.log.Warn("what is synced can't be noted; damage to the log might go unnoticed", "dir", e.dir, "err", err)
	})
	if err := e.checkFormat(); err != nil {
		return err
	}
	notYet := func(err error) { e.log.Warn("space of deleted rows isn't given back yet", "err", err) }
	e.reclaimer = startReclaimer(e.db, opts.DropDelay, notYet)
	e.exciser = startExciser(e.db, e.change, &e.gate, opts.StageDelay, e.reclaimer.deleted, notYet)
	return nil
}

// unopened adds the remedy to an error of Open where files are damaged or missing.
func unopened(dir string, err error) error {
	if pebbledb.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pebble: open %s: %w: %w; restore a backup (cassia restore), or see what cassia restore --damaged can mend", dir, engine.ErrCorrupt, err)
	}
	return fmt.Errorf("pebble: open %s: %w", dir, err)
}

// lockDirectory takes the lock on dir.
func lockDirectory(dir string, osFS vfs.FS) (*pebbledb.Lock, error) {
	lock, err := pebbledb.LockDirectory(dir, osFS)
	var path *fs.PathError
	switch {
	case err == nil:
		return lock, nil
	case errors.As(err, &path):
		// The lock file itself couldn't be made: a matter of rights or space, not of another process.
		return nil, fmt.Errorf("pebble: lock %s: %w", dir, err)
	default:
		return nil, fmt.Errorf("%w: the data in %s is open already; stop the process that uses it, or give this one another directory (%w)",
			engine.ErrLocked, dir, err)
	}
}

// checkFormat refuses files that a newer release wrote, and marks new ones.
func (e *Engine) checkFormat() error {
	found, err := e.get([]byte(formatKey))
	if pebbledb.IsCorruptionError(err) {
		// The damage that hides the row is no reason to hide all others, and an unknown release would
		// have raised Pebble's format or the store's, too.
		e.log.Error("the row that says which format this is can't be read; go on as if it were this one's", "dir", e.dir, "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("pebble: read the format of %s: %w", e.dir, err)
	}
	if found == nil && e.readOnly { // It was killed before it was marked.
		return nil
	}
	if found == nil {
		return e.commit(context.Background(), "mark the format", func() {}, func() error {
			return e.change(func() error { return e.db.Set([]byte(formatKey), []byte(formatVersion), pebbledb.Sync) })
		})
	}
	if string(found) != formatVersion {
		return fmt.Errorf("%w: %s has format %q, this release knows %q", errBadFormat, e.dir, found, formatVersion)
	}
	return nil
}

// use registers a call, so that Close waits for it; every use that returns nil is followed by a release.
func (e *Engine) use() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return engine.ErrClosed
	}
	e.uses++
	return nil
}

func (e *Engine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uses--
	if e.closed.Load() && e.uses == 0 {
		close(e.idle)
	}
}

// fail records that nothing can be written any more. Only the first reason counts: others follow from it.
func (e *Engine) fail(err error) {
	e.failOnce.Do(func() {
		e.failure = err
		e.log.Error("pebble can't write any more and takes no writes until this process starts anew; look at the disk, then restart",
			"dir", e.dir, "err", err)
		close(e.failed)
		if e.onFatal != nil {
			e.onFatal(err)
		}
	})
}

// failedErr returns why nothing can be written any more, or nil.
func (e *Engine) failedErr() error {
	select {
	case <-e.failed:
		return fmt.Errorf("%w: writing to %s failed before, the process must start anew: %w", engine.ErrUnavailable, e.dir, e.failure)
	default:
		return nil
	}
}

// Close implements engine.Engine. It waits for calls under way; scans end at their next row. After the log
// has failed nothing can be closed in order: then Close returns an error, and the process should end.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed.Swap(true) {
		e.mu.Unlock()
		return engine.ErrClosed
	}
	if e.uses == 0 {
		close(e.idle)
	}
	e.mu.Unlock()
	select {
	case <-e.idle:
	case <-e.failed:
	}
	if err := e.closeAll(); err != nil {
		return fmt.Errorf("pebble: close %s: %w", e.dir, err)
	}
	return nil
}

// closeAll closes everything that is open.
func (e *Engine) closeAll() error {
	if e.failedErr() == nil {
		if e.exciser != nil {
			e.exciser.stop()
		}
		if e.reclaimer != nil {
			e.reclaimer.stop(e.failed)
		}
	}
	if e.failedErr() != nil {
		// What Pebble waits for never comes. The next start finds everything that was acknowledged.
		if e.ledger != nil {
			close(e.ledger.stop)
		}
		return fmt.Errorf("%w: %w", errUnclosed, e.failure)
	}
	var errs []error
	if e.db != nil {
		errs = append(errs, e.db.Close())
		errs = append(errs, e.ledger.close(errs[len(errs)-1] == nil))
	}
	if e.readers.cache != nil {
		e.readers.cache.Unref()
	}
	if e.lock != nil {
		errs = append(errs, e.lock.Close())
	}
	if e.watch != nil {
		errs = append(errs, e.watch.Close())
	}
	return errors.Join(errs...)
}

// translate gives Pebble's errors the engine's names.
func translate(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, pebbledb.ErrClosed):
		return engine.ErrClosed
	case pebbledb.IsCorruptionError(err):
		return fmt.Errorf("pebble: %s: %w: %w (cassia check names all that is damaged, cassia restore --damaged mends it from a backup)", op, engine.ErrCorrupt, firstLine{err})
	default:
		return fmt.Errorf("pebble: %s: %w: %w", op, engine.ErrUnavailable, err)
	}
}

// firstLine is an error of Pebble's without what follows its first line: further lines are about Pebble's own code, and a log
// that prints all of an error has stack traces.
type firstLine struct{ cause error }

func (b firstLine) Error() string {
	line, _, _ := strings.Cut(b.cause.Error(), "\n")
	return line
}

func (b firstLine) Unwrap() error { return b.cause }
