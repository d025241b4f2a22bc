package pebble

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

var sealedPartition = engine.Key{engine.Int(1), engine.Int(0), engine.Text("t"), engine.Text("m"), engine.Int(0)}

// sealedRows returns n rows of a raw window and n rows of a window of rollups. Their values identify the write by its
// timestamp.
func sealedRows(n int, timestamp int64) []engine.Batch {
	raw := engine.Batch{Table: engine.Raw, Partition: sealedPartition}
	fine := engine.Batch{Table: engine.R5m, Partition: sealedPartition}
	for i := range n {
		id := engine.Text(fmt.Sprintf("%016d", n-i))
		m := engine.Mutation{Timestamp: timestamp, Value: []byte(strings.Repeat(fmt.Sprint(timestamp%10), 100))}
		m.Clustering = engine.Key{engine.Int(1), engine.Int(7), id, engine.Text(idOf(nil))}
		raw.Mutations = append(raw.Mutations, m)
		m.Clustering = engine.Key{engine.Int(1), id, engine.Int(7)}
		fine.Mutations = append(fine.Mutations, m)
	}
	return []engine.Batch{raw, fine}
}

// requireSealed requires that a reader finds either all rows of a write or none, and returns their number.
func requireSealed(t testing.TB, e *Engine, table *engine.Table, timestamp int64) (n int) {
	t.Helper()
	for row, err := range e.Scan(ctx, engine.Range{Table: table, Partition: sealedPartition}) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(timestamp%10), string(row.Value[:1]))
		n++
	}
	return n
}

// leftovers returns the files that an ingester has created and not ingested.
func leftovers(t testing.TB, fs vfs.FS) (left []string) {
	t.Helper()
	names, err := fs.List("data")
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasPrefix(name, ingestPrefix) {
			left = append(left, name)
		}
	}
	return left
}

// TestSealedRowsAreFiles writes many sealed rows and other rows together, some of them twice. When Write returns, the
// sealed rows are in sorted files and the others in the log.
func TestSealedRowsAreFiles(t *testing.T) {
	disk := NewCrashableFS()
	e := openOn(t, disk, func(o *Options) { o.IngestBytes = 50_000 })
	before := e.metrics()
	require.NoError(t, e.Write(ctx, append(stageBatch(1, "v"), sealedRows(1000, 2)...)))
	after := e.metrics()
	require.Less(t, after.WAL.BytesWritten-before.WAL.BytesWritten, uint64(1000))
	require.Equal(t, int64(2), after.Levels[6].TablesCount, "a file a table, in the last level")
	require.Equal(t, 1, stageRows(t, e))

	require.NoError(t, e.Write(ctx, sealedRows(10, 3)), "few rows go through the log")
	require.Equal(t, int64(2), e.metrics().Total().TablesCount)
	require.NoError(t, e.Write(ctx, sealedRows(1000, 3)), "what is in memory is older")
	require.Equal(t, 1000, requireSealed(t, e, engine.Raw, 3))
	require.NoError(t, e.Write(ctx, append(sealedRows(1000, 5), sealedRows(1000, 4)...)))
	require.Equal(t, 1000, requireSealed(t, e, engine.Raw, 4), "the last one written")
	require.Equal(t, 1000, requireSealed(t, e, engine.R5m, 5), "the greatest")
	require.Empty(t, leftovers(t, disk))

	left := disk.Crash(0, rand.New(rand.NewPCG(1, 1)))
	require.NoError(t, e.Close())
	e = openOn(t, left)
	require.Equal(t, 1000, requireSealed(t, e, engine.Raw, 4), "the power was cut")
	require.Equal(t, 1000, requireSealed(t, e, engine.R5m, 5))
	require.NoError(t, e.CompactAll(ctx))
	require.Equal(t, 1000, requireSealed(t, e, engine.Raw, 4))
	require.Equal(t, 1000, requireSealed(t, e, engine.R5m, 5))
	require.NoError(t, e.Close())
}

// TestFilesEndAtLargeRuns writes labels of new series that sort between the labels and the chunks of earlier series. No
// files overlap.
func TestFilesEndAtLargeRuns(t *testing.T) {
	e := openOn(t, NewCrashableFS())
	for piece := range 3 {
		b := engine.Batch{Table: engine.Raw, Partition: sealedPartition}
		for i := range 3000 {
			for kind := range int64(2) {
				b.Mutations = append(b.Mutations, engine.Mutation{
					Clustering: engine.Key{
						engine.Int(kind), engine.Int(7), engine.Text(fmt.Sprintf("%016d", piece*3000+i)),
						engine.Text(idOf(nil)),
					},
					Value: []byte(strings.Repeat("v", 100)),
				})
			}
		}
		require.NoError(t, e.Write(ctx, []engine.Batch{b}))
	}
	m := e.metrics()
	require.Equal(t, int64(6), m.Levels[6].TablesCount)
	require.Equal(t, int64(6), m.Total().TablesCount)
	require.Equal(t, 18_000, countRows(t, e, engine.Raw, sealedPartition))
	require.NoError(t, e.Close())
}

// TestIngestFails makes each step of writing sorted files fail: the write fails without effect, no files are left, and
// the next write succeeds.
func TestIngestFails(t *testing.T) {
	for name, match := range map[string]func(errorfs.Op) bool{
		"create": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpCreate && strings.Contains(op.Path, ingestPrefix)
		},
		"write": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, ingestPrefix)
		},
		"sync": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileSync && strings.Contains(op.Path, ingestPrefix)
		},
		"link": func(op errorfs.Op) bool { return op.Kind == errorfs.OpLink },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mem, osFS, broken := failingFS(match)
			e := openOn(t, osFS)
			require.NoError(t, e.Write(ctx, sealedRows(100, 1)))
			broken.Store(true)
			err := e.Write(ctx, sealedRows(1000, 2))
			if name == "link" { // Pebble copies files that can't be linked.
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, engine.ErrUnavailable)
				require.Equal(t, 100, requireSealed(t, e, engine.Raw, 1))
				require.Equal(t, 100, requireSealed(t, e, engine.R5m, 1))
			}
			broken.Store(false)
			require.Empty(t, leftovers(t, mem))
			require.NoError(t, e.Write(ctx, sealedRows(1000, 3)))
			require.Equal(t, 1000, requireSealed(t, e, engine.Raw, 3))
			require.NoError(t, e.Close())
		})
	}
}

// TestBegunFilesAreRemoved checks that Open removes incomplete files of a killed process.
func TestBegunFilesAreRemoved(t *testing.T) {
	disk := NewCrashableFS()
	require.NoError(t, openOn(t, disk).Close())
	f, err := disk.Create("data/"+ingestPrefix+"000007.dbtmp", vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NotEmpty(t, leftovers(t, disk))
	e := openOn(t, disk)
	require.Empty(t, leftovers(t, disk))
	require.NoError(t, e.Write(ctx, sealedRows(100, 1)))
	require.Equal(t, 100, requireSealed(t, e, engine.Raw, 1))
	require.NoError(t, e.Close())
}
