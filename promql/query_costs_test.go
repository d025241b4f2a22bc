package promql

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/tenant"
)

// TestQueryCostsAreReported checks that the log line of a slow query and the list of top queries contain the cost of
// the query and the resolutions that answered it.
func TestQueryCostsAreReported(t *testing.T) {
	store := readyStore(t)
	put(t, store, tenant.Default, labels.FromStrings(model.MetricNameLabel, "m"), 0, 1000, 2000)
	var log bytes.Buffer
	o := DefaultOptions()
	o.LogSlowerThan, o.Logger = time.Nanosecond, slog.New(slog.NewTextHandler(&log, nil))
	e := NewEngine(o)
	report := &Report{}
	ctx := report.Into(t.Context())
	for _, query := range []string{"sum(m)", "sum(m)", "stddev_over_time(m[1m])", "vector(1)"} {
		q, err := e.NewInstantQuery(ctx, NewQueryable(store), nil, query, time.Unix(2, 0))
		require.NoError(t, err)
		require.NoError(t, q.Exec(ctx).Err)
		q.Close()
	}
	require.Contains(t, log.String(), "query=sum(m)")
	require.Contains(t, log.String(), "resolution=raw")
	require.Equal(t, "raw", report.Resolution())

	top := e.TopQueries([]string{tenant.Default}, "count", 10).Queries
	require.Len(t, top, 3)
	require.Equal(t, "sum(m)", top[0].Query)
	require.EqualValues(t, 2, top[0].Count)
	require.Positive(t, top[0].Samples)
	require.Empty(t, e.TopQueries([]string{"other"}, "count", 10).Queries)
	require.NoError(t, e.Close())
}

// TestMemoryOfTheProcessEndsQueries checks that the memory of the whole process is measured, and that queries are ended
// with an error if it is far above the limit.
func TestMemoryOfTheProcessEndsQueries(t *testing.T) {
	o := DefaultOptions()
	o.Memory = 1 << 10
	e := NewEngine(o)
	q, err := e.NewInstantQuery(t.Context(), stuck{make(chan struct{})}, nil, "up", time.Unix(60, 0))
	require.NoError(t, err)
	require.ErrorIs(t, q.Exec(t.Context()).Err, tsdb.ErrNotReady)
	q.Close()
	o.Memory = 1 << 50
	require.NoError(t, e.Close())
	e = NewEngine(o)
	q, err = e.NewInstantQuery(t.Context(), stuck{}, nil, "vector(1)", time.Unix(60, 0))
	require.NoError(t, err)
	require.NoError(t, q.Exec(t.Context()).Err)
	q.Close()
	require.NoError(t, e.Close())
}

// TestNothingIsCoarserThanAsked checks that a query reads no resolution coarser than the coarsest that it allows.
func TestNothingIsCoarserThanAsked(t *testing.T) {
	store, now := expiringStore(t)
	e := NewEngine(DefaultOptions())
	for coarsest, want := range map[int64]string{0: "1h", minute: "raw", hour - 1: "5m", hour: "1h", 24 * hour: "1h"} {
		ctx, err := WithResolution(t.Context(), "", coarsest)
		require.NoError(t, err)
		report := &Report{}
		ctx = report.Into(ctx)
		q, err := e.NewRangeQuery(ctx, NewQueryable(store), nil, "max_over_time(requests_total[2h])",
			now.Add(-6*time.Hour), now, time.Hour)
		require.NoError(t, err)
		require.NoError(t, q.Exec(ctx).Err)
		q.Close()
		require.Equal(t, want, report.Resolution(), coarsest)
	}
	_, err := WithResolution(t.Context(), "2h", 0)
	require.Error(t, err)
	require.NoError(t, e.Close())
}

// TestStartTimestampsArePlanned checks that the planner computes functions that use start timestamps as the evaluator
// does.
func TestStartTimestampsArePlanned(t *testing.T) {
	for _, about := range []string{"staged", "sealed"} {
		store := readyStore(t)
		b := store.NewBatch(tenant.Default)
		s, err := b.Define(nil, labels.FromStrings(model.MetricNameLabel, "m"))
		require.NoError(t, err)
		for at := minute; at <= 6*hour; at += minute {
			start := (at - 1) / (25 * minute) * 25 * minute
			require.NoError(t, b.Float(s, at, start, float64(at-start)))
		}
		require.NoError(t, b.Commit(t.Context()))
		if about == "sealed" {
			require.NoError(t, store.SealAll(t.Context()))
		}
		r := newRivals(t, NewQueryable(store), func(o *Options) { o.StartTimestamps = true })
		for _, query := range []string{"rate(m[1h])", "increase(m[2h])", "sum(rate(m[7m]))"} {
			d, ok := r.difference(asked{start: 2 * hour, end: 6 * hour, step: time.Hour}.of(query))
			require.True(t, ok)
			require.Empty(t, d, "%s, %s", about, query)
		}
		require.Equal(t, map[string]int{"": 3}, r.fragments, about)
		require.Zero(t, r.empty)
	}
}
