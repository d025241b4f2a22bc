package pebble

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	for _, path := range []string{dir, dir + "/", link} {
		_, err = Open(path, DefaultOptions())
		require.ErrorIs(t, err, engine.ErrLocked, path)
		require.ErrorContains(t, err, dir)
		require.ErrorContains(t, err, "stop the process that uses it")
	}
	require.NoError(t, e.Write(ctx, stageBatch(1, "v")), "the one that has it isn't disturbed")
	require.NoError(t, e.Close())

	e, err = Open(link, DefaultOptions())
	require.NoError(t, err, "closing gives the lock back")
	require.Equal(t, 1, stageRows(t, e))
	require.NoError(t, e.Close())
}

// TestOpenImpossible checks that the error for a path that can't be opened doesn't blame another process.
func TestOpenImpossible(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(file, DefaultOptions())
	require.Error(t, err)
	require.NotErrorIs(t, err, engine.ErrLocked)
	require.ErrorContains(t, err, file)
}

func TestOpenOtherFormat(t *testing.T) {
	mem := vfs.NewMem()
	e := openOn(t, mem)
	require.NoError(t, e.db.Set([]byte(formatKey), []byte("2"), pebbledb.Sync))
	require.NoError(t, e.Close())
	opts := smallOptions()
	opts.FS = mem
	for range 2 { // The lock was released.
		_, err := Open("data", opts)
		require.ErrorIs(t, err, errBadFormat)
		require.ErrorContains(t, err, `has format "2"; this release supports "1"`)
	}
}

func TestOptionsValidate(t *testing.T) {
	opts := DefaultOptions()
	require.NoError(t, opts.Validate())
	_, err := Open(t.TempDir(), Options{})
	for _, name := range []string{
		"CacheBytes", "MemTableBytes", "MemTables", "MaxOpenFiles", "BlockBytes", "ZstdLevel", "Compactions",
		"DropDelay", "StageDelay", "Logger",
	} {
		require.ErrorContains(t, err, name)
	}
}

// randomBytes returns bytes that can't be compressed.
func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// windowOf returns a partition of table raw in window n.
func windowOf(n int64) engine.Key {
	return engine.Key{engine.Int(n), engine.Int(0), engine.Text("tenant"), engine.Text("metric"), engine.Int(0)}
}

const mega = 1_000_000

// fill writes 2 MB to each of the windows 0 to 2, and 2 MB to slot 1 in 8 partitions.
func fill(t testing.TB, e *Engine) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	for part := range int64(8) {
		for n := range int64(3) {
			b := engine.Batch{Table: engine.Raw, Partition: windowOf(n)}
			for i := range int64(50) {
				b.Mutations = append(b.Mutations, engine.Mutation{Value: randomBytes(rng, 5000),
					Clustering: engine.Key{
						engine.Int(1), engine.Int(0), engine.Text(idOf([]byte{byte(part), byte(i)})),
						engine.Text(idOf(nil)),
					}})
			}
			require.NoError(t, e.Write(ctx, []engine.Batch{b}))
		}
		for seq := range int64(5) {
			b := stageBatch(seq, string(randomBytes(rng, 50_000)))
			b[0].Partition = engine.Key{engine.Int(1), engine.Int(part)}
			require.NoError(t, e.Write(ctx, b))
		}
	}
}

// liveBytes returns the total size of the tree's files.
func liveBytes(e *Engine) (sum int64) {
	for _, l := range e.metrics().Levels {
		sum += l.TablesSize
	}
	return sum
}

// dropAndDelete drops and deletes rows so that 4 MB are left.
func dropAndDelete(t testing.TB, e *Engine) {
	t.Helper()
	require.NoError(t, e.Drop(ctx, engine.Raw, engine.Key{engine.Int(0)}))
	for part := range int64(8) {
		b := stageBatch(0, "")
		b[0].Partition = engine.Key{engine.Int(1), engine.Int(part)}
		b[0].Mutations[0].Op = engine.DeleteRange
		b[0].Mutations[0].To = engine.Key{b[0].Mutations[0].Clustering[0], engine.Int(99)}
		require.NoError(t, e.Write(ctx, b))
	}
}

// TestSpaceComesBack drops a window and deletes a slot's streams, in memtables or in compacted files. Their space must
// be freed without a call of CompactAll, and the other windows must be unchanged.
func TestSpaceComesBack(t *testing.T) {
	for name, compactFirst := range map[string]bool{"below": true, "above": false} {
		t.Run(name, func(t *testing.T) {
			e := openOn(t, NewCrashableFS(), func(o *Options) {
				o.DropDelay, o.StageDelay = 20*time.Millisecond, 20*time.Millisecond
			})
			fill(t, e)
			require.Greater(t, e.DiskUsage(), uint64(7*mega), "less of the log counts while it is exchanged")
			if compactFirst {
				require.NoError(t, e.CompactAll(ctx))
				require.Greater(t, liveBytes(e), int64(7*mega), "what was flushed when it began")
			}
			dropAndDelete(t, e)
			require.Eventually(
				t, func() bool { return liveBytes(e) < 4.5*mega }, waitAtMost, pollEvery, "all but a few kB",
			)
			require.Zero(t, countRows(t, e, engine.Raw, windowOf(0)))
			require.Equal(t, 400, countRows(t, e, engine.Raw, windowOf(1)))
			require.Equal(t, 400, countRows(t, e, engine.Raw, windowOf(2)))
			require.NoError(t, e.Close())
		})
	}
}

