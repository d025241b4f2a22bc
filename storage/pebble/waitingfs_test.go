package pebble

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// unflushed returns the files of a killed engine with rows that are only in its log, and the number of these rows.
func unflushed(t *testing.T) (*vfs.MemFS, int) {
	mem := vfs.NewCrashableMem()
	e := openOn(t, mem, func(o *Options) { o.MemTables = 8 })
	const rows = 6
	for seq := range int64(rows) {
		require.NoError(t, e.Write(ctx, stageBatch(seq, strings.Repeat("v", 200_000))))
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, e.Close())
	return left, rows
}

// fullWhile returns a file system on which files can't be created or grow while full is true.
func fullWhile(files vfs.FS, full *atomic.Bool, failed *atomic.Int64, match func(errorfs.Op) bool) FS {
	return errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpFileWrite) && match(op) {
			failed.Add(1)
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	}))
}

// TestOpenWaitsForRoom opens an engine whose log can't be flushed, or whose files can't be written at all. Open waits,
// with pauses between retries, and continues when there is space. Nothing is lost.
func TestOpenWaitsForRoom(t *testing.T) {
	for name, match := range map[string]func(errorfs.Op) bool{
		"all":          func(errorfs.Op) bool { return true },
		"sorted files": func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") },
		"manifest":     func(op errorfs.Op) bool { return strings.Contains(op.Path, "MANIFEST") },
		"marker":       func(op errorfs.Op) bool { return strings.Contains(op.Path, "marker.") },
		"log":          func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") },
		"ledger":       func(op errorfs.Op) bool { return strings.Contains(op.Path, ledgerName) },
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			mem, rows := unflushed(t)
			var full atomic.Bool
			var failed, waits atomic.Int64
			full.Store(true)
			opts := smallOptions()
			opts.FS = fullWhile(mem, &full, &failed, match)
			var log bytes.Buffer
			opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			opts.Waiting = func(err error) {
				if err == nil {
					return
				}
				require.ErrorIs(t, err, syscall.ENOSPC)
				if waits.Add(1) == 3 {
					full.Store(false)
				}
			}
			e, err := Open("data", opts)
			require.NoError(t, err)
			require.EqualValues(t, 3, waits.Load())
			require.EqualValues(t, 3, failed.Load(), "it pauses before it tries again")
			require.Equal(t, rows, stageRows(t, e))
			require.NoError(t, e.Write(ctx, stageBatch(100, "v")))
			require.NoError(t, e.Close())
			require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), &log)
			require.Contains(t, log.String(), "no space left on device")
		})
	}
}

