package promql

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/stats"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/storagetest"
)

// TestStatisticsCountWhatIsRead checks that the statistics of a query that the planner computes count the samples and
// buckets that it reads, as the evaluator counts samples, and not the points of the answer.
func TestStatisticsCountWhatIsRead(t *testing.T) {
	store := readyStore(t)
	b := store.NewBatch("default")
	const start = 1_700_000_000_000 / 7_200_000 * 7_200_000
	for _, job := range []string{"a", "b", "c"} {
		storagetest.Add(t, b, labels.FromStrings(labels.MetricName, "requests_total", "job", job),
			storagetest.Samples(start, 10_000, 180, func(i int) float64 { return float64(i) })...)
	}
	require.NoError(t, b.Commit(t.Context()))
	o := DefaultOptions()
	o.PerStepStats = true
	metrics := prometheus.NewRegistry()
	o.Registerer = metrics
	planned := NewEngine(o)
	defer func() { require.NoError(t, planned.Close()) }()
	o.NoPlanner, o.Registerer = true, nil
	plain := NewEngine(o)
	defer func() { require.NoError(t, plain.Close()) }()
	q := NewQueryable(store)
	read := func(e *Engine, text string, steps int) *stats.QuerySamples {
		end := time.UnixMilli(start + 1_800_000)
		options := promengine.NewPrometheusQueryOpts(true, 0)
		query, err := e.NewRangeQuery(t.Context(), q, options, text, end.Add(-time.Duration(steps-1)*time.Minute), end,
			time.Minute)
		if steps == 1 {
			query, err = e.NewInstantQuery(t.Context(), q, options, text, end)
		}
		require.NoError(t, err)
		defer query.Close()
		require.NoError(t, query.Exec(t.Context()).Err)
		samples := *query.Stats().Samples
		samples.SamplesReadPerStep = slices.Clone(samples.SamplesReadPerStep)
		return &samples
	}
	var total, samplesRead int64
	for _, text := range []string{
		"requests_total", "sum(requests_total)", "sum(rate(requests_total[10m]))", "rate(requests_total[5m])",
		"max_over_time(requests_total[3m])",
		"sum(rate(requests_total[5m])) / 2", "rate(requests_total[5m]) / rate(requests_total[7m])",
		"avg_over_time(requests_total[5m]) + on (job) group_left requests_total",
		"topk(1, sum by (job) (increase(requests_total[10m])))",
	} {
		for _, steps := range []int{1, 11} {
			want, got := read(plain, text, steps), read(planned, text, steps)
			require.Equal(t, want.SamplesRead, got.SamplesRead, "%s at %d steps", text, steps)
			if steps == 1 {
				require.Equal(t, want.TotalSamples, got.TotalSamples, text)
			}
			total, samplesRead = total+got.TotalSamples, samplesRead+got.SamplesRead
			var sum int64
			for _, n := range got.SamplesReadPerStep {
				require.GreaterOrEqual(t, n, int64(0), text)
				sum += n
			}
			require.Equal(t, got.SamplesRead, sum, "%s by step", text)
		}
	}
	require.NoError(t, testutil.GatherAndCompare(
		metrics,
		strings.NewReader(fmt.Sprintf(
			`# HELP prometheus_engine_query_samples_read_total The total number of samples read by all queries (only new points per step for range-vector).
# TYPE prometheus_engine_query_samples_read_total counter
prometheus_engine_query_samples_read_total %d
# HELP prometheus_engine_query_samples_total The total number of samples loaded by all queries (full window per step for range-vector).
# TYPE prometheus_engine_query_samples_total counter
prometheus_engine_query_samples_total %d
`, samplesRead, total,
		)), "prometheus_engine_query_samples_read_total", "prometheus_engine_query_samples_total",
	))
	top := planned.TopQueries([]string{"default"}, "samples", 1).Queries
	require.Len(t, top, 1)
	require.Greater(t, top[0].Samples, int64(300), "what was read, not the points of the answer")
}
