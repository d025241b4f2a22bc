package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/soak"
)

var ctx = context.Background()

// faultyFS returns a file system in memory that calls fault before each operation.
func faultyFS(fault func(errorfs.Op) error) (*vfs.MemFS, FS) {
	mem := vfs.NewCrashableMem()
	return mem, errorfs.Wrap(mem, errorfs.InjectorFunc(fault))
}

func openOn(t testing.TB, osFS FS, change ...func(*Options)) *Engine {
	t.Helper()
	opts := smallOptions()
	opts.FS = osFS
	for _, c := range change {
		c(&opts)
	}
	e, err := Open("data", opts)
	require.NoError(t, err)
	return e
}

func stageBatch(seq int64, value string) []engine.Batch {
	return []engine.Batch{
		{Table: engine.Stage, Partition: engine.Key{engine.Int(1), engine.Int(2)}, Mutations: []engine.Mutation{
			{
				Clustering: engine.Key{engine.Text("0123456789abcdef"), engine.Int(seq)}, Timestamp: 1,
				Value: []byte(value),
			}}},
	}
}

func countRows(t testing.TB, e *Engine, table *engine.Table, partition engine.Key) int {
	t.Helper()
	n := 0
	for _, err := range e.Scan(ctx, engine.Range{Table: table, Partition: partition}) {
		require.NoError(t, err)
		n++
	}
	return n
}

func stageRows(t testing.TB, e *Engine) int {
	return countRows(t, e, engine.Stage, engine.Key{engine.Int(1), engine.Int(2)})
}

// failingFS returns a file system in memory on which, once broken is set, every operation that matches fails.
func failingFS(match func(op errorfs.Op) bool) (mem *vfs.MemFS, osFS FS, broken *atomic.Bool) {
	broken = &atomic.Bool{}
	mem, osFS = faultyFS(func(op errorfs.Op) error {
		if broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && match(op) {
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	})
	return mem, osFS, broken
}

// inChild runs a test in a separate process, because Pebble doesn't release its resources after a write error.
func inChild(t *testing.T, run func()) {
	const role = "CASSIA_TEST_CHILD"
	if os.Getenv(role) == "" {
		out, err := child(role, t.Name()).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "the child is well")
		return
	}
	run()
	fmt.Println("the child is well")
	os.Exit(0)
}

// TestWritingFails makes operations on a vital file fail until a write has returned an error. After that nothing is
// written, every write returns an error, and reads still succeed.
func TestWritingFails(t *testing.T) {
	for name, match := range map[string]func(errorfs.Op) bool{
		"log": func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") && op.Kind != errorfs.OpCreate },
		"log sync": func(op errorfs.Op) bool {
			return strings.HasSuffix(op.Path, ".log") && op.Kind == errorfs.OpFileSyncData
		},
		"next log":      func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") && op.Kind == errorfs.OpCreate },
		"manifest":      func(op errorfs.Op) bool { return strings.Contains(op.Path, "MANIFEST") },
		"directory":     func(op errorfs.Op) bool { return op.Path == "data" },
		"all but reads": func(errorfs.Op) bool { return true },
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			inChild(t, func() { testWritingFails(t, match) })
		})
	}
}

func testWritingFails(t *testing.T, match func(errorfs.Op) bool) {
	mem, osFS, broken := failingFS(match)
	var log bytes.Buffer
	var told atomic.Int64
	e := openOn(t, osFS, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.OnFatal = func(error) { told.Add(1) }
	})
	require.NoError(t, e.Write(ctx, stageBatch(0, "kept")))
	broken.Store(true)
	kept := int64(1)
	var err error
	for err == nil { // Memtables fill, logs and manifests are written.
		if err = e.Write(ctx, stageBatch(kept, strings.Repeat("v", 200_000))); err == nil {
			kept++
		}
		require.Less(t, kept, int64(1000))
	}
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorIs(t, err, syscall.ENOSPC)
	broken.Store(false)
	require.ErrorIs(t, e.Write(ctx, stageBatch(5000, "late")), engine.ErrUnavailable,
		"what the log holds is unknown: no write may follow")
	require.ErrorIs(t, e.Drop(ctx, engine.Raw, nil), engine.ErrUnavailable)
	_, _, err = e.CompareAndSet(ctx, engine.Store, engine.Key{engine.Text("s")}, engine.Key{engine.Text("i")}, nil, nil)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.Eventually(t, func() bool { return told.Load() == 1 }, waitAtMost, pollEvery)
	require.Contains(t, log.String(),
		"the store can't be written any more, and rejects writes until this process restarts; check the disk, then restart")
	require.GreaterOrEqual(t, stageRows(t, e), int(kept), "reading goes on")
	require.Zero(t, e.DiskUsage())
	require.Error(t, e.CompactAll(ctx))
	require.NoError(t, testutil.CollectAndCompare(e, strings.NewReader(`
		# HELP cassia_pebble_failed Whether the store rejects all writes until the process restarts (1) or not (0).
		# TYPE cassia_pebble_failed gauge
		cassia_pebble_failed 1
	`), "cassia_pebble_failed"))
	left := mem.CrashClone(vfs.CrashCloneCfg{})
	require.ErrorIs(t, e.Close(), ErrUnclosed)
	require.ErrorIs(t, e.Write(ctx, stageBatch(5000, "late")), engine.ErrClosed)

	e = openOn(t, left)
	require.GreaterOrEqual(t, stageRows(t, e), int(kept))
	require.NoError(t, e.Write(ctx, stageBatch(5000, "again")))
	require.NoError(t, e.Close())
}

