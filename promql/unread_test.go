package promql

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/tenant"
)

// TestAnswersAreCountedBeforeOthersBegin checks that a waiting query starts only after the answer of the previous query
// is counted. So with one place, at most one answer exceeds the bound of unread answers, for any number of queries.
func TestAnswersAreCountedBeforeOthersBegin(t *testing.T) {
	const rounds, queries = 50, 8
	for range rounds {
		o := DefaultOptions()
		o.MaxConcurrency, o.UnreadBytes = 1, 1
		e := NewEngine(o)
		ctx, cancel := context.WithCancel(t.Context())
		answered, refused, over := make(chan struct{}, queries), make(chan struct{}, queries), make(chan struct{})
		var all sync.WaitGroup
		for range queries {
			all.Go(func() {
				q, err := e.NewRangeQuery(ctx, stuck{}, nil, `vector(1)`, time.Unix(0, 0), time.Unix(10_000, 0),
					time.Second)
				if !assert.NoError(t, err) {
					return
				}
				defer q.Close()
				if q.Exec(ctx).Err != nil {
					refused <- struct{}{}
					return
				}
				answered <- struct{}{}
				// The answer stays unread until the contexts of all other queries have ended, one after the other.
				<-over
			})
		}
		<-answered
		require.Eventually(t, func() bool { _, waiting := e.QueryCounts(tenant.Default); return waiting == queries-1 },
			time.Minute, time.Millisecond)
		require.Empty(t, answered)
		cancel()
		for range queries - 1 {
			<-refused
		}
		close(over)
		all.Wait()
		require.Empty(t, answered)
		require.Zero(t, e.gate.queries.heldBytes())
		require.NoError(t, e.Close())
	}
}

// TestReadsHaveTurns checks that a read outside the evaluator keeps its place until its answer is counted, and that its
// memory is released when the caller calls leave.
func TestReadsHaveTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.MaxConcurrency, o.UnreadBytes = 1, 100
		e := NewEngine(o)
		entered := make(chan func(), 2)
		enter := func() {
			_, leave, err := e.Enter(t.Context())
			assert.NoError(t, err)
			entered <- leave
		}
		first, leave, err := e.Enter(t.Context())
		require.NoError(t, err)
		go enter()
		synctest.Wait()
		require.Empty(t, entered, "there is one place")
		HoldAnswer(first, 60)
		synctest.Wait()
		require.Len(t, entered, 1, "it has nothing to compute any more")
		require.EqualValues(t, 60, e.gate.queries.heldBytes())
		(<-entered)()
		HoldAnswer(first, 60)
		go enter()
		synctest.Wait()
		require.Empty(t, entered, "too much is unread")
		leave()
		leave()
		synctest.Wait()
		require.Zero(t, e.gate.queries.heldBytes())
		(<-entered)()

		_, leave, err = e.Enter(t.Context())
		require.NoError(t, err)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, nothing, err := e.Enter(gone)
		require.ErrorIs(t, err, context.Canceled)
		nothing()
		leave()
		HoldAnswer(t.Context(), 60)
		require.Zero(t, e.gate.queries.heldBytes(), "a context of nobody's turn")
		require.Empty(t, e.gate.entered)
		require.NoError(t, e.Close())
	})
}
