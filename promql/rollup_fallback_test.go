package promql

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// expiringStore returns a store with four days of a counter with one sample every 15 s. Raw samples are kept for one
// day and 5m rollups for two.
func expiringStore(t *testing.T) (*storage.Store, time.Time) {
	now := time.Date(2026, 5, 5, 0, 0, 0, 0, time.UTC)
	begin := now.Add(-4 * 24 * time.Hour)
	clock := begin
	store := storagetest.Open(t, memory.New(), func(o *storage.Options) {
		o.Now, o.Retention, o.Retention5m = func() time.Time { return clock }, 24*time.Hour, 48*time.Hour
	})
	ls := labels.FromStrings(labels.MetricName, "requests_total", "job", "api")
	for n := 0; clock.Before(now); n += 480 {
		clock = clock.Add(2 * time.Hour)
		from := begin.UnixMilli() + int64(n+1)*15_000
		storagetest.Write(t, store, "default", ls, storagetest.Samples(from, 15_000, 480, func(i int) float64 {
			return float64(n + i + 1)
		})...)
	}
	require.NoError(t, store.SealAll(t.Context()))
	return store, now
}

func TestWhatTheEvaluatorDoesByItselfWhereRawIsGone(t *testing.T) {
	store, now := expiringStore(t)
	o := DefaultOptions()
	o.NoPlanner = true
	alone := NewEngine(o)
	defer alone.Close()
	planned := NewEngine(DefaultOptions())
	defer planned.Close()
	ask := func(e *Engine, ctx context.Context, query string, at time.Time) *promengine.Result {
		q, err := e.NewInstantQuery(ctx, NewQueryable(store), nil, query, at)
		require.NoError(t, err)
		defer q.Close()
		return q.Exec(ctx)
	}
	raw, err := WithResolution(t.Context(), "raw", 0)
	require.NoError(t, err)
	for name, at := range map[string]time.Time{"5m": now.Add(-36 * time.Hour), "1h": now.Add(-72 * time.Hour)} {
		for query, want := range map[string]float64{
			"timestamp(requests_total)":              float64(at.Unix()),
			"increase(requests_total[2h])":           480,
			"count_over_time(requests_total[2h])":    480,
			"max(max_over_time(requests_total[6h]))": float64(at.Sub(now.Add(-96*time.Hour)) / (15 * time.Second)),
			"absent(requests_total) or vector(7)":    7,
		} {
			r := ask(alone, t.Context(), query, at)
			require.NoError(t, r.Err, query)
			v, err := r.Vector()
			require.NoError(t, err)
			require.Len(t, v, 1, query)
			require.InEpsilon(t, want, v[0].F, 1e-3, "%s from %s", query, name)
			require.Len(t, r.Warnings, 1, query)
			require.Contains(t, r.Warnings.AsErrors()[0].Error(),
				"raw samples before 2026-05-04T00:00:00Z have expired")

			r = ask(alone, raw, query, at)
			require.NoError(t, r.Err, query)
			require.Len(t, r.Warnings, 1, query)
			require.ErrorContains(t, r.Warnings.AsErrors()[0], "no data is returned", query)
		}
		r := ask(alone, t.Context(), "idelta(requests_total[2h])", at)
		require.ErrorIs(t, r.Err, resolution.ErrRawExpired)
		r = ask(planned, t.Context(), "count_over_time(requests_total[2h])", at)
		require.NoError(t, r.Err)
		v, err := r.Vector()
		require.NoError(t, err)
		require.Equal(t, 480.0, v[0].F)
		require.Empty(t, r.Warnings, "buckets answer exactly")
		r = ask(planned, t.Context(), "quantile_over_time(0.5, requests_total[2h])", at)
		require.NoError(t, r.Err)
		require.Len(t, r.Warnings, 1)
		r = ask(planned, t.Context(), "idelta(requests_total[2h])", at)
		require.ErrorContains(t, r.Err, "raw samples have expired")
	}
	r := ask(alone, t.Context(), "requests_total", now.Add(-time.Hour))
	require.NoError(t, r.Err)
	require.Empty(t, r.Warnings, "raw is there")
}

func TestNothingIsSaidToBeGoneThatNeverWas(t *testing.T) {
	store, now := expiringStore(t)
	e := NewEngine(DefaultOptions())
	defer e.Close()
	for _, query := range []string{"rate(requests_total[7m])", "idelta(requests_total[7m])", "requests_total"} {
		q, err := e.NewRangeQuery(t.Context(), NewQueryable(store), nil, query, now.Add(-100*24*time.Hour),
			now.Add(-5*24*time.Hour), time.Hour)
		require.NoError(t, err)
		r := q.Exec(t.Context())
		require.NoError(t, r.Err, query)
		require.Empty(t, r.Warnings, query)
	}
}

// TestQueriesReadNoCoarserBucketsThanTheyAllow checks that, at times with only 1h buckets, queries that require 5m
// buckets return no value and an info that names the time, from the planner and from the evaluator.
func TestQueriesReadNoCoarserBucketsThanTheyAllow(t *testing.T) {
	store, now := expiringStore(t)
	for name, context := range map[string]func() (context.Context, error){
		"raw":                       func() (context.Context, error) { return WithResolution(t.Context(), "raw", 0) },
		"5m":                        func() (context.Context, error) { return WithResolution(t.Context(), "5m", 0) },
		"max_source_resolution":     func() (context.Context, error) { return WithResolution(t.Context(), "auto", 300_000) },
		"5m, max_source_resolution": func() (context.Context, error) { return WithResolution(t.Context(), "5m", 3600_000) },
	} {
		ctx, err := context()
		require.NoError(t, err)
		for _, planned := range []bool{false, true} {
			o := DefaultOptions()
			o.NoPlanner = !planned
			e := NewEngine(o)
			for _, query := range []string{"count_over_time(requests_total[2h])",
				"quantile_over_time(0.5, requests_total[2h])", "sum(requests_total)"} {
				for at, gone := range map[time.Time]bool{now.Add(-72 * time.Hour): true,
					now.Add(-36 * time.Hour): name == "raw", now.Add(-time.Hour): false} {
					q, err := e.NewInstantQuery(ctx, NewQueryable(store), nil, query, at)
					require.NoError(t, err)
					r := q.Exec(ctx)
					require.NoError(t, r.Err)
					v, err := r.Vector()
					require.NoError(t, err)
					require.Equal(t, gone, len(v) == 0, "%s, %s at %s, planned: %v", name, query, at, planned)
					if gone {
						require.Len(t, r.Warnings, 1)
						require.ErrorContains(t, r.Warnings.AsErrors()[0],
							"no data is returned, because the query excludes wider buckets")
					}
					q.Close()
				}
			}
			e.Close()
		}
	}
}