// TestWritingFailsForMany makes writing fail during many concurrent writes. All callers must return.
func TestWritingFailsForMany(t *testing.T) {
	inChild(t, func() {
		_, osFS, broken := failingFS(func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") })
		e := openOn(t, osFS)
		var writers sync.WaitGroup
		var written atomic.Int64
		for w := range int64(100) {
			writers.Go(func() {
				for i := int64(0); ; i++ {
					err := e.Write(ctx, stageBatch(w<<32|i, strings.Repeat("v", 20_000)))
					if errors.Is(err, engine.ErrUnavailable) {
						return
					}
					if err != nil {
						panic(err)
					}
					broken.Store(written.Add(1) > 500)
				}
			})
		}
		writers.Wait()
		require.Error(t, e.Close())
	})
}

// TestOpenFails makes all writing operations after the first few fail. Open returns their error.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	for i := range soak.Fewer(40) {
		at := int64(i * 40 / soak.Fewer(40))
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			var writes atomic.Int64
			_, osFS := faultyFS(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && writes.Add(1) > at {
					return errorfs.ErrInjected
				}
				return nil
			})
			opts := smallOptions()
			opts.FS = osFS
			inChild(t, func() {
				e, err := Open("data", opts)
				if err == nil {
					require.Greater(t, at, int64(10))
					return
				}
				require.Nil(t, e)
				require.ErrorIs(t, err, errorfs.ErrInjected)
			})
		})
	}
}

// child returns a command that runs this test binary again, for one test in a role.
func child(role, test string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run", "^"+strings.ReplaceAll(test, "/", "$/^")+"$")
	cmd.Env = append(os.Environ(), role+"=1")
	return cmd
}

// TestLockedByAnotherProcess checks that a child process that opens the same directory gets engine.ErrLocked.
func TestLockedByAnotherProcess(t *testing.T) {
	const role = "CASSIA_TEST_LOCK_DIR"
	if dir := os.Getenv(role + "_PATH"); dir != "" {
		_, err := Open(dir, DefaultOptions())
		fmt.Println("child:", errors.Is(err, engine.ErrLocked), err)
		os.Exit(0)
	}
	dir := t.TempDir()
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	cmd := child(role, "TestLockedByAnotherProcess")
	cmd.Env = append(cmd.Env, role+"_PATH="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "child: true")
	require.Contains(t, string(out), dir)
	require.NoError(t, e.Close())
}

// TestFlushFails makes the creation of files fail for a while. The error is counted, the flush is retried, and no row
// is lost.
func TestFlushFails(t *testing.T) {
	var broken atomic.Bool
	_, osFS := faultyFS(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			return errorfs.ErrInjected
		}
		return nil
	})
	e := openOn(t, osFS, func(o *Options) { o.MemTables = 8 })
	broken.Store(true)
	for seq := range int64(10) {
		require.NoError(t, e.Write(ctx, stageBatch(seq, strings.Repeat("v", 200_000))))
	}
	require.Eventually(
		t, func() bool { return testutil.ToFloat64(e.events.backgroundErrors) > 0 }, waitAtMost, pollEvery,
	)
	require.Equal(t, 10, stageRows(t, e))
	broken.Store(false)
	require.NoError(t, e.CompactAll(ctx))
	require.Equal(t, 10, stageRows(t, e))
	require.NoError(t, e.Close())
}

