package promql

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/tenant"
)

func of(names ...string) (shares []share) {
	for _, name := range names {
		shares = append(shares, share{name: name})
	}
	return shares
}

func TestOneQueryDoesNotWaitBehindAThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFairQueue(4, 1, 10_000)
		var ended sync.WaitGroup
		var before atomic.Int64
		for range 1000 {
			ended.Go(func() {
				require.NoError(t, queue.enter(t.Context(), of("many")))
				time.Sleep(time.Minute)
				before.Add(1)
				queue.leave(of("many"))
			})
		}
		synctest.Wait()
		running, waiting := queue.queryCounts("many")
		require.Equal(t, [2]int{4, 996}, [2]int{running, waiting},
			"one tenant has all places, and none of the extra ones")
		for range 2 { // The first gets an extra place. The second gets the next free place.
			ended.Go(func() {
				require.NoError(t, queue.enter(t.Context(), of("one")))
				require.LessOrEqual(t, before.Load(), int64(4))
				time.Sleep(time.Second)
				queue.leave(of("one"))
			})
		}
		ended.Wait()
		require.Zero(t, queue.running)
		require.Zero(t, queue.waiting)
		require.Empty(t, queue.queues, "nothing is remembered of who is gone")
		require.Empty(t, queue.order)
	})
}

// TestCancelledQueriesGetNoPlace checks that a waiting query that is canceled at the moment at which a place becomes
// free returns the error of its context and takes no place.
func TestCancelledQueriesGetNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFairQueue(1, 0, 100)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, queue.enter(ctx, of("many")), context.Canceled, "nobody waits for its answer")
		for range 64 {
			require.NoError(t, queue.enter(t.Context(), of("first")))
			ctx, cancel := context.WithCancel(t.Context())
			entered := make(chan error)
			go func() { entered <- queue.enter(ctx, of("many")) }()
			synctest.Wait()
			cancel()
			queue.leave(of("first"))
			require.ErrorIs(t, <-entered, context.Canceled)
			require.Zero(t, queue.running)
		}
		require.Empty(t, queue.queues)
	})
}

func TestFairQueueGoesRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFairQueue(1, 0, 100)
		require.NoError(t, queue.enter(t.Context(), of("first")))
		var mu sync.Mutex
		var order string
		var ended sync.WaitGroup
		for _, name := range []string{"a", "a", "a", "b", "c", "c"} {
			ended.Go(func() {
				require.NoError(t, queue.enter(t.Context(), of(name)))
				mu.Lock()
				order += name
				mu.Unlock()
				queue.leave(of(name))
			})
			synctest.Wait()
		}
		queue.leave(of("first"))
		ended.Wait()
		require.Equal(t, "abcaca", order)
	})
}

// TestQueriesForTheSameLoadStartTogether checks that a waiting query with the load of the query that started last
// starts before other queries of its tenant, but at most maxPassed times before the same query.
func TestQueriesForTheSameLoadStartTogether(t *testing.T) {
	order := func(loads ...any) (order []any) {
		synctest.Test(t, func(t *testing.T) {
			queue := newFairQueue(1, 0, 100)
			require.NoError(t, queue.enter(t.Context(), of("first")))
			var ended sync.WaitGroup
			for _, load := range loads {
				ended.Go(func() {
					require.NoError(t, queue.enterForLoad(t.Context(), of("a"), 0, load))
					order = append(order, load)
					queue.leave(of("a"))
				})
				synctest.Wait()
			}
			queue.leave(of("first"))
			ended.Wait()
			require.Empty(t, queue.queues)
		})
		return order
	}
	require.Equal(t, []any{"x", "x", "y", "y", "z"}, order("x", "y", "z", "x", "y"))
	require.Equal(t, []any{nil, "x", nil, "y"}, order(nil, "x", nil, "y"), "without a load, the order is kept")
	many := slices.Repeat([]any{"x"}, 2*maxPassed)
	got := order(append([]any{"x", "y"}, many...)...)
	require.Equal(t, 1+maxPassed, slices.Index(got, any("y")))
}

func TestFullQueueMakesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFairQueue(1, 0, 10)
		require.NoError(t, queue.enter(t.Context(), of("many")))
		results := make(chan error, 10)
		for range 10 {
			go func() { results <- queue.enter(t.Context(), of("many")) }()
		}
		synctest.Wait()
		require.ErrorIs(t, queue.enter(t.Context(), of("many")), ErrTooManyQueries, "it is full of its own")
		other := make(chan error, 1)
		go func() { other <- queue.enter(t.Context(), of("one")) }()
		require.ErrorIs(t, <-results, ErrTooManyQueries, "the last of the longest queue goes")
		synctest.Wait()
		require.Equal(t, 10, queue.waiting)
		queue.leave(of("many"))
		require.NoError(t, <-results)
		queue.leave(of("many"))
		require.NoError(t, <-other, "it waited for one of the others, not for all")
		queue.leave(of("one"))
		for range 8 {
			require.NoError(t, <-results)
			queue.leave(of("many"))
		}
		require.Empty(t, queue.queues)
	})
}

// TestFairQueueWaitsForBytes checks that queries that have finished still hold bytes. While the bytes exceed the bound,
// only tenants that hold nothing may start queries, up to a bound that is 25% higher.
func TestFairQueueWaitsForBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFairQueue(10, 0, 10)
		queue.bytes = 100
		run := func(name string, bytes int64) chan struct{} {
			ran := make(chan struct{})
			go func() {
				require.NoError(t, queue.enter(t.Context(), of(name)))
				queue.leave(of(name))
				queue.addHeld(of(name), bytes)
				close(ran)
			}()
			synctest.Wait()
			return ran
		}
		waits := func(ran chan struct{}) {
			t.Helper()
			select {
			case <-ran:
				require.Fail(t, "it doesn't wait")
			default:
			}
		}
		<-run("many", 60)
		<-run("many", 60) // The queue didn't know the bytes of this query when the query started.
		next := run("many", 1)
		waits(next)
		<-run("one", 10) // 130 bytes are also above the higher bound.
		waits(run("another", 1))
		queue.addHeld(of("many"), -60)
		<-next
		synctest.Wait()
		require.EqualValues(t, 72, queue.heldBytes())
		for name, bytes := range map[string]int64{"many": 61, "one": 10, "another": 1} {
			queue.addHeld(of(name), -bytes)
		}
		require.Empty(t, queue.queues)
	})
}

func TestLimitsOfQueries(t *testing.T) {
	table, err := tenant.ParseLimits([]byte("tenants: {a: {queries: 1, queries_waiting: 1}, b: {queries: 1}}"))
	require.NoError(t, err)
	limiter := tenant.NewLimiter(time.Now, nil)
	limiter.Set(table)
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Options{MaxConcurrency: 10, Limiter: limiter})
		a, ab := tenant.NewContext(t.Context(), "a"), tenant.NewContext(t.Context(), "a|b")
		one, err := g.Insert(a, "")
		require.NoError(t, err)
		second := make(chan int, 1)
		go func() {
			place, err := g.Insert(a, "")
			require.NoError(t, err)
			second <- place
		}()
		synctest.Wait()
		require.Empty(t, second, "places are free, but not for it")
		for _, ctx := range []context.Context{a, ab} {
			_, err = g.Insert(ctx, "")
			var limit *tenant.LimitError
			require.ErrorAs(t, err, &limit)
			require.Equal(t, 429, limit.Status)
			require.Equal(t, tenant.KeyQueriesWaiting, limit.Limit)
		}
		g.Delete(one)
		g.Delete(<-second)

		b, err := g.Insert(tenant.NewContext(t.Context(), "b"), "")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(ab, time.Second)
		defer cancel()
		_, err = g.Insert(ctx, "")
		require.ErrorIs(t, err, context.DeadlineExceeded, "a query of several tenants is held to the limits of each")
		g.Delete(b)
		place, err := g.Insert(ab, "")
		require.NoError(t, err)
		require.Equal(t, 1, g.queries.queues["b"].running)
		g.Delete(place)
		require.Empty(t, g.queries.queues)
		require.Empty(t, g.entered)
	})
}

func TestFairQueueKeepsItsBounds(t *testing.T) {
	const places, extra, most = 3, 1, 6
	queue := newFairQueue(places, extra, most)
	var running atomic.Int64
	var ended sync.WaitGroup
	for i := range 16 {
		ended.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 200 {
				shares := of(strconv.Itoa(random.IntN(4)))
				if random.IntN(4) == 0 {
					shares = of("0", "3")
				}
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(3) == 0 {
					go cancel()
				}
				if queue.enter(ctx, shares) == nil {
					if running.Add(1) > places+extra {
						t.Error("too many run")
					}
					running.Add(-1)
					queue.leave(shares)
				}
				cancel()
			}
		})
	}
	ended.Wait()
	require.Zero(t, queue.running)
	require.Zero(t, queue.waiting)
	require.Empty(t, queue.order)
	require.Empty(t, queue.queues)
}
