package pebble

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/enginetest"
)

// openedReadOnly opens an engine's directory for reading only.
func openedReadOnly(t testing.TB, opts Options, dir string) *Engine {
	opts.ReadOnly = true
	e, err := Open(dir, opts)
	require.NoError(t, err)
	return e
}

// openedBeside opens a directory for reading only while another engine has it open, because no lock prevents it here.
// The other engine may be removing obsolete files, such as logs and options from before it was opened. A file that is
// removed during the open seems to be missing, so the open is retried. Actual damage wouldn't disappear.
func openedBeside(t testing.TB, opts Options, dir string) (e *Engine) {
	opts.ReadOnly = true
	require.Eventually(t, func() (ok bool) {
		var err error
		if e, err = Open(dir, opts); err != nil {
			require.ErrorIs(t, err, engine.ErrCorrupt)
		}
		return err == nil
	}, time.Minute, time.Millisecond)
	return e
}

// readElsewhere writes to one engine, and reads the files just written through other engines that are opened for
// reading only. A file system in memory has no locks between engines.
type readElsewhere struct {
	*Engine
	t    testing.TB
	opts Options

	mu    sync.Mutex
	looks []*Engine
	stale bool // the last of them was opened before a write
}

func (e *readElsewhere) wrote() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stale = !e.closed.Load()
}

func (e *readElsewhere) Write(ctx context.Context, batches []engine.Batch) error {
	defer e.wrote()
	return e.Engine.Write(ctx, batches)
}

func (e *readElsewhere) Drop(ctx context.Context, t *engine.Table, prefix engine.Key) error {
	defer e.wrote()
	return e.Engine.Drop(ctx, t, prefix)
}

func (e *readElsewhere) CompareAndSet(
	ctx context.Context, t *engine.Table, partition, clustering engine.Key, old, value []byte,
) (bool, []byte, error) {
	defer e.wrote()
	return e.Engine.CompareAndSet(ctx, t, partition, clustering, old, value)
}

func (e *readElsewhere) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) { // A scan yields the rows written before its iteration starts.
		e.look().Scan(ctx, r)(yield)
	}
}

func (e *readElsewhere) Partitions(
	ctx context.Context, t *engine.Table, prefix engine.Key, damaged func(engine.Damage),
) iter.Seq2[engine.Key, error] {
	return func(yield func(engine.Key, error) bool) { e.look().Partitions(ctx, t, prefix, damaged)(yield) }
}

// look returns an engine that reads all rows written so far.
func (e *readElsewhere) look() *Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stale || len(e.looks) == 0 {
		e.looks = append(e.looks, openedBeside(e.t, e.opts, "data"))
		e.stale = false
	}
	return e.looks[len(e.looks)-1]
}

// Version implements engine.Versioned. An engine has no versions of rows that another engine writes.
func (e *readElsewhere) Version(*engine.Table, engine.Key) (uint64, bool) { return 0, false }

// Close closes the engines. The last reader stays in place, so that later calls return its error.
func (e *readElsewhere) Close() (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.looks) == 0 {
		e.looks = append(e.looks, openedBeside(e.t, e.opts, "data"))
	}
	e.stale = false
	for _, look := range e.looks {
		err = errors.Join(err, look.Close())
	}
	return errors.Join(e.Engine.Close(), err)
}

