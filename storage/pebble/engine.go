package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble/badblocks"
)

// formatVersion is the version of everything that this package writes: key encodings, value prefixes, the merger. It is
// stored in a separate row, under a table ID that no table has.
const formatVersion = "1"

// formatKey is the key of the row with formatVersion.
const formatKey = "\x00format"

// slowDisk is the duration above which a file operation counts as slow.
const slowDisk = 5 * time.Second

// maxCommits is the max number of Write calls that wait for the disk.
const maxCommits = 64

var (
	errBadFormat = errors.New("pebble: unknown format")
	// ErrUnclosed means that files couldn't be written when the engine was closed. They may stay open until the process
	// exits. The next start finds all acknowledged rows.
	ErrUnclosed = errors.New(
		"pebble: files can't be written, so the store isn't closed properly; the next start recovers all " +
			"acknowledged writes",
	)
)

// Engine is an engine.Engine on Pebble, and a prometheus.Collector.
type Engine struct {
	db        *pebbledb.DB
	fs        vfs.FS
	dir       string
	reserve   uint64
	refused   atomic.Int64 // writes rejected since the free disk space fell below the reserve
	readOnly  bool
	log       *slog.Logger
	events    *events
	collector *collector
	onFatal   func(error)

	commits chan struct{} // limits commits under way
	cas     chan struct{} // locked during a compare-and-set

	isOpen   atomic.Bool // set after Open has succeeded
	failOnce sync.Once
	failure  error         // the reason why nothing can be written; set before failed is closed
	failed   chan struct{} // closed when nothing can be written anymore

	stickOnce sync.Once
	sticking  error         // the reason why the engine can't be closed; set before stuck is closed
	stuck     chan struct{} // closed when a file can't be written while the engine is being closed

	mu sync.Mutex
	// detachedWrites has a channel per write whose caller returned before the write ended, in the order of these
	// returns. A channel is closed when its write ends.
	detachedWrites []<-chan struct{}

	uses   int           // the number of calls under way
	idle   chan struct{} // closed when closing and no call is under way
	closed atomic.Bool
	lock   *pebbledb.Lock
	watch  io.Closer // detects a slow disk

	reclaimer *reclaimer
	exciser   *exciser
	gate      gate         // for slots of the staging log, see gate
	changes   sync.RWMutex // see runChange
	copying   sync.Mutex   // locked while a checkpoint is made
	ledger    *ledger
	versions  versions

	readers      readers
	damaged      damaged
	tableOptions sstable.ReaderOptions

	// files is the file system through which Pebble writes. Ingested files are created there with writerOptions, for
	// writes of at least ingestBytes.
	files         *vitalFS
	writerOptions sstable.WriterOptions
	ingestBytes   int
	ingests       atomic.Uint64
}

var (
	_ engine.Engine        = (*Engine)(nil)
	_ engine.Versioned     = (*Engine)(nil)
	_ engine.Clearing      = (*Engine)(nil)
	_ engine.Described     = (*Engine)(nil)
	_ engine.Measured      = (*Engine)(nil)
	_ prometheus.Collector = (*Engine)(nil)
)

// Open opens the engine in dir, or creates it. It returns engine.ErrLocked if another Engine, in any process, has it
// open, errForeign or errIsBackup if the files belong to another program or a backup, and engine.ErrCorrupt if files of
// an engine are missing. A directory that it rejects is unchanged. Any number of engines may have it open for reading
// only.
func Open(dir string, opts Options) (*Engine, error) {
	return OpenContext(context.Background(), dir, opts)
}

