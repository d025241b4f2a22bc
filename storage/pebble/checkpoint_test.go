package pebble

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// sealStaged writes sealed rows (see sealedRows), which are ingested, and then deletes the staged rows 1 to n, as a
// seal does.
func sealStaged(e *Engine, n int) error {
	if err := e.Write(ctx, sealedRows(n, 2)); err != nil {
		return err
	}
	batch := stageBatch(0, "")
	m := &batch[0].Mutations[0]
	m.Op, m.Value, m.To = engine.DeleteRange, nil, engine.Key{m.Clustering[0], engine.Int(int64(n))}
	return e.Write(ctx, batch)
}

// TestCheckpointIsOneMoment stops a checkpoint at each of its first operations of one kind, and seals concurrently. The
// copy must have the staged rows, which were acknowledged before, although Pebble copies some files later.
func TestCheckpointIsOneMoment(t *testing.T) {
	const rows = 1000
	for _, at := range []struct {
		name string
		kind errorfs.OpKind
		path string // a part of the operation's path
	}{
		{"directory", errorfs.OpMkdirAll, "copy"},
		{"options", errorfs.OpCreate, "copy/OPTIONS-"},
		{"tables", errorfs.OpLink, ".sst"},
		{"manifest", errorfs.OpCreate, "copy/MANIFEST-"},
		{"log", errorfs.OpCreate, ".log"},
	} {
		for _, then := range []string{"", "flush", "compact"} {
			t.Run(at.name+" "+then, func(t *testing.T) {
				t.Parallel()
				var e *Engine
				var sealed error
				var armed atomic.Bool
				_, osFS := faultyFS(func(op errorfs.Op) error {
					if op.Kind != at.kind || !strings.Contains(op.Path, at.path) || !armed.CompareAndSwap(true, false) {
						return nil
					}
					if sealed = sealStaged(e, rows); sealed == nil && then == "flush" {
						sealed = e.db.Flush()
					} else if sealed == nil && then == "compact" {
						sealed = e.CompactAll(ctx)
					}
					return nil
				})
				e = openOn(t, osFS, func(o *Options) { o.IngestBytes = 50_000 })
				for i := range int64(rows) {
					require.NoError(t, e.Write(ctx, stageBatch(i+1, "v")))
					if i == rows/2 {
						require.NoError(t, e.db.Flush())
					}
				}
				armed.Store(true)
				require.NoError(t, e.Checkpoint("copy"))
				require.False(t, armed.Load(), "the checkpoint has no such operation")
				require.NoError(t, sealed)
				require.Equal(t, 0, stageRows(t, e))
				require.Equal(t, rows, requireSealed(t, e, engine.Raw, 2))
				require.NoError(t, e.Close())

				copied := reopen(t, osFS, "copy")
				require.Equal(t, fmt.Sprint(rows, " staged, 0 sealed"),
					fmt.Sprint(stageRows(t, copied), " staged, ", requireSealed(t, copied, engine.Raw, 2), " sealed"))
				require.NoError(t, copied.Close())
			})
		}
	}
}

// TestChangesWaitForTheListOfTables stops a checkpoint when Pebble has its list of tables but the lengths of the logs
// aren't recorded yet. A seal at this moment, if it weren't blocked, would lose both the staged rows and the ingested
// tables in the copy.
func TestChangesWaitForTheListOfTables(t *testing.T) {
	t.Parallel()
	const rows = 1000
	var e *Engine
	var sealed error
	var armed atomic.Bool
	_, osFS := faultyFS(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpStat && op.Path == "copies" && armed.CompareAndSwap(true, false) &&
			e.changes.TryRLock() {
			e.changes.RUnlock()
			sealed = sealStaged(e, rows)
		}
		return nil
	})
	e = openOn(t, osFS, func(o *Options) { o.IngestBytes = 50_000 })
	for i := range int64(rows) {
		require.NoError(t, e.Write(ctx, stageBatch(i+1, "v")))
	}
	armed.Store(true)
	require.NoError(t, e.Checkpoint("copies/one"))
	require.False(t, armed.Load(), "Pebble looks for the parent directory after it has the list")
	require.NoError(t, sealed)
	require.NoError(t, e.Close())

	copied := reopen(t, osFS, "copies/one")
	require.Equal(t, rows, stageRows(t, copied))
	require.NoError(t, copied.Close())
}

// TestCheckpointAfterAnInterruptedStart makes a checkpoint of an engine whose last start was interrupted after it wrote
// its manifest and before it wrote its log. Pebble then continues that manifest, and Pebble's own checkpoint would copy
// none of it.
func TestCheckpointAfterAnInterruptedStart(t *testing.T) {
	var armed, marked atomic.Bool
	var mem, killed *vfs.MemFS
	var osFS FS
	mem, osFS = faultyFS(func(op errorfs.Op) error {
		switch {
		case !armed.Load():
		case op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "marker.manifest"):
			marked.Store(true)
		case op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".log") && marked.Load() && killed == nil:
			killed = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
		}
		return nil
	})
	e := openOn(t, osFS)
	require.NoError(t, e.Write(ctx, stageBatch(1, "v")))
	require.NoError(t, e.Close())
	armed.Store(true)
	e = openOn(t, osFS)
	require.NotNil(t, killed)
	require.NoError(t, e.Close())

	e = openOn(t, killed)
	require.NoError(t, e.Checkpoint("copy"))
	require.NoError(t, e.Close())
	copied := reopen(t, killed, "copy")
	require.Equal(t, 1, stageRows(t, copied))
	require.NoError(t, copied.Close())
}

func reopen(t testing.TB, osFS FS, dir string) *Engine {
	t.Helper()
	opts := smallOptions()
	opts.FS = osFS
	e, err := Open(dir, opts)
	require.NoError(t, err)
	return e
}

// TestCheckpointOnAFullDisk fills the disk for each kind of file of a copy in turn. The checkpoint fails, leaves no
// files, and writes to the engine still succeed.
func TestCheckpointOnAFullDisk(t *testing.T) {
	for _, file := range []string{"OPTIONS-", "marker.", "MANIFEST-", ".log"} {
		_, osFS, broken := failingFS(func(op errorfs.Op) bool {
			return strings.Contains(op.Path, "copy/") && strings.Contains(op.Path, file) &&
				op.Kind != errorfs.OpRemoveAll
		})
		e := openOn(t, osFS)
		require.NoError(t, e.Write(ctx, stageBatch(1, "v")))
		broken.Store(true)
		require.ErrorIs(t, e.Checkpoint("copy"), engine.ErrUnavailable, file)
		_, err := osFS.Stat("copy")
		require.ErrorIs(t, err, fs.ErrNotExist, file)
		broken.Store(false)
		require.NoError(t, e.Write(ctx, stageBatch(2, "v")), file)
		require.NoError(t, e.Checkpoint("copy"), file)
		require.NoError(t, e.Close())
		copied := reopen(t, osFS, "copy")
		require.Equal(t, 2, stageRows(t, copied))
		require.NoError(t, copied.Close())
	}
}
