package promql

import (
	"context"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/tenant"
)

// TestQueriesEndWhereMemoryIsShort checks that, if all queries together take too much memory, the newest query of the
// tenant with the most queries is ended. This is repeated until memory suffices. Queries that arrive in the meantime
// wait.
func TestQueriesEndWhereMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Memory = 1000
		e := NewEngine(o)
		var used atomic.Int64
		e.pressure.used = used.Load
		run := func(name string) (stop func(), ended <-chan error) {
			ctx, cancel := context.WithCancel(tenant.NewContext(t.Context(), name))
			result := make(chan error, 1)
			go func() {
				// The query also waits for its turn among large reads.
				q, err := e.NewInstantQuery(ctx, stuck{make(chan struct{})}, nil, "up", time.Unix(60, 0))
				if err != nil {
					result <- err
					return
				}
				defer q.Close()
				result <- q.Exec(ctx).Err
			}()
			synctest.Wait()
			return cancel, result
		}
		stopA, a := run("a")
		time.Sleep(time.Second)
		_, b1 := run("b")
		time.Sleep(time.Second)
		_, b2 := run("b")
		isLeft := func(ended <-chan error) bool { return len(ended) == 0 }
		used.Store(999)
		time.Sleep(2*pressureInterval + time.Millisecond) // Garbage is collected first.
		synctest.Wait()
		require.False(t, isLeft(b2), "the newest of b, which has two")
		require.ErrorIs(t, <-b2, tsdb.ErrNotReady, "it is answered with 503, unavailable")
		require.True(t, isLeft(b1) && isLeft(a))
		used.Store(700)
		time.Sleep(time.Second)
		require.True(t, isLeft(b1) && isLeft(a))
		stopC, c := run("c")
		time.Sleep(time.Second)
		running, _ := e.QueryCounts("c")
		require.Equal(t, 1, running, "memory is tight, which only large reads wait for")
		used.Store(999)
		time.Sleep(2*pressureInterval + time.Millisecond) // Garbage is collected first.
		synctest.Wait()
		require.False(t, isLeft(c), "of those that run as many the newest")
		used.Store(0)
		stopA()
		require.Error(t, <-a)
		require.True(t, isLeft(b1))
		e.CancelQuery(e.ActiveQueries([]string{"b"})[0].ID, []string{"b"})
		require.Error(t, <-b1)
		stopC()
		time.Sleep(time.Second)
		require.NoError(t, e.Close())
	})
}

// TestAnAnswerTakesAPartOfTheMemory checks that an answer that takes more than its share of the memory is rejected.
func TestAnAnswerTakesAPartOfTheMemory(t *testing.T) {
	o := DefaultOptions()
	o.Memory = 4 * 10 * pointBytes
	e := NewEngine(o)
	e.pressure.used = func() int64 { return 0 }
	q, err := e.NewInstantQuery(t.Context(), stuck{}, nil, `vector(1)`, time.Unix(60, 0))
	require.NoError(t, err)
	require.NoError(t, q.Exec(t.Context()).Err)
	q.Close()
	q, err = e.NewRangeQuery(t.Context(), stuck{}, nil, `vector(1)`, time.Unix(60, 0), time.Unix(100, 0), time.Second)
	require.NoError(t, err)
	require.ErrorIs(t, q.Exec(t.Context()).Err, meter.ErrQueryTooLarge)
	q.Close()
	require.Zero(t, e.gate.queries.heldBytes())
	require.NoError(t, e.Close())
}

// TestLargeReadsWaitForMemory checks that reads that grow large wait for their turn and for memory, while other reads
// continue.
func TestLargeReadsWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Memory, o.MaxConcurrency = 1<<20, 2
		large := o.Memory / 2
		e := NewEngine(o)
		var used atomic.Int64
		e.pressure.used = used.Load
		enter := func() (ctx context.Context, leave func()) {
			ctx, leave, err := e.Enter(t.Context())
			require.NoError(t, err)
			return ctx, leave
		}
		grow := func(ctx context.Context, n int64) (grown chan error) {
			grown = make(chan error, 1)
			go func() { grown <- meter.Grow(ctx, n) }()
			synctest.Wait()
			return grown
		}
		first, leaveFirst := enter()
		require.NoError(t, <-grow(first, large))
		second, leaveSecond := enter()
		waiting := grow(second, large)
		require.Empty(t, waiting, "both together would take too much")
		small, leaveSmall := enter()
		require.NoError(t, <-grow(small, 10), "large ones have no places that small ones need")
		_, leaveAnother := enter()
		leaveAnother()
		leaveFirst()
		synctest.Wait()
		require.NoError(t, <-waiting)

		used.Store(o.Memory * 85 / 100)
		time.Sleep(pressureInterval + time.Millisecond)
		grown := grow(second, large)
		require.Empty(t, grown, "memory is full")
		require.NoError(t, small.Err(), "a small one holds nothing")
		used.Store(0)
		time.Sleep(pressureInterval + time.Millisecond)
		require.NoError(t, <-grown)

		used.Store(o.Memory * 85 / 100)
		require.Eventually(t, func() bool { return second.Err() != nil }, time.Minute, pressureInterval)
		require.ErrorIs(t, asReadError(second, second.Err()), meter.ErrQueryTooLarge, "nothing but it can be ended")
		used.Store(0)
		leaveSecond()
		leaveSmall()
		time.Sleep(time.Second)
		require.Zero(t, e.gate.queries.heldBytes())
		require.Zero(t, e.gate.large.heldBytes())
		require.Empty(t, e.gate.entered)
		require.Zero(t, e.gate.queries.running)
		require.Zero(t, e.gate.large.running)

		first, leaveFirst = enter()
		require.NoError(t, <-grow(first, large))
		gone, cancel := context.WithCancel(t.Context())
		ctx, leave, err := e.Enter(gone)
		require.NoError(t, err)
		waiting = grow(ctx, large)
		cancel()
		require.ErrorIs(t, <-waiting, context.Canceled)
		leave()
		leaveFirst()
		require.Zero(t, e.gate.queries.running)
		require.Zero(t, e.gate.large.running)
		require.NoError(t, e.Close())
		time.Sleep(time.Second)
	})
}

// TestGarbageOfEarlierReadsEndsNobody checks that no read is ended if memory is full of garbage of earlier reads. The
// garbage is collected first, and the only large read waits during that time.
func TestGarbageOfEarlierReadsEndsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Memory = 1 << 30
		e := NewEngine(o)
		collections := func() uint64 {
			sample := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}}
			metrics.Read(sample)
			return sample[0].Value.Uint64()
		}
		before := collections()
		e.pressure.used = func() int64 {
			if collections() == before {
				return o.Memory * 97 / 100
			}
			return o.Memory / 2
		}
		ctx, leave, err := e.Enter(t.Context())
		require.NoError(t, err)
		require.NoError(t, meter.Grow(ctx, o.Memory/100))
		time.Sleep(10 * pressureInterval)
		synctest.Wait()
		require.NoError(t, meter.Grow(ctx, o.Memory/100))
		require.NoError(t, ctx.Err())
		require.Greater(t, collections(), before)
		leave()
		time.Sleep(time.Second)
		require.NoError(t, e.Close())
	})
}