// TestSpaceComesBackLater drops and deletes rows in a process that ends before it frees their space. The next process
// frees it.
func TestSpaceComesBackLater(t *testing.T) {
	disk := NewCrashableFS()
	e := openOn(t, disk, func(o *Options) { o.DropDelay = time.Hour })
	fill(t, e)
	require.NoError(t, e.CompactAll(ctx))
	dropAndDelete(t, e)
	require.NoError(t, e.Close())
	e = openOn(t, disk, func(o *Options) { o.DropDelay = 20 * time.Millisecond })
	require.Eventually(t, func() bool { return liveBytes(e) < 4.5*mega }, waitAtMost, pollEvery)
	require.Equal(t, 400, countRows(t, e, engine.Raw, windowOf(1)))
	require.NoError(t, e.Close())
}

func TestReclaimerIsBounded(t *testing.T) {
	r := &reclaimer{prefixes: map[string]struct{}{}, wake: make(chan struct{}, 1)}
	for n := range int64(10 * maxReclaims) {
		r.recordDeleted(appendPartition(nil, engine.Stage, engine.Key{engine.Int(n)}))
		r.recordDeleted(appendPartition(nil, engine.Raw, engine.Key{engine.Int(n % 3)}))
		require.LessOrEqual(t, len(r.prefixes), maxReclaims+1)
	}
	ranges := r.takeDeleted()
	require.Len(t, ranges, 2, "whole tables")
	require.Empty(t, r.takeDeleted())
}

func TestCheckpoint(t *testing.T) {
	dir, copyDir := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	require.NoError(t, e.Write(ctx, stageBatch(1, "v")))
	require.NoError(t, e.Checkpoint(copyDir))
	require.NoError(t, e.Write(ctx, stageBatch(2, "v")))
	other, err := Open(copyDir, DefaultOptions())
	require.NoError(t, err)
	require.Equal(t, 2, stageRows(t, e))
	require.Equal(t, 1, stageRows(t, other))
	require.NoError(t, other.Close())
	require.Error(t, e.Checkpoint(copyDir), "it exists")
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.Checkpoint(copyDir+"2"), engine.ErrClosed)
	require.ErrorIs(t, e.CompactAll(ctx), engine.ErrClosed)
	require.Zero(t, e.DiskUsage())
}

func TestMetrics(t *testing.T) {
	e := openOn(t, NewCrashableFS())
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(e))
	require.NoError(t, e.Write(ctx, stageBatch(1, strings.Repeat("v", 1000))))
	require.NoError(t, e.CompactAll(ctx))
	require.Equal(t, 1, stageRows(t, e))
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		require.True(t, strings.HasPrefix(f.GetName(), "cassia_pebble_"), f.GetName())
		require.NotEmpty(t, f.GetHelp())
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket()[:min(1, len(m.GetHistogram().GetBucket()))] {
				require.Less(t, b.GetUpperBound(), 1.0, "%s is in seconds", f.GetName())
			}
			values[f.GetName()] += m.GetGauge().GetValue() + m.GetCounter().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	for _, name := range []string{
		"disk_bytes", "flushes_total", "memtable_bytes", "wal_written_bytes_total", "wal_fsync_seconds",
		"block_cache_bytes", "block_cache_misses_total", "level_bytes", "level_files", "level_written_bytes_total",
		"table_bytes",
	} {
		require.Positive(t, values["cassia_pebble_"+name], name)
	}
	for _, name := range []string{
		"write_stalls_total", "corruptions_total", "compactions_total", "block_cache_hits_total", "wal_bytes",
	} {
		require.Contains(t, values, "cassia_pebble_"+name)
	}
	require.NoError(t, e.Close())
	families, err = registry.Gather()
	require.NoError(t, err)
	require.Empty(t, families, "a closed engine has nothing to tell")
}

func TestUsage(t *testing.T) {
	e := openOn(t, NewCrashableFS())
	fill(t, e)
	require.NoError(t, e.CompactAll(ctx))
	raw, err := e.Usage(ctx, engine.Raw, nil)
	require.NoError(t, err)
	stage, err := e.Usage(ctx, engine.Stage, nil)
	require.NoError(t, err)
	require.Greater(t, raw, uint64(2*mega))
	require.Greater(t, stage, uint64(2*mega))
	require.InDelta(t, liveBytes(e), float64(raw+stage), mega/10, "together they are nearly all there is")
	windows := uint64(0)
	for n := range int64(3) {
		one, err := e.Usage(ctx, engine.Raw, windowOf(n))
		require.NoError(t, err)
		require.Greater(t, one, uint64(mega))
		windows += one
	}
	require.InDelta(t, float64(raw), float64(windows), mega/10, "windows are what a table consists of")
	none, err := e.Usage(ctx, engine.R1h, nil)
	require.NoError(t, err)
	require.Zero(t, none)
	require.NoError(t, e.Write(ctx, []engine.Batch{{
		Table:     engine.R1h,
		Partition: engine.Key{engine.Int(1), engine.Int(0), engine.Text("t"), engine.Text("m"), engine.Int(0)},
		Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Int(0), engine.Text("0123456789abcdef"), engine.Int(0)}, Timestamp: 1,
			Value: []byte("value"),
		}},
	}}))
	require.NoError(t, e.CompactAll(ctx))
	few, err := e.Usage(ctx, engine.R1h, nil)
	require.NoError(t, err)
	require.Positive(t, few)
	require.Less(t, few, uint64(200), "a row counts its bytes, not the block that it is in")
	require.NoError(t, e.Close())
	_, err = e.Usage(ctx, engine.Raw, nil)
	require.ErrorIs(t, err, engine.ErrClosed)
}