// TestOpenEndsWhileItWaits checks that an Open that waits for space returns when its context is canceled.
func TestOpenEndsWhileItWaits(t *testing.T) {
	inChild(t, func() {
		mem, _ := unflushed(t)
		var full atomic.Bool
		var failed atomic.Int64
		full.Store(true)
		opening, cancel := context.WithCancel(ctx)
		opts := smallOptions()
		opts.FS = fullWhile(mem, &full, &failed, func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") })
		opts.Waiting = func(error) { cancel() }
		_, err := OpenContext(opening, "data", opts)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// TestOpenThatCannotFlush checks that Open returns the error of each kind of file that can't be written if
// Options.Waiting isn't set, even if the error occurs on a goroutine of Pebble.
func TestOpenThatCannotFlush(t *testing.T) {
	for name, match := range map[string]func(errorfs.Op) bool{
		"sorted_files": func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") },
		"manifest":     func(op errorfs.Op) bool { return strings.Contains(op.Path, "MANIFEST") },
		"marker":       func(op errorfs.Op) bool { return strings.Contains(op.Path, "marker.") },
	} {
		t.Run(name, func(t *testing.T) {
			inChild(t, func() {
				mem, _ := unflushed(t)
				var full atomic.Bool
				var failed atomic.Int64
				full.Store(true)
				opts := smallOptions()
				opts.FS = fullWhile(mem, &full, &failed, match)
				_, err := Open("data", opts)
				require.ErrorIs(t, err, syscall.ENOSPC)
			})
		})
	}
}

// tornFile writes half of the bytes of its first write and returns an error for it. Later writes succeed.
type tornFile struct {
	vfs.File
	torn *bool
}

func (f tornFile) Write(p []byte) (int, error) {
	if *f.torn {
		return f.File.Write(p)
	}
	*f.torn = true
	n, err := f.File.Write(p[:len(p)/2])
	return n, errors.Join(err, syscall.ENOSPC)
}

// TestWaitingWritesTheRest checks that a write is completed later if the disk had space for only half of it at first.
func TestWaitingWritesTheRest(t *testing.T) {
	mem := vfs.NewMem()
	f, err := mem.Create("a", vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	torn := false
	w := &waitingFile{tornFile{f, &torn}, &waiting{report: func(error) {}}}
	n, err := w.Write([]byte("0123456789"))
	require.NoError(t, err)
	require.Equal(t, 10, n)
	require.NoError(t, w.Close())
	text, err := readWhole(mem, "a")
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(text))
}

// TestCloseThatCannotFlush checks that Close returns although another call waits for a flush that fails repeatedly.
func TestCloseThatCannotFlush(t *testing.T) {
	inChild(t, func() {
		var full atomic.Bool
		var failed atomic.Int64
		e := openOn(t, fullWhile(vfs.NewMem(), &full, &failed, func(op errorfs.Op) bool {
			return strings.HasSuffix(op.Path, ".sst")
		}))
		require.NoError(t, e.Write(ctx, stageBatch(1, "v")))
		full.Store(true)
		compacting, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- e.CompactAll(compacting) }()
		require.Eventually(t, func() bool { return failed.Load() > 0 }, waitAtMost, pollEvery)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		err := e.Close()
		require.ErrorIs(t, err, ErrUnclosed)
		require.ErrorIs(t, err, syscall.ENOSPC)
	})
}

// TestRareLines checks that there is at most one log line per reason and minute.
func TestRareLines(t *testing.T) {
	var r rareLines
	now := time.Now()
	for i := range 1000 {
		_, ok := r.mayLog("a", now.Add(time.Duration(i)*time.Millisecond))
		require.Equal(t, i == 0, ok)
	}
	_, ok := r.mayLog("b", now)
	require.True(t, ok)
	dropped, ok := r.mayLog("a", now.Add(lineEvery))
	require.True(t, ok)
	require.Equal(t, 999, dropped)
	for i := range 10 * maxReasons {
		r.mayLog(strings.Repeat("x", i%2000+1), now)
	}
	require.LessOrEqual(t, len(r.reasons), maxReasons)
	require.Equal(t, reasonOf(&os.PathError{Op: "write", Path: "1.sst", Err: syscall.ENOSPC}), reasonOf(&os.PathError{
		Op: "open", Path: "2.sst", Err: syscall.ENOSPC,
	}))
	require.Equal(t, reasonOf(errors.New("file 12")), reasonOf(errors.New("file 345")))
}

// layered returns the files of an engine that was killed with rows in its log. It has enough overlapping tables for a
// flush of these rows to start a compaction.
func layered(t *testing.T) *vfs.MemFS {
	mem := vfs.NewCrashableMem()
	for i := range int64(8) {
		created := 0
		e := openOn(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind != errorfs.OpCreate || !isTable(op.Path) {
				return nil
			}
			if created++; created > 2 || created > 1 && i != 1 {
				// The first failure is the flush's. There is another one if the format is flushed.
				return syscall.EIO
			}
			return nil
		})))
		require.NoError(t, e.Write(ctx, stageBatch(i, "v")))
		require.NoError(t, e.Write(ctx, stageBatch(1000-i, "v")))
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
	}
	return mem
}

// TestOpenFailsAfterFlush makes an operation of Open fail after a flush of the replayed log has started a compaction.
// Open returns the error, and the compaction doesn't panic because of closed files.
func TestOpenFailsAfterFlush(t *testing.T) {
	for name, match := range map[string]func(errorfs.Op) bool{
		"log":     func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".log") },
		"options": func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".dbtmp") },
		"rename":  func(op errorfs.Op) bool { return op.Kind == errorfs.OpRename && strings.HasSuffix(op.Path, ".dbtmp") },
	} {
		t.Run(name, func(t *testing.T) {
			inChild(t, func() {
				opts := smallOptions()
				opts.FS = errorfs.Wrap(layered(t), errorfs.InjectorFunc(func(op errorfs.Op) error {
					if match(op) {
						return &os.PathError{Op: "use", Path: op.Path, Err: syscall.EIO}
					}
					return nil
				}))
				_, err := Open("data", opts)
				require.ErrorIs(t, err, syscall.EIO)
				time.Sleep(50 * pollEvery) // Give the compaction time to panic.
			})
		})
	}
}
