package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestPowerCutWhileCreating cuts the power before each operation of the file system while an engine is created, gets
// its first row, and is opened again. The next start succeeds, and every acknowledged row exists.
func TestPowerCutWhileCreating(t *testing.T) {
	t.Parallel()
	type cut struct {
		disk *CrashableFS
		op   string
		rows int64
	}
	var (
		mu           sync.Mutex
		cuts         []cut
		acknowledged atomic.Int64
	)
	disk, rng := NewCrashableFS(), rand.New(rand.NewPCG(5, 5))
	watched := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for _, unsynced := range []int{0, 50, 100} {
			rows := acknowledged.Load()
			cuts = append(cuts, cut{
				disk.Crash(unsynced, rng), fmt.Sprintf("operation %d of %s", op.Kind, op.Path), rows,
			})
		}
		return nil
	}))
	for range 2 {
		e := openOn(t, watched)
		require.NoError(t, e.Write(ctx, stageBatch(acknowledged.Load(), "v")))
		acknowledged.Add(1)
		require.NoError(t, e.Close())
	}
	mu.Lock()
	defer mu.Unlock()
	require.Greater(t, len(cuts), 100)
	created := 0
	for _, c := range cuts {
		if _, err := c.disk.Stat("data/" + creatingName); err == nil {
			created++
		}
		opts := smallOptions()
		opts.FS = c.disk
		e, err := Open("data", opts)
		require.NoError(t, err, c.op)
		require.GreaterOrEqual(t, int64(stageRows(t, e)), c.rows, c.op)
		require.NoError(t, e.Write(ctx, stageBatch(100, "v")), c.op)
		require.NoError(t, e.Close(), c.op)
		e = openOn(t, c.disk)
		require.GreaterOrEqual(t, int64(stageRows(t, e)), c.rows+1, c.op)
		require.NoError(t, e.Close(), c.op)
	}
	require.Greater(t, created, 30, "the power was cut while the engine was made")
}

// TestFullDiskWhileCreating checks that an engine that couldn't be created on a full disk is created once space is
// free.
func TestFullDiskWhileCreating(t *testing.T) { inChild(t, func() { testFullDiskWhileCreating(t) }) }

func testFullDiskWhileCreating(t *testing.T) {
	for failing := range 60 {
		var n int
		disk, osFS := faultyFS(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpRemove ||
				op.Kind == errorfs.OpFileClose {
				return nil
			}
			if n++; n <= failing {
				return nil
			}
			return &os.PathError{Op: "write", Path: op.Path, Err: errors.New("no space")}
		})
		opts := smallOptions()
		opts.FS = osFS
		e, err := Open("data", opts)
		if err == nil {
			break // The creation has no more operations.
		}
		require.Nil(t, e)
		// Copy the files as for another process, because this process may not have closed them.
		next := vfs.NewMem()
		_, err = vfs.Clone(disk, next, "data", "data")
		require.True(t, err == nil || errors.Is(err, fs.ErrNotExist))
		e = openOn(t, next)
		require.NoError(t, e.Write(ctx, stageBatch(0, "v")))
		require.NoError(t, e.Close())
	}
}

// withHeader returns a function that changes the header of a directory's SYNCED.
func withHeader(change func(*ledgerHeader)) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		l, problems := readNote(vfs.Default, dir)
		require.Empty(t, problems)
		change(&l.header)
		require.NoError(t, noteCopyOf(vfs.Default, dir, l.header))
	}
}

// withFile returns a function that adds an empty file to a directory.
func withFile(name string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
}