// OpenContext is like Open, but also returns when ctx ends. The open then ends in the background, and the directory
// stays locked until then. If files can't be written, the directory stays locked until the process exits, because
// Pebble can't be stopped.
func OpenContext(ctx context.Context, dir string, opts Options) (*Engine, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if opts.FS == nil {
		resolved, err := absoluteDir(dir) // Locks within a process are by name, so a directory must not have two names.
		if err != nil {
			return nil, err
		}
		dir = resolved
	}
	e := &Engine{
		dir: dir, reserve: opts.ReserveBytes, log: opts.Logger, events: newEvents(), collector: newCollector(),
		onFatal: opts.OnFatal,
		commits: make(chan struct{}, maxCommits),
		cas:     make(chan struct{}, 1),
		failed:  make(chan struct{}),
		stuck:   make(chan struct{}),
		idle:    make(chan struct{}),

		tableOptions: tableReaderOptions(),
	}
	opened := make(chan error, 1)
	go func() { opened <- e.open(ctx, opts) }()
	select {
	case err := <-opened:
		if err != nil {
			return nil, errors.Join(err, e.closeAll())
		}
		return e, nil
	case <-e.failed:
		return nil, fmt.Errorf("pebble: open %s: %w", e.dir, e.failure)
	case <-ctx.Done():
		go func() {
			<-opened
			_ = e.closeAll()
		}()
		return nil, fmt.Errorf("pebble: open %s: %w", e.dir, ctx.Err())
	}
}

// absoluteDir returns the absolute path of a directory, without symbolic links if it exists.
func absoluteDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("pebble: resolving the path %s: %w", dir, err)
	}
	if resolved, err := filepath.EvalSymlinks(abs); err == nil {
		return resolved, nil
	}
	return abs, nil
}

func (e *Engine) open(ctx context.Context, opts Options) (err error) {
	// Pebble panics on errors that it can't handle.
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
	if e.fs == vfs.Default {
		e.fs = writeLocks{e.fs}
	}
	if opts.Waiting != nil {
		w := &waiting{stop: ctx.Done(), report: e.reportWaiting(opts.Waiting)}
		defer func() { w.over.Store(true) }()
		e.fs = waitingFS{e.fs, w}
	}
	x, err := e.lockToWrite(&opts)
	if err != nil {
		return err
	}
	watched, watch := vfs.WithDiskHealthChecks(e.fs, slowDisk, nil, e.events.diskSlow)
	e.watch = watch
	if err := e.openLedger(x, watched); err != nil {
		return err
	}
	files := &vitalFS{FS: watched, fail: e.failWith, failedOrdinary: e.stopWaitingOnClose, ledger: e.ledger}
	p := opts.pebbleOptions(e.failingFlushes(e.events.listener(opts.Logger), &files.flushed), e.lock)
	p.FS = e.events.blocks.FS(files)
	e.readers.cache, e.readers.memTables = pebbledb.NewCache(opts.CacheBytes), e.memTableBytes
	p.Cache = e.readers.cache
	p.Logger = &logger{log: opts.Logger, fail: e.failWith}
	if e.db, err = pebbledb.Open(e.dir, p); err != nil {
		return openError(e.dir, err)
	}
	e.files, e.ingestBytes = files, opts.IngestBytes
	e.writerOptions = ingestWriterOptions(p, e.db.TableFormat())
	files.enable()
	e.ledger.run(func(err error) {
		e.log.Warn("can't record which writes are synced, so damage to the log could go undetected",
			"dir", e.dir, "err", firstLine{err})
	})
	if err := e.checkFormat(); err != nil {
		return err
	}
	e.ledger.setPebble(uint64(e.db.FormatMajorVersion()))
	if err := e.beginManifest(); err != nil {
		return err
	}
	if err := e.completeCreation(); err != nil {
		return err
	}
	notYet := func(err error) { e.log.Warn("the disk space of deleted rows isn't released yet", "err", err) }
	e.reclaimer = startReclaimer(e.db, opts.DropDelay, notYet)
	e.exciser = startExciser(e.db, e.runChange, &e.gate, opts.StageDelay, e.reclaimer.recordDeleted, notYet)
	e.isOpen.Store(true)
	return nil
}