// testConformanceOfReading runs the suite with engines whose rows are read through engines opened for reading only.
func testConformanceOfReading(t *testing.T) {
	opts := smallOptions()
	opts.MemTableBytes, opts.IngestBytes = 64<<20, 1<<40 // Compactions would remove files during a read.
	openOn := func(t testing.TB, opts Options) engine.Engine {
		e, err := Open("data", opts)
		require.NoError(t, err)
		return &readElsewhere{Engine: e, t: t, opts: opts}
	}
	enginetest.Run(t,
		func(t testing.TB) engine.Engine {
			opts := opts
			opts.FS = NewCrashableFS()
			return openOn(t, opts)
		},
		enginetest.WithReopen(func(t testing.TB, e engine.Engine) engine.Engine {
			require.NoError(t, e.Close())
			return openOn(t, e.(*readElsewhere).opts)
		}),
		enginetest.Without("DeleteMindsTimestamps", "a delete finds what was written before it: see Engine.Write"),
		enginetest.Without(
			"TakenBackAfterCancel", "what was cancelled may be written while files are opened that it is in",
		),
		enginetest.Without("WriteCancelled", "what was cancelled may be written while files are opened that it is in"))
}

// snapshotOf returns the names, contents and modification times of a directory's files.
func snapshotOf(t testing.TB, dir string) map[string]string {
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%v %v", info.Mode(), info.ModTime())
		if !d.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d %x", len(b), sha256.Sum256(b))
		}
		files[path] = text
		return nil
	}))
	return files
}

// killedDirectory returns the directory of an engine that was killed after some of its rows were flushed. Its log must
// be replayed, and, if torn is set, ends in the middle of a record that wasn't synced.
func killedDirectory(t testing.TB, torn bool) (dir string, rows int) {
	mem := NewCrashableFS()
	e := openOn(t, mem.MemFS)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 40 {
		if i == 20 {
			require.NoError(t, e.db.Flush())
		}
		require.NoError(t, e.Write(ctx, stageBatch(int64(i), string(randomBytes(rng, 10_000)))))
	}
	rows = stageRows(t, e)
	after := mem.Crash(0, rng)
	require.NoError(t, e.Close())
	dir = filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(dir, 0o755))
	ok, err := vfs.Clone(after, vfs.Default, "data", dir)
	require.NoError(t, err)
	require.True(t, ok)
	if torn {
		logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
		require.NoError(t, err)
		f, err := os.OpenFile(logs[len(logs)-1], os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(t, err)
		_, err = f.Write(randomBytes(rng, 5_000))
		require.NoError(t, errors.Join(err, f.Close()))
	}
	return dir, rows
}

// TestLookChangesNothing opens the directory of a killed engine for reading, multiple times concurrently, and finds all
// rows. Afterwards every file is unchanged, and an engine that is opened for writing finds the same rows.
func TestLookChangesNothing(t *testing.T) {
	t.Parallel()
	for _, torn := range []bool{false, true} {
		dir, rows := killedDirectory(t, torn)
		before := snapshotOf(t, dir)
		a, b := openedReadOnly(t, DefaultOptions(), dir), openedReadOnly(t, smallOptions(), dir)
		for _, e := range []*Engine{a, b} {
			require.Equal(t, rows, stageRows(t, e))
			files, _, err := e.VerifyFiles(ctx, func(problem error) { t.Error(problem) })
			require.NoError(t, err)
			require.Positive(t, files)
			require.Positive(t, e.DiskUsage())
		}
		require.NoError(t, a.Close())
		require.Equal(t, rows, stageRows(t, b), "one that is closed doesn't disturb the others")
		require.NoError(t, b.Close())
		require.Equal(t, before, snapshotOf(t, dir))

		e, err := Open(dir, DefaultOptions())
		require.NoError(t, err)
		require.Equal(t, rows, stageRows(t, e))
		require.NoError(t, e.Close())
		require.NotEqual(t, before, snapshotOf(t, dir), "an engine that isn't for reading only writes")
	}
}