// TestRefusalsChangeNothing makes Open reject a directory with a store and its logs for every possible reason. No byte
// and no file's time may change.
func TestRefusalsChangeNothing(t *testing.T) {
	t.Parallel()
	removeAll := func(t *testing.T, dir string) {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	errNotAdmitted := errors.New("not admitted")
	for what, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		is      error
		says    string
	}{
		"a newer SYNCED":          {withHeader(func(h *ledgerHeader) { h.Version++ }), errBadFormat, "Use the release of Cassia that wrote it"},
		"a newer format":          {withHeader(func(h *ledgerHeader) { h.Format = "2" }), errBadFormat, "Use the release of Cassia that wrote it"},
		"a store of a newer form": {withHeader(func(h *ledgerHeader) { h.Store = []byte(`{"format":99}`) }), errNotAdmitted, ""},
		"a newer Pebble":          {withFile("marker.format-version.000099.999"), errBadFormat, "use the release of Cassia that wrote it"},
		"a restore":               {withFile(restoring + "/x"), errUnfinishedRestore, "restore again"},
		"a Prometheus":            {withFile("wal/00000000"), errForeign, "wal, which belongs to Prometheus"},
		"a Prometheus alone": {func(t *testing.T, dir string) {
			removeAll(t, dir)
			withFile("01JD0000000000000000000000/meta.json")(t, dir)
		}, errForeign, "01JD0000000000000000000000"},
		"a backup": {withFile(backupList), errIsBackup, "cassia restore --from="},
		"backups": {func(t *testing.T, dir string) {
			removeAll(t, dir)
			withFile("20261122T103000Z-1f/"+backupList)(t, dir)
		}, errIsBackup, "is a backup folder (created by cassia backup); restore a backup: cassia restore --from="},
		"snapshots alone": {func(t *testing.T, dir string) {
			removeAll(t, dir)
			withFile("snapshots/x/000001.log")(t, dir)
		}, engine.ErrCorrupt, "snapshots/x"},
		"another's Pebble": {func(t *testing.T, dir string) {
			removeAll(t, dir)
			db, err := pebbledb.Open(dir, &pebbledb.Options{Logger: &logger{log: DefaultOptions().Logger}})
			require.NoError(t, err)
			require.NoError(t, db.Close())
		}, errForeign, "belongs to another program; choose the directory of a store, or an empty one for a new store"},
		"a missing table": {func(t *testing.T, dir string) {
			tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
			require.NoError(t, err)
			require.NoError(t, os.Remove(tables[0]))
		}, engine.ErrCorrupt, "cassia restore --damaged"},
		"a missing marker": {func(t *testing.T, dir string) {
			markers, err := filepath.Glob(filepath.Join(dir, "marker.manifest.*"))
			require.NoError(t, err)
			require.NoError(t, os.Remove(markers[0]))
		}, engine.ErrCorrupt, "cassia restore --damaged"},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			dir, _ := killedDirectory(t, false)
			c.prepare(t, dir)
			before := snapshotOf(t, dir)
			opts := DefaultOptions()
			opts.Admit = func(text []byte) error {
				require.NotEmpty(t, text)
				return errNotAdmitted
			}
			_, err := Open(dir, opts)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			after := snapshotOf(t, dir)
			for _, files := range []map[string]string{before, after} { // Locking an existing file changes its time.
				require.Contains(t, files, dir)
				if lock := filepath.Join(dir, lockName); files[lock] != "" {
					files[lock] = "a file"
				}
			}
			require.Equal(t, before, after)
		})
	}
	t.Run("locked", func(t *testing.T) {
		dir, rows := killedDirectory(t, false)
		opts := DefaultOptions()
		opts.ReadOnly = true
		require.NoError(t, os.WriteFile(filepath.Join(dir, lockName), nil, 0o600))
		reader, err := Open(dir, opts)
		require.NoError(t, err)
		before := snapshotOf(t, dir)
		_, err = Open(dir, DefaultOptions())
		require.ErrorIs(t, err, engine.ErrLocked)
		require.Equal(t, before, snapshotOf(t, dir))
		require.Equal(t, rows, stageRows(t, reader))
		require.NoError(t, reader.Close())
	})
	t.Run("nothing", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "none")
		opts := DefaultOptions()
		opts.MustExist = true
		_, err := Open(dir, opts)
		require.ErrorIs(t, err, ErrNoData)
		_, err = os.Stat(dir)
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

// TestSnapshotIsNoStore checks that a snapshot of a store can't be opened for writing, because it must not change. It
// can be opened for reading, and a copy of it can be written to.
func TestSnapshotIsNoStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	require.NoError(t, e.Write(ctx, stageBatch(0, "v")))
	made := filepath.Join(dir, snapshotsFolder, "a")
	require.NoError(t, e.Checkpoint(made))
	require.NoError(t, e.Close())
	before := snapshotOf(t, made)
	_, err = Open(made, DefaultOptions())
	require.ErrorIs(t, err, errIsBackup)
	require.ErrorContains(t, err, "is a snapshot of the store in "+dir)
	_, err = Repair(ctx, noSpares, made, false)
	require.ErrorIs(t, err, errIsBackup)
	require.ErrorIs(t, CheckStore(made), errIsBackup)
	reader := openedReadOnly(t, DefaultOptions(), made)
	require.Equal(t, 1, stageRows(t, reader))
	require.NoError(t, reader.Close())
	require.Equal(t, before, snapshotOf(t, made))
	for _, copied := range []string{
		filepath.Join(t.TempDir(), "copy"), filepath.Join(t.TempDir(), snapshotsFolder, "a"),
	} {
		require.NoError(t, os.CopyFS(copied, os.DirFS(made)))
		e, err := Open(copied, DefaultOptions())
		require.NoError(t, err)
		require.Equal(t, 1, stageRows(t, e))
		require.NoError(t, e.Close())
	}
}

// TestUnfinishedBackupIsNoStore checks that a backup whose process was killed can't be opened.
func TestUnfinishedBackupIsNoStore(t *testing.T) {
	t.Parallel()
	from, _ := killedDirectory(t, false)
	dir := filepath.Join(filepath.Dir(from), "20261122T103000Z-1f"+partialSuffix)
	require.NoError(t, os.Rename(from, dir))
	require.NoError(t, os.Remove(filepath.Join(dir, lockName))) // A backup has no lock file.
	before := snapshotOf(t, dir)
	_, err := Open(dir, DefaultOptions())
	require.ErrorIs(t, err, errIsBackup)
	require.Equal(t, before, snapshotOf(t, dir))
}

// TestStoreThatLostFilesIsNoFolderOfBackups removes the marker by which Pebble recognizes a database. The directory is
// still rejected as a folder for backups.
func TestStoreThatLostFilesIsNoFolderOfBackups(t *testing.T) {
	dir := t.TempDir()
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.ErrorContains(t, CheckBackupFolder(dir), "contains a store")
	markers, err := filepath.Glob(filepath.Join(dir, "marker.manifest.*"))
	require.NoError(t, err)
	require.NotEmpty(t, markers)
	for _, marker := range markers {
		require.NoError(t, os.Remove(marker))
	}
	require.ErrorContains(t, CheckBackupFolder(dir), "contains a store")
	require.ErrorIs(t, CheckStore(dir), engine.ErrCorrupt)
}
