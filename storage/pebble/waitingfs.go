package pebble

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// While an engine is opened, a file operation that fails for a reason that may be temporary is retried after
// firstPause. The pause doubles with each retry, up to lastPause.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// waitingFS retries operations that fail because of missing space, inodes, file handles or permissions until they
// succeed, while the engine is being opened. Pebble must not get these errors: it would retry the flush of a replayed
// log without a pause, and panic if it can't write its manifest.
//
// It retries only operations that have no effect when they fail, and the rest of a partial write. A sync is never
// retried, because the content of the file after a failed sync is unknown.
type waitingFS struct {
	vfs.FS
	w *waiting
}

// waiting is the shared state of a waitingFS and its files.
type waiting struct {
	// over is set when the engine is open. From then on, errors are returned.
	over atomic.Bool
	// stop is closed when Open is canceled.
	stop <-chan struct{}
	// report is called with each error that causes a retry, and with nil when the operation has succeeded.
	report func(error)
}

// MayEnd reports whether the cause of an error may be removed by freeing space or changing a limit, a mount or
// permissions.
func MayEnd(err error) bool {
	for _, cause := range []error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EROFS, syscall.EACCES, syscall.EPERM,
	} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// retryOperation runs an operation until it succeeds, fails permanently, the engine is open, or Open is canceled.
func (w *waiting) retryOperation(op func() error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := op()
		if w.over.Load() {
			return err
		}
		if err == nil {
			if pause > firstPause {
				w.report(nil)
			}
			return nil
		}
		if !MayEnd(err) {
			return err
		}
		w.report(err)
		select {
		case <-time.After(pause):
		case <-w.stop:
			return err
		}
	}
}

// openFile runs an operation that returns a file.
func (f waitingFS) openFile(open func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	err := f.w.retryOperation(func() (err error) {
		file, err = open()
		return err
	})
	if err != nil || f.w.over.Load() {
		return file, err
	}
	return &waitingFile{file, f.w}, nil
}

func (f waitingFS) Unwrap() vfs.FS { return f.FS }

// Create implements vfs.FS, as do the methods below.
func (f waitingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.openFile(func() (vfs.File, error) { return f.FS.Create(name, category) })
}

func (f waitingFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.openFile(func() (vfs.File, error) { return f.FS.Open(name, opts...) })
}

func (f waitingFS) OpenDir(name string) (vfs.File, error) {
	return f.openFile(func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

func (f waitingFS) Remove(name string) error {
	return f.w.retryOperation(func() error { return f.FS.Remove(name) })
}

func (f waitingFS) Rename(oldname, newname string) error {
	return f.w.retryOperation(func() error { return f.FS.Rename(oldname, newname) })
}

func (f waitingFS) MkdirAll(dir string, perm os.FileMode) error {
	return f.w.retryOperation(func() error { return f.FS.MkdirAll(dir, perm) })
}

func (f waitingFS) Lock(name string) (lock io.Closer, err error) {
	err = f.w.retryOperation(func() (err error) {
		lock, err = f.FS.Lock(name)
		return err
	})
	return lock, err
}

func (f waitingFS) List(dir string) (names []string, err error) {
	err = f.w.retryOperation(func() (err error) {
		names, err = f.FS.List(dir)
		return err
	})
	return names, err
}

func (f waitingFS) Stat(name string) (info vfs.FileInfo, err error) {
	err = f.w.retryOperation(func() (err error) {
		info, err = f.FS.Stat(name)
		return err
	})
	return info, err
}

// waitingFile is a file or directory that was opened before the engine was open.
type waitingFile struct {
	vfs.File
	w *waiting
}

// Write implements io.Writer. After a partial write it retries the rest.
func (f *waitingFile) Write(p []byte) (written int, err error) {
	err = f.w.retryOperation(func() error {
		n, err := f.File.Write(p[written:])
		written += n
		return err
	})
	return written, err
}

// reportWaiting returns a function that calls report with the reason why Open waits, and logs it.
func (e *Engine) reportWaiting(report func(error)) func(error) {
	return func(err error) {
		if err != nil {
			e.events.lines.logRarely("waiting "+reasonOf(err), func(dropped int) {
				e.log.Error(
					"can't open the store yet; retrying until the cause is fixed: free disk space, or correct the "+
						"limit or the permissions",
					"dir", e.dir, "err", firstLine{err}, "repeated", dropped,
				)
			})
		}
		report(err)
	}
}

// failingFlushes makes Open return the error of a flush that fails before the engine is open. Otherwise Pebble would
// retry the flush without a pause until it succeeds, and Open would wait. flushed is set when a flush starts.
func (e *Engine) failingFlushes(l *pebbledb.EventListener, flushed *atomic.Bool) *pebbledb.EventListener {
	var last atomic.Pointer[error] // of a flush; Pebble also reports it as a background error
	l.FlushBegin = func(pebbledb.FlushInfo) { flushed.Store(true) }
	l.FlushEnd = func(info pebbledb.FlushInfo) { last.Store(&info.Err) }
	report := l.BackgroundError
	l.BackgroundError = func(err error) {
		if flush := last.Load(); !e.isOpen.Load() && flush != nil &&
			err == *flush { //nolint:errorlint // It is the same error.
			e.failWith(err)
			select {}
		}
		report(err)
	}
	return l
}