// TestLookRefusesWrites checks that all writing methods are rejected by an engine opened for reading only, and by the
// result of engine.ReadOnly.
func TestLookRefusesWrites(t *testing.T) {
	t.Parallel()
	dir, rows := killedDirectory(t, false)
	before := snapshotOf(t, dir)
	e := openedReadOnly(t, DefaultOptions(), dir)
	partition, item := engine.Key{engine.Text("a")}, engine.Key{engine.Text("b")}
	for _, e := range []engine.Engine{e, engine.ReadOnly(e)} {
		require.NoError(t, e.Write(ctx, nil), "nothing is written")
		require.ErrorIs(t, e.Write(ctx, stageBatch(1, "v")), engine.ErrReadOnly)
		require.ErrorIs(t, e.Drop(ctx, engine.Stage, engine.Key{engine.Int(1)}), engine.ErrReadOnly)
		for _, old := range [][]byte{nil, []byte("another")} {
			ok, _, err := e.CompareAndSet(ctx, engine.Store, partition, item, old, []byte("v"))
			require.False(t, ok)
			require.ErrorIs(t, err, engine.ErrReadOnly)
		}
	}
	require.Equal(t, rows, stageRows(t, e))
	require.ErrorIs(t, e.CompactAll(ctx), engine.ErrReadOnly)
	copied := filepath.Join(t.TempDir(), "copy")
	require.ErrorIs(t, e.Checkpoint(copied), engine.ErrReadOnly)
	require.NoDirExists(t, copied)
	require.NoError(t, e.Close())
	require.Equal(t, before, snapshotOf(t, dir))
}

// TestLookedAtFilesAreNotTouched checks that no operation of Pebble changes a directory that is opened for reading
// only.
func TestLookedAtFilesAreNotTouched(t *testing.T) {
	mem := vfs.NewMem()
	const of = vfs.WriteCategoryUnspecified
	f, err := mem.Create("there", of)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	look := readOnlyFS{mem}
	for about, do := range map[string]func() error{
		"create":     func() error { _, err := look.Create("new", of); return err },
		"link":       func() error { return look.Link("there", "new") },
		"open":       func() error { _, err := look.OpenReadWrite("there", of); return err },
		"remove":     func() error { return look.Remove("there") },
		"remove all": func() error { return look.RemoveAll("there") },
		"rename":     func() error { return look.Rename("there", "new") },
		"reuse":      func() error { _, err := look.ReuseForWrite("there", "new", of); return err },
		"mkdir":      func() error { return look.MkdirAll("new", 0o755) },
	} {
		require.ErrorIs(t, do(), engine.ErrReadOnly, about)
	}
	names, err := look.List("")
	require.NoError(t, err)
	require.Equal(t, []string{"there"}, names)
}

// TestLookAndWrite opens a directory twice in one process, for writing and for reading. The second open is rejected,
// and the first engine still works. TestLookingCommands of cmd/internal/e2e tests the locks between processes.
func TestLookAndWrite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	opts := DefaultOptions()
	reading := opts
	reading.ReadOnly = true
	_, err := Open(dir, reading)
	require.ErrorIs(t, err, ErrNoData)
	require.NoDirExists(t, dir)
	e, err := Open(dir, opts)
	require.NoError(t, err)
	_, err = Open(dir, reading)
	require.ErrorIs(t, err, engine.ErrLocked)
	require.NoError(t, e.Write(ctx, stageBatch(1, "v")))
	require.NoError(t, e.Close())
	for range 2 {
		a, b := openedReadOnly(t, opts, dir), openedReadOnly(t, opts, dir)
		require.NoError(t, a.Close())
		_, err = Open(dir, opts)
		require.ErrorIs(t, err, engine.ErrLocked)
		require.Equal(t, 1, stageRows(t, b))
		require.NoError(t, b.Close())
		e, err = Open(dir, opts)
		require.NoError(t, err)
		require.NoError(t, e.Close())
	}
}

