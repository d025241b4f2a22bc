package pebble

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// Limits of polling for events that must happen eventually, however slow the machine is.
const (
	waitAtMost = time.Minute
	pollEvery  = 2 * time.Millisecond
)

// TestPowerCutAfterEachCall cuts the power right after each kind of call has returned, so that all unsynced bytes are
// lost. The changes made by the call must be durable.
func TestPowerCutAfterEachCall(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	disk := NewCrashableFS()
	e := openOn(t, disk)
	cut := func() {
		left := disk.Crash(0, rng)
		require.NoError(t, e.Close())
		disk, e = left, openOn(t, left)
	}
	rawPartition := engine.Key{engine.Int(1), engine.Int(0), engine.Text("t"), engine.Text("m"), engine.Int(0)}
	rawRow := engine.Mutation{
		Clustering: engine.Key{engine.Int(1), engine.Int(0), engine.Text(idOf(nil)), engine.Text(idOf(nil))},
		Value:      []byte("v"),
	}
	cut()
	require.NoError(t, e.Write(ctx, append(stageBatch(1, "v"), engine.Batch{
		Table: engine.Raw, Partition: rawPartition, Mutations: []engine.Mutation{rawRow},
	})))
	cut()
	require.Equal(t, 1, stageRows(t, e))
	require.Equal(t, 1, countRows(t, e, engine.Raw, rawPartition))
	require.NoError(t, e.Drop(ctx, engine.Raw, rawPartition[:1]))
	cut()
	require.Zero(t, countRows(t, e, engine.Raw, rawPartition))
	ok, _, err := e.CompareAndSet(
		ctx, engine.Store, engine.Key{engine.Text("s")}, engine.Key{engine.Text("i")}, nil, []byte("v"),
	)
	require.NoError(t, err)
	require.True(t, ok)
	cut()
	require.Equal(t, 1, countRows(t, e, engine.Store, engine.Key{engine.Text("s")}))
	remove := stageBatch(1, "")
	remove[0].Mutations[0].Op = engine.Delete
	require.NoError(t, e.Write(ctx, remove))
	cut()
	require.Zero(t, stageRows(t, e))

	// The batches are larger than one Pebble batch may be.
	var many []engine.Batch
	for seq := range int64(60) {
		many = append(many, stageBatch(seq, strings.Repeat("v", 400_000))...)
	}
	require.NoError(t, e.Write(ctx, many))
	cut()
	require.Equal(t, 60, stageRows(t, e))
	require.NoError(t, e.Close())
}

// TestPowerCutUnderLoad cuts the power during writes. Acknowledged rows exist, and every other batch exists completely
// or not at all.
func TestPowerCutUnderLoad(t *testing.T) {
	const writers, rowsInBatch = 4, 5
	rng := rand.New(rand.NewPCG(2, 2))
	disk := NewCrashableFS()
	for round := range int64(8) {
		e := openOn(t, disk)
		partitionOf := func(w int) engine.Key { return engine.Key{engine.Int(round), engine.Int(int64(w))} }
		var stop atomic.Bool
		var acknowledged [writers]atomic.Int64
		var running sync.WaitGroup
		for w := range writers {
			running.Go(func() {
				for n := int64(0); !stop.Load(); n++ {
					if err := e.Write(ctx, []engine.Batch{
						{Table: engine.Stage, Partition: partitionOf(w), Mutations: rowsOf(n, rowsInBatch)},
					}); err != nil {
						panic(err)
					}
					acknowledged[w].Store(n + 1)
				}
			})
		}
		for acknowledged[0].Load() < 5+rng.Int64N(40) {
			time.Sleep(time.Millisecond)
		}
		var before [writers]int64
		for w := range before {
			before[w] = acknowledged[w].Load()
		}
		disk = disk.Crash(rng.IntN(101), rng)
		stop.Store(true)
		running.Wait()
		require.NoError(t, e.Close())

		e = openOn(t, disk)
		for w := range writers {
			n := countRows(t, e, engine.Stage, partitionOf(w))
			require.Zero(t, n%rowsInBatch, "half of a batch")
			require.GreaterOrEqual(t, int64(n/rowsInBatch), before[w], "round %d, writer %d", round, w)
		}
		require.NoError(t, e.Close())
	}
}

func rowsOf(n int64, rows int) []engine.Mutation {
	mutations := make([]engine.Mutation, rows)
	for i := range mutations {
		mutations[i] = engine.Mutation{
			Clustering: engine.Key{engine.Text("0123456789abcdef"), engine.Int(n*int64(rows) + int64(i))},
			Value:      []byte(strings.Repeat(fmt.Sprint(n), 200)),
		}
	}
	return mutations
}
