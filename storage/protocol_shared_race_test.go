package storage

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// scattered is an engine that writes each batch separately, in any order and with pauses in between.
type scattered struct{ engine.Engine }

func (e scattered) Write(ctx context.Context, batches []engine.Batch) (first error) {
	for _, i := range rand.Perm(len(batches)) {
		if err := e.Engine.Write(ctx, batches[i:i+1]); first == nil {
			first = err
		}
		if rand.IntN(8) == 0 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		}
	}
	return first
}

// TestSharedConcurrent runs writers, sealers and readers of two processes on one engine concurrently, and compares the
// answers with the model. Run it with -race.
func TestSharedConcurrent(t *testing.T) {
	eng := memory.New()
	first := newConcurrentRun(t, scattered{eng})
	require.NoError(t, first.store.Close())
	runs := []*concurrentRun{first, {t: t, model: first.model}}
	first.model.forgetful = true
	for i, r := range runs {
		opts := first.store.opts
		opts.Shared, opts.seams.blobBytes = true, 200
		opts.Now = func() time.Time { return time.UnixMilli(first.now.Load() + int64(i)*format.HourMS) }
		r.now.Store(first.now.Load())
		var err error
		r.store, err = Open(t.Context(), faultengine.Wrap(scattered{eng}, func(op faultengine.Op) faultengine.Action {
			if op.Kind == faultengine.Write && op.N%97 == 0 && op.Table != engine.Processes && !first.stop.Load() {
				return faultengine.Lose(nil)
			}
			return faultengine.Pass()
		}), opts)
		require.NoError(t, err)
		require.NoError(t, r.store.WaitReady(t.Context()))
	}
	t.Cleanup(func() { require.NoError(t, runs[1].store.Close()) }) // The other store is closed by its own cleanup.
	doTogether(runs, concurrentFor(t))
	for range 3 { // Rows that depend on failed writes are kept for some time.
		first.now.Add((gapTTL + time.Second).Milliseconds())
		for _, r := range runs {
			require.NoError(t, r.store.SealAll(context.Background()))
			r.forget(nil)
		}
	}
	for _, r := range runs {
		r.now.Store(first.now.Load())
		r.read(rand.New(rand.NewPCG(1, 1)))
	}
	first.end()
	runs[1].end()
}

// doTogether runs all operations of all processes concurrently.
func doTogether(runs []*concurrentRun, d time.Duration) {
	var wg sync.WaitGroup
	repeat := func(do func(rng *rand.Rand), pause time.Duration) {
		seed := rand.Uint64()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for !runs[0].stop.Load() {
				do(rng)
				time.Sleep(pause)
			}
		})
	}
	for _, r := range runs {
		repeat(r.write, 0)
		repeat(r.write, time.Millisecond)
		repeat(r.read, 0)
		repeat(r.round, 5*time.Millisecond)
		repeat(r.sealAll, 20*time.Millisecond)
		repeat(r.forget, 3*time.Millisecond)
	}
	time.Sleep(d)
	runs[0].stop.Store(true)
	wg.Wait()
}

func (r *concurrentRun) forget(*rand.Rand) {
	for p := range r.store.period.Partitions() {
		assert.NoError(r.t, r.store.ReleaseSealed(context.Background(), p))
	}
	r.store.ReleaseSeries()
}