// TestLookAtSomethingElse checks that a directory without an engine's data is unchanged, and that unreadable data is
// rejected.
func TestLookAtSomethingElse(t *testing.T) {
	t.Parallel()
	opts := DefaultOptions()
	opts.ReadOnly = true
	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "a"), nil, 0o600))
	for _, dir := range []string{t.TempDir(), foreign} {
		before := snapshotOf(t, dir)
		_, err := Open(dir, opts)
		require.ErrorIs(t, err, ErrNoData)
		require.Equal(t, before, snapshotOf(t, dir))
	}
	_, err := Open(filepath.Join(foreign, "a"), opts)
	require.Error(t, err, "a file")

	for what, damage := range map[string]func(dir string){
		"a shortened log": func(dir string) {
			logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
			require.NoError(t, err)
			require.NoError(t, os.Truncate(logs[len(logs)-1], 0))
		},
		"no manifest": func(dir string) {
			found, err := filepath.Glob(filepath.Join(dir, "*arker.manifest*"))
			require.NoError(t, err)
			manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
			require.NoError(t, err)
			for _, name := range slices.Concat(found, manifests) {
				require.NoError(t, os.Remove(name))
			}
		},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		e, err := Open(dir, DefaultOptions())
		require.NoError(t, err)
		require.NoError(t, e.Write(ctx, stageBatch(1, "v")))
		require.NoError(t, e.Close())
		damage(dir)
		before := snapshotOf(t, dir)
		_, err = Open(dir, opts)
		require.ErrorIs(t, err, engine.ErrCorrupt, what)
		require.ErrorContains(t, err, "cassia restore", what)
		require.Equal(t, before, snapshotOf(t, dir), what)
	}
}

// TestLookAtOlderFiles checks that files of an earlier release of Pebble can be opened for reading only, and aren't
// upgraded, as they are when a server starts.
func TestLookAtOlderFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := DefaultOptions()
	db, err := pebbledb.Open(dir, &pebbledb.Options{
		Merger: newMerger(), FormatMajorVersion: pebbledb.FormatMinSupported,
		Logger: &logger{log: old.Logger, fail: func(error) {}},
	})
	require.NoError(t, err)
	require.NoError(t, db.Set([]byte(formatKey), []byte(formatVersion), pebbledb.Sync))
	require.NoError(t, db.Close())
	require.NoError(t, noteCopy(vfs.Default, dir))
	before := snapshotOf(t, dir)
	e := openedReadOnly(t, old, dir)
	require.Equal(t, pebbledb.FormatMinSupported, e.db.FormatMajorVersion())
	require.Zero(t, stageRows(t, e))
	require.NoError(t, e.Close())
	require.Equal(t, before, snapshotOf(t, dir))
}

// refusingFS is the operating system's file system, as if mounted for reading only.
type refusingFS struct {
	vfs.FS
	t testing.TB
}

var errReadOnlyMount = &fs.PathError{Op: "open", Err: errors.New("read-only file system")}

func (f refusingFS) no(op string) error {
	f.t.Error("asked to", op)
	return errReadOnlyMount
}

func (f refusingFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, f.no("create")
}
func (f refusingFS) Link(string, string) error          { return f.no("link") }
func (f refusingFS) Remove(string) error                { return f.no("remove") }
func (f refusingFS) RemoveAll(string) error             { return f.no("remove") }
func (f refusingFS) Rename(string, string) error        { return f.no("rename") }
func (f refusingFS) MkdirAll(string, os.FileMode) error { return f.no("make directories") }
func (f refusingFS) Lock(string) (io.Closer, error)     { return nil, f.no("lock") }
func (f refusingFS) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, f.no("open to write")
}

func (f refusingFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, f.no("reuse")
}

// TestLookAtReadOnlyMount checks that reading calls no operation of the file system that fails on a read-only mount.
func TestLookAtReadOnlyMount(t *testing.T) {
	t.Parallel()
	dir, rows := killedDirectory(t, true)
	opts := DefaultOptions()
	opts.FS = refusingFS{vfs.Default, t}
	e := openedReadOnly(t, opts, dir)
	require.Equal(t, rows, stageRows(t, e))
	_, _, err := e.VerifyFiles(ctx, func(problem error) { t.Error(problem) })
	require.NoError(t, err)
	require.NoError(t, e.Close())
}