// lockToWrite locks the directory, and decides whether it may be opened for writing or an engine may be created in it.
// If it returns an error, nothing was written: a directory without a lock file is examined before the lock file is
// created.
func (e *Engine) lockToWrite(opts *Options) (*existing, error) {
	if _, err := e.fs.Stat(e.fs.PathJoin(e.dir, lockName)); errors.Is(err, fs.ErrNotExist) {
		x, err := readExisting(e.fs, e.dir, opts)
		if err != nil {
			return nil, err
		}
		if x.isNew() && opts.MustExist {
			return nil, fmt.Errorf("%w: %s", ErrNoData, e.dir)
		}
		if err := makeDirectory(e.fs, e.dir); err != nil {
			return nil, err
		}
	}
	var err error
	if e.lock, err = lockDirectory(e.dir, e.fs); err != nil {
		return nil, err
	}
	x, err := readExisting(e.fs, e.dir, opts)
	if err == nil && x.isNew() && opts.MustExist {
		err = fmt.Errorf("%w: %s", ErrNoData, e.dir)
	}
	return x, err
}

// replayedLog matches the number of the log in the details of Pebble's error for a log that it can't replay.
var replayedLog = regexp.MustCompile(`replaying wal (\d+), offset`)

// missingTable matches Pebble's error for a table of the manifest that has no file.
var missingTable = regexp.MustCompile(`file (\d+) \(type sstable\) unknown to the objstorage provider`)

// openError adds to an error of Open how to repair the directory, if files are damaged or missing.
func openError(dir string, err error) error {
	// Pebble has no distinct error for a table whose size differs from the manifest.
	isOtherSize := strings.Contains(err.Error(), "object size mismatch")
	found := replayedLog.FindStringSubmatch(fmt.Sprintf("%+v", err))
	if pebbledb.IsCorruptionError(err) && found != nil {
		number, _ := strconv.ParseUint(found[1], 10, 64)
		return damagedFile(dir, fmt.Sprintf("%06d.log", number), fmt.Sprintf("%v%s", firstLine{err}, lostWrites))
	}
	if found := missingTable.FindStringSubmatch(err.Error()); found != nil {
		return damagedFile(dir, found[1]+".sst", "it doesn't exist")
	}
	if pebbledb.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) || isOtherSize {
		return fmt.Errorf("pebble: open %s: %w: %w; %s", dir, engine.ErrCorrupt, firstLine{err}, repairHint(dir))
	}
	return fmt.Errorf("pebble: open %s: %w", dir, err)
}

// lockDirectory locks dir.
func lockDirectory(dir string, osFS vfs.FS) (*pebbledb.Lock, error) {
	lock, err := pebbledb.LockDirectory(dir, osFS)
	var path *fs.PathError
	switch {
	case err == nil:
		return lock, nil
	case errors.As(err, &path):
		// The lock file couldn't be created because of permissions or space. No other process has the lock.
		return nil, fmt.Errorf("pebble: lock %s: %w", dir, err)
	default:
		return nil, fmt.Errorf(
			"%w: the data in %s is in use; stop the process that uses it, or choose another directory (%w)",
			engine.ErrLocked, dir, err,
		)
	}
}

// checkFormat rejects files of a newer release (SYNCED may have been recreated), and writes the version to new
// engines.
func (e *Engine) checkFormat() error {
	found, err := e.get([]byte(formatKey))
	if pebbledb.IsCorruptionError(err) {
		// Damage to this row must not make all other rows inaccessible. A release with another format would also have
		// raised the version of Pebble's format or of the store, which are verified too.
		e.log.Error("the row with the format version is unreadable; continuing as if it matched this release",
			"dir", e.dir, "err", firstLine{err})
		return nil
	}
	if err != nil {
		return fmt.Errorf("pebble: read the format of %s: %w", e.dir, err)
	}
	if found == nil {
		return e.runCommit(context.Background(), "record the format version", func() {}, func() error {
			return e.runChange(
				func() error { return e.db.Set([]byte(formatKey), []byte(formatVersion), pebbledb.Sync) },
			)
		})
	}
	if string(found) != formatVersion {
		return fmt.Errorf("%w: %s has format %q; this release supports %q", errBadFormat, e.dir, found, formatVersion)
	}
	return nil
}