// TestReserve checks that writes are rejected, and deletes accepted, on a disk that is almost full.
func TestReserve(t *testing.T) {
	mem := vfs.NewMem()
	var log strings.Builder
	e := openOn(t, mem, func(o *Options) { o.ReserveBytes, o.Logger = 1000, slog.New(slog.NewTextHandler(&log, nil)) })
	require.NoError(t, e.Write(ctx, stageBatch(1, "v")), "a file system that can't tell")
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1000, TotalBytes: 9000, UsedBytes: 8000})
	require.NoError(t, e.Write(ctx, stageBatch(2, "v")))
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 999, TotalBytes: 9000, UsedBytes: 8001})
	err := e.Write(ctx, stageBatch(3, "v"))
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorContains(t, err, "999 bytes free")
	require.Error(t, e.Write(ctx, stageBatch(3, "v")))
	remove := stageBatch(1, "")
	remove[0].Mutations[0].Op = engine.Delete
	require.NoError(t, e.Write(ctx, remove))
	require.NoError(t, e.Drop(ctx, engine.Raw, nil))
	require.Equal(t, 1, stageRows(t, e))
	require.NoError(t, e.Write(engine.WithMakingRoom(ctx), stageBatch(4, "v")), "it is needed to delete others")
	require.NoError(t, e.Write(ctx, func() []engine.Batch {
		remove[0].Mutations[0].Clustering = stageBatch(4, "")[0].Mutations[0].Clustering
		return remove
	}()))
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 124, TotalBytes: 9000, UsedBytes: 8876})
	require.ErrorIs(t, e.Write(engine.WithMakingRoom(ctx), stageBatch(4, "v")), engine.ErrUnavailable)
	require.ErrorIs(t, e.Checkpoint("copy"), engine.ErrUnavailable, "its record in the log might not be written")
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 125, TotalBytes: 9000, UsedBytes: 8875})
	require.NoError(t, e.Checkpoint("copy"))
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1001, TotalBytes: 9000, UsedBytes: 7999})
	require.NoError(t, e.Write(ctx, stageBatch(3, "v")), "room was made")
	require.NoError(t, e.Close())
	require.Equal(t, 1, strings.Count(
		log.String(), "writes are rejected, because the disk is almost full; free disk space, or shorten the retention",
	), "not a line for each: %s", &log)
	require.Contains(t, log.String(), "disk space is available again; writes are accepted")
	require.Contains(t, log.String(), "refused=3")
}

// TestSlowDisk checks that callers return when their contexts end although the disk doesn't respond.
func TestSlowDisk(t *testing.T) {
	var slow atomic.Bool
	reached, release := make(chan struct{}, 100), make(chan struct{})
	_, osFS := faultyFS(func(op errorfs.Op) error {
		if slow.Load() && op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, ".log") {
			reached <- struct{}{}
			<-release
		}
		return nil
	})
	e := openOn(t, osFS)
	slow.Store(true)
	cancelled, cancel := context.WithCancel(ctx)
	results := make(chan error, 2)
	partition, item := engine.Key{engine.Text("s")}, engine.Key{engine.Text("i")}
	go func() { results <- e.Write(cancelled, stageBatch(1, "v")) }()
	<-reached
	go func() {
		_, _, err := e.CompareAndSet(cancelled, engine.Store, partition, item, nil, []byte("first"))
		results <- err
	}()
	require.Eventually(t, func() bool { return len(e.commits) == 2 }, waitAtMost, pollEvery)
	cancel()
	require.ErrorIs(t, <-results, context.Canceled)
	require.ErrorIs(t, <-results, context.Canceled)

	slow.Store(false)
	close(release)
	// The first call was under way, so the next one must see its row.
	ok, found, err := e.CompareAndSet(ctx, engine.Store, partition, item, nil, []byte("second"))
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, "first", string(found))
	require.Equal(t, 1, stageRows(t, e))
	require.NoError(t, e.Close())
}

// TestDamagedBlock flips a bit in a file. Reading the block is an error, and everything else still works.
func TestDamagedBlock(t *testing.T) {
	mem := vfs.NewMem()
	e := openOn(t, mem)
	partitionOf := func(n int64) engine.Key { return engine.Key{engine.Int(n), engine.Int(0)} }
	for n := range int64(40) {
		b := stageBatch(n, strings.Repeat(fmt.Sprint(n), 3000))
		b[0].Partition = partitionOf(n)
		require.NoError(t, e.Write(ctx, b))
	}
	require.NoError(t, e.CompactAll(ctx))
	require.NoError(t, e.Close())
	damage(t, mem)

	var logged bytes.Buffer
	e = openOn(t, mem, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	damaged := 0
	for n := range int64(40) {
		for _, err := range e.Scan(ctx, engine.Range{Table: engine.Stage, Partition: partitionOf(n)}) {
			if err != nil {
				require.ErrorIs(t, err, engine.ErrCorrupt)
				require.NotContains(t, err.Error(), "\n")
				damaged++
			}
		}
	}
	require.Positive(t, damaged)
	require.Less(t, damaged, 20, "only what lies in the block is gone")
	require.Positive(t, testutil.ToFloat64(e.events.corruptions))
	require.NoError(t, e.Write(ctx, stageBatch(100, "v")))
	require.NoError(t, e.Close())
	require.Contains(t, logged.String(), "checksum mismatch")
	require.NotContains(t, logged.String(), "stack trace")
}

// damage flips a bit near the beginning of the largest file.
func damage(t testing.TB, mem *vfs.MemFS) {
	names, err := mem.List("data")
	require.NoError(t, err)
	largest, size := "", int64(0)
	for _, name := range names {
		info, err := mem.Stat("data/" + name)
		require.NoError(t, err)
		if strings.HasSuffix(name, ".sst") && info.Size() > size {
			largest, size = name, info.Size()
		}
	}
	f, err := mem.OpenReadWrite("data/"+largest, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	one := make([]byte, 1)
	_, err = f.ReadAt(one, 50)
	require.NoError(t, err)
	one[0] ^= 1
	_, err = f.WriteAt(one, 50)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
