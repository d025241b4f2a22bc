package promql

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Where all queries together take too much memory, the newest of who runs most ends, one after the other, until they don't; those
// that come meanwhile wait.
func TestQueriesEndWhereMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Memory = 1000
		e := NewEngine(o)
		var used atomic.Int64
		e.pressure.used = used.Load
		run := func(name string) (stop func(), ended <-chan error) {
			ctx, cancel := context.WithCancel(tenant.Into(t.Context(), name))
			result := make(chan error, 1)
			go func() {
				q, err := e.NewInstantQuery(ctx, stuck{make(chan struct{})}, nil, "up", time.Unix(60, 0)) // It takes a turn, too.
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
		time.Sleep(pressureInterval + time.Millisecond)
		synctest.Wait()
		require.False(t, isLeft(b2), "the newest of b, which has two")
		require.ErrorIs(t, <-b2, tsdb.ErrNotReady, "it is answered with 503, unavailable")
		require.True(t, isLeft(b1) && isLeft(a))
		used.Store(700)
		time.Sleep(time.Second)
		require.True(t, isLeft(b1) && isLeft(a))
		stopC, c := run("c")
		time.Sleep(time.Second)
		_, waiting := e.Queries("c")
		require.Equal(t, 1, waiting, "memory is tight")
		used.Store(100)
		time.Sleep(time.Second)
		running, _ := e.Queries("c")
		require.Equal(t, 1, running)
		used.Store(999)
		time.Sleep(pressureInterval + time.Millisecond)
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

// Large answers wait for room one after the other, and one that takes too much of the memory by itself is refused.
func TestLargeAnswersWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := texts{bytes: 100}
		require.NoError(t, x.take(t.Context(), "a", 1000), "one may be of any size")
		got := make(chan string, 3)
		take := func(name string, bytes int64) {
			go func() {
				if x.take(t.Context(), name, bytes) == nil {
					got <- name
				}
			}()
			synctest.Wait()
		}
		take("a", 60)
		take("b", 60)
		require.Empty(t, got)
		x.give("a", 1000)
		synctest.Wait()
		require.Len(t, got, 2, "a tenant that has nothing there may have a quarter more")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, x.take(gone, "a", 60), context.Canceled)
		x.give("a", 60)
		x.give("b", 60)
		require.Empty(t, x.of)
	})
	o := DefaultOptions()
	o.Memory = 4 * 10 * unreadPoint
	e := NewEngine(o)
	e.pressure.used = func() int64 { return 0 }
	q, err := e.NewInstantQuery(t.Context(), stuck{}, nil, `vector(1)`, time.Unix(60, 0))
	require.NoError(t, err)
	require.NoError(t, q.Exec(t.Context()).Err)
	q.Close()
	q, err = e.NewRangeQuery(t.Context(), stuck{}, nil, `vector(1)`, time.Unix(60, 0), time.Unix(100, 0), time.Second)
	require.NoError(t, err)
	require.ErrorIs(t, q.Exec(t.Context()).Err, storage.ErrQueryTooLarge)
	q.Close()
	require.Zero(t, e.gate.queries.holding())
	require.NoError(t, e.Close())
}
