package enginetest

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// testTakenBackAfterCancel checks that, once a delete has returned nil, its row doesn't exist and doesn't appear later,
// even if a Put of the row was canceled at a random moment before the delete. A canceled Put may otherwise be applied
// later.
func testTakenBackAfterCancel(t *testing.T, e engine.Engine) {
	const writers, rounds = 4, 150
	row := func(round int) engine.Key { return engine.Key{id(5), engine.Int(int64(round))} }
	var running sync.WaitGroup
	for w := range writers {
		partition := engine.Key{engine.Int(-2), engine.Int(int64(w))}
		rng := rand.New(rand.NewPCG(uint64(w), 5))
		running.Go(func() {
			for i := range rounds {
				put := []engine.Mutation{put(row(i), "x"), put(row(i+rounds), "y")}
				spins := rng.IntN(200)
				ctx, cancel := context.WithCancel(context.Background())
				var canceller sync.WaitGroup
				canceller.Go(func() {
					for range spins {
						runtime.Gosched()
					}
					cancel()
				})
				_ = e.Write(ctx, []engine.Batch{{Table: engine.Stage, Partition: partition, Mutations: put}})
				take := []engine.Mutation{remove(row(i)), removeRange(row(i+rounds), row(i+rounds))}
				err := e.Write(context.Background(),
					[]engine.Batch{{Table: engine.Stage, Partition: partition, Mutations: take}})
				canceller.Wait()
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	running.Wait()
	// This write gives canceled writes that are still in progress time to be applied.
	write(t, e, engine.Shards, plainKey(engine.Shards.Partition), put(plainKey(engine.Shards.Clustering), "last"))
	for w := range writers {
		left := scanPartition(t, e, engine.Stage, engine.Key{engine.Int(-2), engine.Int(int64(w))})
		require.Empty(t, left, "rows that were taken back came to be")
	}
}
