package promql

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowClient reads nothing since a time.
type slowClient struct {
	since   time.Time
	givenUp chan struct{}
}

func (c *slowClient) Overdue(now time.Time) (time.Duration, bool) { return now.Sub(c.since), true }
func (c *slowClient) GiveUp()                                     { close(c.givenUp) }

// While answers that nobody reads take all that they may, queries with small answers don't wait; others wait until an answer whose client reads
// nothing is given up.
func TestSmallAnswersDontWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.UnreadBytes, o.MaxConcurrency = 4*roomless, 1
		e := NewEngine(o)
		// begin returns a channel for the query once it was executed.
		begin := func(ctx context.Context, expr string, steps int) chan *query {
			q, err := e.NewRangeQuery(ctx, promstorage.QueryableFunc(func(int64, int64) (promstorage.Querier, error) { return promstorage.NoopQuerier(), nil }),
				nil, expr, time.Unix(0, 0), time.Unix(int64(steps), 0), time.Second)
			require.NoError(t, err)
			answered := make(chan *query, 1)
			go func() {
				result := q.Exec(ctx)
				if result.Err == nil || expectationOf(ctx) == nil {
					assert.NoError(t, result.Err)
					answered <- q.(*query)
				}
			}()
			synctest.Wait()
			return answered
		}
		const large = 4 * roomless / unreadPoint
		expected := func() context.Context { return NewExpectation("small").Into(t.Context()) }
		client := &slowClient{since: time.Now(), givenUp: make(chan struct{})}
		first := <-begin(WithClient(t.Context(), client), `vector(1) or up`, large)
		require.True(t, e.gate.isFull())

		second := begin(t.Context(), `vector(1) or up`, large)
		unexpected := begin(t.Context(), `vector(1)`, 1)
		require.Empty(t, second)
		require.Empty(t, unexpected, "nobody would ask again")
		for range 100 {
			small := begin(expected(), `vector(1)`, 1)
			require.Len(t, small, 1)
			(<-small).Close()
		}

		x := NewExpectation("wrong")
		require.Empty(t, begin(x.Into(t.Context()), `label_replace(vector(1), "a", "b", "", "") or vector(1)`, large/4*3), "it doesn't look small")
		require.False(t, x.Refused())

		time.Sleep(unreadPatience + waitInterval)
		<-client.givenUp
		require.Empty(t, second, "the first answer isn't released yet")
		first.Close()
		synctest.Wait()
		require.Len(t, second, 1)
		(<-second).Close()
		synctest.Wait()
		(<-unexpected).Close()
	})
}

// An answer that was expected to be small, and isn't, is refused where there is no room; the same request counts as large afterwards.
func TestAnswersThatArentSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.UnreadBytes, o.MaxConcurrency = roomless, 1
		e := NewEngine(o)
		first, leave, err := e.Enter(t.Context())
		require.NoError(t, err)
		require.NoError(t, Answered(first, roomless+1))

		x := NewExpectation("labels")
		small, leaveSmall, err := e.Enter(x.Into(t.Context()))
		require.NoError(t, err)
		require.NoError(t, Answered(small, 1), "there is room for what is small")
		require.Error(t, Answered(small, roomless+1))
		require.True(t, x.Refused())
		leaveSmall()

		entered := make(chan func(), 1)
		go func() {
			_, leave, err := e.Enter(NewExpectation("labels").Into(t.Context()))
			assert.NoError(t, err)
			entered <- leave
		}()
		synctest.Wait()
		require.Empty(t, entered, "it is known to be large")
		leave()
		(<-entered)()
		require.Zero(t, e.gate.queries.holding())
		require.Empty(t, e.gate.entered)
	})
}

// A streamed answer whose client reads slowly gives its place away, and waits for one before it goes on.
func TestStreamsGiveTheirPlaceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.MaxConcurrency = 1
		e := NewEngine(o)
		stream, leave, err := e.Enter(t.Context())
		require.NoError(t, err)
		read, written := make(chan struct{}), make(chan error, 1)
		write := func() {
			go func() {
				_, err := Streamed(stream, 100, func() (int, error) { <-read; return 50, nil })
				written <- err
			}()
			time.Sleep(writePatience)
			synctest.Wait()
		}
		write()
		require.EqualValues(t, 100, e.gate.queries.holding())
		_, leaveOther, err := e.Enter(t.Context())
		require.NoError(t, err, "there is a place")
		read <- struct{}{}
		synctest.Wait()
		require.Empty(t, written, "it waits for a place")
		require.Zero(t, e.gate.queries.holding())
		leaveOther()
		require.NoError(t, <-written)

		quick, err := Streamed(stream, 100, func() (int, error) { return 50, nil })
		require.NoError(t, err)
		require.Equal(t, 50, quick)
		write()
		close(read)
		require.NoError(t, <-written)
		leave()
		require.Empty(t, e.gate.entered)
		require.Zero(t, e.gate.queries.holding())
	})
}

func TestLooksSmall(t *testing.T) {
	p := NewParser(parser.Options{})
	for text, want := range map[string][2]bool{ // an instant query, and one of 400 steps
		`up`: {true, false}, `rate(up[5m])`: {true, false}, `up[5m]`: {false, false}, `1`: {true, true}, `"text"`: {true, true},
		`sum(rate(up[5m]))`: {true, true}, `sum by (job) (rate(up[5m]))`: {true, true}, `sum without (job) (up)`: {true, false},
		`topk(5, up)`: {true, true}, `topk by (job) (5, up)`: {true, false}, `count_values("v", up)`: {true, false},
		`sum(up) / on() count(up)`: {true, true}, `sum(up) or up`: {true, false}, `-sum(up)`: {true, true}, `max_over_time(sum(up)[5m:])`: {true, true},
		`absent(up)`: {true, true}, `vector(time())`: {true, true},
	} {
		expr, err := p.ParseExpr(text)
		require.NoError(t, err)
		require.Equal(t, want[0], looksSmall(&parser.EvalStmt{Expr: expr}), text)
		require.Equal(t, want[1], looksSmall(&parser.EvalStmt{Expr: expr, End: time.Time{}.Add(400 * time.Minute), Interval: time.Minute}), text)
	}
	var known largeAnswers
	require.False(t, known.has("a"))
	for range 2 {
		known.add("a")
	}
	require.True(t, known.has("a"))
	require.False(t, known.has("b"))
}
