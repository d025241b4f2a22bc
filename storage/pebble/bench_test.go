package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

func openBench(b *testing.B) *Engine {
	b.Helper()
	e, err := Open(b.TempDir(), DefaultOptions())
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	return e
}

// BenchmarkWrite writes staged blobs of 1 or 16 partitions per Write, which is synced.
func BenchmarkWrite(b *testing.B) {
	for _, rows := range []int{1, 16} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			e := openBench(b)
			value := string(randomBytes(rand.New(rand.NewPCG(1, 1)), 8<<10))
			var batches []engine.Batch
			for i := range rows {
				batch := stageBatch(0, value)[0]
				batch.Partition = engine.Key{engine.Int(1), engine.Int(int64(i))}
				batches = append(batches, batch)
			}
			b.SetBytes(int64(rows * len(value)))
			b.ReportAllocs()
			for seq := int64(0); b.Loop(); seq++ {
				for i := range batches {
					batches[i].Mutations[0].Clustering[1] = engine.Int(seq)
				}
				require.NoError(b, e.Write(ctx, batches))
			}
		})
	}
}

// chunkLike returns a value that compresses to about half, as chunks do: a part that all values share, and noise.
func chunkLike(rng *rand.Rand, n int) []byte {
	value := randomBytes(rng, n)
	for i := range n / 2 {
		value[i] = byte(i)
	}
	return value
}

// seriesID returns an id per n, distributed like hashes.
func seriesID(n int) string {
	id := make([]byte, engine.IDLen)
	binary.BigEndian.PutUint64(id, uint64(n)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return string(id)
}

// fillPartition writes rows of size bytes, one per series, and compacts them.
func fillPartition(b *testing.B, e *Engine, rows, size int) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	batch := engine.Batch{Table: engine.Raw, Partition: windowOf(20_000)}
	written := 0
	for n := range rows {
		batch.Mutations = append(batch.Mutations, engine.Mutation{Value: chunkLike(rng, size),
			Clustering: engine.Key{
				engine.Int(1), engine.Int(1_700_000_000_000), engine.Text(seriesID(n)), engine.Text(seriesID(n)),
			}})
		if written += size + 100; written > engine.MaxBatch/2 || n == rows-1 {
			require.NoError(b, e.Write(ctx, []engine.Batch{batch}))
			batch.Mutations, written = nil, 0
		}
	}
	require.NoError(b, e.CompactAll(context.Background()))
}

// BenchmarkScan reads 10,000 rows of 300 bytes from the block cache per operation.
func BenchmarkScan(b *testing.B) {
	e := openBench(b)
	fillPartition(b, e, 10_000, 300)
	for _, keysOnly := range []bool{false, true} {
		b.Run(fmt.Sprintf("keysOnly=%v", keysOnly), func(b *testing.B) {
			b.SetBytes(10_000 * 300)
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for _, err := range e.Scan(ctx, engine.Range{
					Table: engine.Raw, Partition: windowOf(20_000), KeysOnly: keysOnly,
				}) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				require.Equal(b, 10_000, n)
			}
		})
	}
}

// BenchmarkSlice reads single series of a partition of 20,000 rows: from the block cache, or, with a block cache that
// is too small, from the operating system's page cache.
func BenchmarkSlice(b *testing.B) {
	for name, change := range map[string]func(*Options){
		"cached":   func(*Options) {},
		"uncached": func(o *Options) { o.CacheBytes = 1 << 20 },
	} {
		b.Run(name, func(b *testing.B) {
			opts := DefaultOptions()
			change(&opts)
			e, err := Open(b.TempDir(), opts)
			require.NoError(b, err)
			fillPartition(b, e, 20_000, 300)
			rng := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			for b.Loop() {
				id := engine.Text(seriesID(rng.IntN(20_000)))
				key := engine.Key{engine.Int(1), engine.Int(1_700_000_000_000), id}
				n := 0
				for _, err := range e.Scan(ctx, engine.Range{
					Table: engine.Raw, Partition: windowOf(20_000), From: key, To: key,
				}) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				require.Equal(b, 1, n)
			}
			b.ReportMetric(float64(liveBytes(e))/20_000, "disk-B/row")
			require.NoError(b, e.Close())
		})
	}
}

