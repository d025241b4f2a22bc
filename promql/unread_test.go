package promql

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	promengine "github.com/prometheus/prometheus/promql"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/tenant"
)

// Whoever waits for a place begins when the answer of whoever had it is counted: with one place there is one answer at
// most beyond what may be unread, however many ask.
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
				q, err := e.NewRangeQuery(ctx, stuck{}, nil, `vector(1)`, time.Unix(0, 0), time.Unix(10_000, 0), time.Second)
				if !assert.NoError(t, err) {
					return
				}
				defer q.Close()
				if q.Exec(ctx).Err != nil {
					refused <- struct{}{}
					return
				}
				answered <- struct{}{}
				<-over // Nobody reads it: not before the others are refused, whose contexts end one after the other.
			})
		}
		<-answered
		require.Eventually(t, func() bool { _, waiting := e.Queries(tenant.Default); return waiting == queries-1 }, time.Minute, time.Millisecond)
		require.Empty(t, answered)
		cancel()
		for range queries - 1 {
			<-refused
		}
		close(over)
		all.Wait()
		require.Empty(t, answered)
		require.Zero(t, e.gate.queries.holding())
		require.NoError(t, e.Close())
	}
}

// A read that isn't a query has its place until its answer is counted, and what it holds is given back when it leaves.
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
		Answered(first, 60)
		synctest.Wait()
		require.Len(t, entered, 1, "it has nothing to compute any more")
		require.EqualValues(t, 60, e.gate.queries.holding())
		(<-entered)()
		Answered(first, 60)
		go enter()
		synctest.Wait()
		require.Empty(t, entered, "too much is unread")
		leave()
		leave()
		synctest.Wait()
		require.Zero(t, e.gate.queries.holding())
		(<-entered)()

		_, leave, err = e.Enter(t.Context())
		require.NoError(t, err)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, nothing, err := e.Enter(gone)
		require.ErrorIs(t, err, context.Canceled)
		nothing()
		leave()
		Answered(t.Context(), 60)
		require.Zero(t, e.gate.queries.holding(), "a context of nobody's turn")
		require.Empty(t, e.gate.entered)
		require.NoError(t, e.Close())
	})
}

// Of large answers that were computed at once only one is written: others wait until it was read, or until who asked has gone.
func TestAnswersThatWereComputedAtOnceAreWrittenOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		o := DefaultOptions()
		o.UnreadBytes, o.Registerer = 1, registry
		e := NewEngine(o)
		unread := func() float64 {
			families, err := registry.Gather()
			require.NoError(t, err)
			at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "cassia_query_unread_bytes" })
			return families[at].GetMetric()[0].GetGauge().GetValue()
		}
		// begin returns what lets the data be read, and the query once it was executed, or why it wasn't.
		begin := func(ctx context.Context) (read chan struct{}, answered chan promengine.Query, refused chan error) {
			read, answered, refused = make(chan struct{}), make(chan promengine.Query, 1), make(chan error, 1)
			data := promstorage.QueryableFunc(func(int64, int64) (promstorage.Querier, error) { <-read; return promstorage.NoopQuerier(), nil })
			q, err := e.NewRangeQuery(ctx, data, nil, `vector(1) or up`, time.Unix(0, 0), time.Unix(roomless/unreadPoint, 0), time.Second)
			require.NoError(t, err)
			go func() {
				if err := q.Exec(ctx).Err; err != nil {
					q.Close()
					refused <- err
					return
				}
				answered <- q
			}()
			synctest.Wait()
			return read, answered, refused
		}
		leaving, leave := context.WithCancel(t.Context())
		readFirst, first, _ := begin(t.Context())
		readSecond, second, _ := begin(t.Context())
		readThird, third, refused := begin(leaving)
		require.Zero(t, unread())
		for _, read := range []chan struct{}{readFirst, readSecond, readThird} {
			close(read)
			synctest.Wait()
		}
		require.Len(t, first, 1)
		require.Empty(t, second)
		require.Empty(t, third)
		all := unread()
		require.Greater(t, all, 3.0*roomless)
		leave()
		var canceled promengine.ErrQueryCanceled
		require.ErrorAs(t, <-refused, &canceled)
		require.InEpsilon(t, all*2/3, unread(), 1e-9)
		(<-first).Close()
		synctest.Wait()
		require.Len(t, second, 1, "there is room for the next")
		(<-second).Close()
		require.Zero(t, unread())
		require.Empty(t, e.gate.texts.of)
		require.NoError(t, e.Close())
	})
}
