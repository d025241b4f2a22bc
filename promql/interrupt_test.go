package promql

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// longQueries take hours to days although they read few series.
var longQueries = []string{
	`sum_over_time(max_over_time(vector(1)[4d:1s])[4d:1s])`,
	`max_over_time(stddev_over_time(long[4d])[4d:1s])`,
	`sum(quantile_over_time(0.5, quantile_over_time(0.5, long[2d:1s])[4d:1s]))`,
	`absent_over_time(count_over_time(long[2d:1s] @ end())[4d:100ms]) or max_over_time(predict_linear(long[4d:1s], 5)[4d:1s])`,
	`max_over_time((mad_over_time(long[4d:1s]) + 1)[4d:1s])`,
}

func longStore(t *testing.T) *storage.Store {
	store := readyStore(t)
	samples := storagetest.Samples(0, 60_000, 8*24*60, func(i int) float64 { return float64(i) })
	storagetest.Write(t, store, tenant.Default, labels.FromStrings(labels.MetricName, "long"), samples...)
	return store
}

// TestLongQueriesEnd checks that queries end at their timeout while the evaluator computes a single series.
func TestLongQueriesEnd(t *testing.T) {
	t.Parallel()
	store := longStore(t)
	o := DefaultOptions()
	o.Timeout, o.Parser.EnableExperimentalFunctions = 300*time.Millisecond, true
	e := NewEngine(o)
	defer func() { require.NoError(t, e.Close()) }()
	for _, text := range longQueries {
		q, err := e.NewInstantQuery(t.Context(), NewQueryable(store), nil, text, time.UnixMilli(8*24*3600_000))
		require.NoError(t, err)
		var timeout promengine.ErrQueryTimeout
		require.ErrorAs(t, q.Exec(t.Context()).Err, &timeout, text)
		q.Close()
	}
}

// TestLongQueriesAreCanceled checks that queries end when their client disconnects, and when they are canceled by id.
func TestLongQueriesAreCanceled(t *testing.T) {
	t.Parallel()
	store := longStore(t)
	e := NewEngine(DefaultOptions())
	defer func() { require.NoError(t, e.Close()) }()
	for name, end := range map[string]func(q promengine.Query, gone context.CancelFunc){
		"closed": func(_ promengine.Query, gone context.CancelFunc) { gone() },
		"cancel": func(q promengine.Query, _ context.CancelFunc) { q.Cancel() },
		"by id": func(promengine.Query, context.CancelFunc) {
			require.True(t, e.CancelQuery(e.ActiveQueries([]string{tenant.Default})[0].ID, []string{tenant.Default}))
		},
	} {
		ctx, gone := context.WithCancel(t.Context())
		q, err := e.NewInstantQuery(ctx, NewQueryable(store), nil, longQueries[0], time.UnixMilli(8*24*3600_000))
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- q.Exec(ctx).Err }()
		require.Eventually(t, func() bool { return len(e.ActiveQueries([]string{tenant.Default})) == 1 }, time.Minute,
			time.Millisecond)
		end(q, gone)
		var canceled promengine.ErrQueryCanceled
		require.ErrorAs(t, <-ended, &canceled, name)
		q.Close()
		gone()
	}
}

// TestQueriesAreCanceledAsTheyBegin checks that a query that is canceled as soon as it is listed as active ends,
// whichever stage of Exec it has reached.
func TestQueriesAreCanceledAsTheyBegin(t *testing.T) {
	t.Parallel()
	store := longStore(t)
	e := NewEngine(DefaultOptions())
	defer func() { require.NoError(t, e.Close()) }()
	for range 20 {
		q, err := e.NewInstantQuery(t.Context(), NewQueryable(store), nil, longQueries[0],
			time.UnixMilli(8*24*3600_000))
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- q.Exec(t.Context()).Err }()
		for len(e.ActiveQueries([]string{tenant.Default})) == 0 {
			runtime.Gosched()
		}
		q.Cancel()
		var canceled promengine.ErrQueryCanceled
		require.ErrorAs(t, <-ended, &canceled)
		q.Close()
	}
}

// TestFragmentsStopWithinASeries checks that the planner's loops over the steps of one series also check the context.
func TestFragmentsStopWithinASeries(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := &rawReader{ctx: ctx}
	require.False(t, r.hasEnded(0))
	cancel()
	require.True(t, r.hasEnded(0))
	require.False(t, (&rawReader{}).hasEnded(0), "without a query")
}