// BenchmarkGiveBack deletes one of three slots of the staging log, 64 MiB each, and frees its space by excising it or
// by compacting its range. It reports CPU time, and the bytes of sorted files before and after.
func BenchmarkGiveBack(b *testing.B) {
	for _, how := range []string{"excise", "compact"} {
		b.Run(how, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				opts := DefaultOptions()
				opts.StageDelay, opts.DropDelay = time.Hour, time.Hour // The benchmark frees the space itself.
				e, err := Open(b.TempDir(), opts)
				require.NoError(b, err)
				for seq := range int64(512) {
					var batches []engine.Batch
					for slot := range int64(3) {
						for part := range int64(16) {
							batch := stageBatch(seq, string(chunkLike(rng, 8<<10)))[0]
							batch.Partition = slotPartition(slot, part)
							batches = append(batches, batch)
						}
					}
					require.NoError(b, e.Write(ctx, batches))
				}
				require.NoError(b, e.db.Flush())
				for part := range int64(16) {
					batch := stageBatch(0, "")[0]
					batch.Partition = slotPartition(0, part)
					batch.Mutations[0].Op = engine.DeleteRange
					batch.Mutations[0].To = engine.Key{batch.Mutations[0].Clustering[0], engine.Int(1 << 20)}
					require.NoError(b, e.Write(ctx, []engine.Batch{batch}))
				}
				before, begin := liveBytes(e), cpuSeconds()
				slots := e.exciser.takeSlots()
				require.Len(b, slots, 1)
				if how == "excise" {
					excised, err := e.exciser.exciseSlots(ctx, slots)
					require.NoError(b, err)
					require.Len(b, excised, 1)
				} else {
					require.NoError(b, e.db.Flush())
					require.NoError(b, e.db.Compact(ctx, slots[0].start, slots[0].end, false))
				}
				b.ReportMetric(cpuSeconds()-begin, "cpu-s")
				b.ReportMetric(float64(before)/mega, "before-MB")
				b.ReportMetric(float64(liveBytes(e))/mega, "after-MB")
				require.NoError(b, e.Close())
			}
		})
	}
}

// cpuSeconds returns the CPU time that this process has used.
func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// BenchmarkWriteBesideCheckpoint writes small rows, each synced, while checkpoints of many files are made. It reports
// the duration of the slowest write, and the longest wait for a checkpoint.
func BenchmarkWriteBesideCheckpoint(b *testing.B) {
	for _, files := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			o := DefaultOptions()
			o.IngestBytes = 1
			dir := b.TempDir()
			e, err := Open(dir, o)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, e.Close()) })
			for i := range files { // Each write creates a file in the last level, because nothing overlaps.
				batch := engine.Batch{
					Table: engine.Raw, Partition: windowOf(int64(20_000 + i)),
					Mutations: []engine.Mutation{{Value: []byte("v"),
						Clustering: engine.Key{
							engine.Int(1), engine.Int(0), engine.Text(seriesID(i)), engine.Text(seriesID(i)),
						}}},
				}
				require.NoError(b, e.Write(ctx, []engine.Batch{batch}))
			}
			slowest, seq := time.Duration(0), int64(0)
			stop, stopped := make(chan struct{}), make(chan struct{})
			longest, waited := time.Duration(0), make(chan struct{})
			go func() { // Wait for checkpoints like a write, but without using the disk.
				defer close(waited)
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Microsecond):
					}
					begun := time.Now()
					_ = e.runChange(func() error { return nil })
					longest = max(longest, time.Since(begun))
				}
			}()
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					default:
					}
					begun := time.Now()
					seq++
					if err := e.Write(ctx, stageBatch(seq, "v")); err != nil {
						b.Error(err)
						return
					}
					slowest = max(slowest, time.Since(begun))
				}
			}()
			for n := 0; b.Loop(); n++ {
				copied := filepath.Join(dir, fmt.Sprint("copy", n))
				require.NoError(b, e.Checkpoint(copied))
				b.StopTimer()
				require.NoError(b, os.RemoveAll(copied))
				b.StartTimer()
			}
			close(stop)
			<-stopped
			<-waited
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest-wait")
			b.ReportMetric(float64(slowest.Microseconds())/1000, "ms/slowest-write")
		})
	}
}
