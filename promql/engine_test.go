package promql

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
)

// late is a Queryable that adds a warning while its samples are read, after the evaluator has read the warnings.
type late struct {
	fixed
	warn func()
}

func (l late) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	l.warn()
	return l.fixed.Iterator(it)
}

type oneSeries struct {
	promstorage.Series
	done bool
}

func (s *oneSeries) Next() bool                        { s.done = !s.done; return s.done }
func (s *oneSeries) At() promstorage.Series            { return s.Series }
func (s *oneSeries) Err() error                        { return nil }
func (s *oneSeries) Warnings() annotations.Annotations { return nil }

type lateQuerier struct {
	promstorage.Querier
	messages int
}

func (q lateQuerier) Close() error { return nil }
func (q lateQuerier) Select(ctx context.Context, _ bool, _ *promstorage.SelectHints,
	_ ...*labels.Matcher) promstorage.SeriesSet {
	w := warningsOf(ctx)
	return &oneSeries{Series: late{fixed{mixed()}, func() {
		for i := range q.messages {
			w.add(fmt.Errorf("row %d is corrupt", i))
		}
	}}}
}

func TestWarningsWhileReadingReachTheResult(t *testing.T) {
	for _, messages := range []int{0, 1, 10 * maxWarnings} {
		e := NewEngine(DefaultOptions())
		q := promstorage.QueryableFunc(func(_, _ int64) (promstorage.Querier, error) {
			return lateQuerier{messages: messages}, nil
		})
		query, err := e.NewInstantQuery(t.Context(), q, nil, "foo", time.Unix(0, 0))
		require.NoError(t, err)
		result := query.Exec(t.Context())
		require.NoError(t, result.Err)
		query.Close()
		require.Len(t, result.Warnings, min(messages, maxWarnings+1))

		query, err = e.NewRangeQuery(t.Context(), q, nil, "foo", time.Unix(0, 0), time.Unix(60, 0), time.Second)
		require.NoError(t, err)
		result = query.Exec(t.Context())
		require.NoError(t, result.Err)
		query.Close()
		require.Len(t, result.Warnings, min(messages, maxWarnings+1))
		require.NoError(t, e.Close())
	}
}

func TestGateBoundsWhatRunsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Options{MaxConcurrency: 2})
		require.Equal(t, 2, g.GetMaxConcurrent())
		var one int
		for range 2 {
			var err error
			one, err = g.Insert(t.Context(), "")
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2*waitingPerRunning)
		for range 2 * waitingPerRunning {
			go func() {
				i, err := g.Insert(ctx, "")
				g.Delete(i)
				results <- err
			}()
		}
		synctest.Wait()
		i, err := g.Insert(t.Context(), "")
		require.ErrorIs(t, err, ErrTooManyQueries)
		g.Delete(i)

		g.Delete(one) // The waiting queries use the only place one after the other, except those that are canceled.
		synctest.Wait()
		cancel()
		for range 2 * waitingPerRunning {
			if err := <-results; err != nil {
				require.True(t, errors.Is(err, context.Canceled))
			}
		}
		_, err = g.Insert(t.Context(), "")
		require.NoError(t, err)
	})
}