// DescribeStore implements engine.Described.
func (e *Engine) DescribeStore(ctx context.Context, description []byte) error {
	if e.readOnly {
		return fmt.Errorf("pebble: describe the store: %w", engine.ErrReadOnly)
	}
	if err := e.begin(ctx); err != nil {
		return err
	}
	return e.run(ctx, "describe", e.release, func() error { return e.ledger.setDescription(description) })
}

// acquire registers a call, so that Close waits for it. If it returns nil, the caller must call release.
func (e *Engine) acquire() error {
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

// failWith records that nothing can be written from now on. It keeps only the first reason; later ones are
// consequences.
func (e *Engine) failWith(err error) {
	e.failOnce.Do(func() {
		e.failure = err
		close(e.failed)
		if !e.isOpen.Load() {
			return // Open returns the error.
		}
		e.log.Error(
			"the store can't be written any more, and rejects writes until this process restarts; check the disk, "+
				"then restart",
			"dir", e.dir, "err", err,
		)
		if e.onFatal != nil {
			e.onFatal(err)
		}
	})
}

// failedErr returns the reason why nothing can be written, or nil.
func (e *Engine) failedErr() error {
	select {
	case <-e.failed:
		return fmt.Errorf("%w: a previous write to %s failed; restart the process: %w",
			engine.ErrUnavailable, e.dir, e.failure)
	default:
		return nil
	}
}

// Close implements engine.Engine. It waits for calls under way; scans end at their next row. If files can't be written,
// an orderly close is impossible: Close returns ErrUnclosed, and the process should exit.
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
	closed := make(chan error, 1)
	go func() {
		select {
		case <-e.idle:
		case <-e.failed:
		}
		closed <- e.closeAll()
	}()
	select {
	case err := <-closed:
		if err != nil {
			return fmt.Errorf("pebble: close %s: %w", e.dir, err)
		}
		return nil
	case <-e.stuck:
		return fmt.Errorf("pebble: close %s: %w: %w", e.dir, ErrUnclosed, firstLine{e.sticking})
	}
}

// closeAll closes all resources.
func (e *Engine) closeAll() error {
	if e.failedErr() == nil {
		if e.exciser != nil {
			e.exciser.stop()
		}
		if e.reclaimer != nil {
			e.reclaimer.stop(e.failed)
		}
	}
	isClosed, dbErr := e.closeDB()
	if !isClosed {
		// Closing Pebble would block forever. The next start recovers all acknowledged writes.
		if e.ledger != nil {
			close(e.ledger.stop)
		}
		return fmt.Errorf("%w: %w", ErrUnclosed, e.failure)
	}
	errs := []error{dbErr}
	if e.db != nil {
		if err := e.ledger.close(dbErr == nil); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrUnclosed, err))
		}
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

// closeDB closes Pebble if it is open. If writing has failed or fails during the close, Pebble's Close never returns:
// closeDB doesn't wait for it, and isClosed is false.
func (e *Engine) closeDB() (isClosed bool, err error) {
	if e.failedErr() != nil {
		return false, nil
	}
	if e.db == nil {
		return true, nil
	}
	done := make(chan error, 1)
	go func() { done <- e.db.Close() }()
	select {
	case err := <-done:
		return true, err
	case <-e.failed:
		return false, nil
	}
}

// translateError converts Pebble's errors to the engine's errors.
func translateError(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, pebbledb.ErrClosed):
		return engine.ErrClosed
	case pebbledb.IsCorruptionError(err):
		return fmt.Errorf(
			"pebble: %s: %w (cassia check lists all damage, cassia restore --damaged repairs it from a backup)", op,
			badblocks.Locate(err),
		)
	default:
		return fmt.Errorf("pebble: %s: %w: %w", op, engine.ErrUnavailable, err)
	}
}

// firstLine is the first line of an error of Pebble. Further lines refer to Pebble's code, and logs that print the
// whole error contain stack traces.
type firstLine struct{ cause error }

func (b firstLine) Error() string {
	line, _, _ := strings.Cut(b.cause.Error(), "\n")
	return line
}

func (b firstLine) Unwrap() error { return b.cause }
