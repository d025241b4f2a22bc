package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

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

// BenchmarkWrite writes stage blobs, each Write synced; 16 rows lie in 16 partitions.
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

// chunkLike is a value that shrinks to about half, as chunks do: what neighbours share, then noise.
func chunkLike(rng *rand.Rand, n int) []byte {
	value := randomBytes(rng, n)
	for i := range n / 2 {
		value[i] = byte(i)
	}
	return value
}

// seriesID spreads as hashes do.
func seriesID(n int) string {
	id := make([]byte, engine.IDLen)
	binary.BigEndian.PutUint64(id, uint64(n)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return string(id)
}

// fillPartition writes rows of size bytes, one a series, and compacts.
func fillPartition(b *testing.B, e *Engine, rows, size int) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	batch := engine.Batch{Table: engine.Raw, Partition: windowOf(20_000)}
	written := 0
	for n := range rows {
		batch.Mutations = append(batch.Mutations, engine.Mutation{Value: chunkLike(rng, size),
			Clustering: engine.Key{engine.Int(1), engine.Int(1_700_000_000_000), engine.Text(seriesID(n)), engine.Text(seriesID(n))}})
		if written += size + 100; written > engine.MaxBatch/2 || n == rows-1 {
			require.NoError(b, e.Write(ctx, []engine.Batch{batch}))
			batch.Mutations, written = nil, 0
		}
	}
	require.NoError(b, e.Compact(context.Background()))
}

// BenchmarkScan reads 10,000 rows of 300 bytes from the block cache; one operation is all of them.
func BenchmarkScan(b *testing.B) {
	e := openBench(b)
	fillPartition(b, e, 10_000, 300)
	for _, keysOnly := range []bool{false, true} {
		b.Run(fmt.Sprintf("keysOnly=%v", keysOnly), func(b *testing.B) {
			b.SetBytes(10_000 * 300)
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for _, err := range e.Scan(ctx, engine.Range{Table: engine.Raw, Partition: windowOf(20_000), KeysOnly: keysOnly}) {
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

// BenchmarkSlice reads single series out of a partition of 20,000 rows: from the block cache, and with a
// cache far too small, from the operating system's.
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
				for _, err := range e.Scan(ctx, engine.Range{Table: engine.Raw, Partition: windowOf(20_000), From: key, To: key}) {
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
