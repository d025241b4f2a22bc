package promql

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

func TestNamesOfRollups(t *testing.T) {
	for name, want := range map[string][2]string{
		"foo_max": {"foo", "_max"}, "foo_avg": {"foo", "_avg"}, "foo": {}, "_max": {},
		"foo_min_min": {"foo_min", "_min"},
		"foo_min_max": {}, "foo_avg_avg": {}, "disk_reads_sum": {"disk_reads", "_sum"}, "disk_reads_max": {},
		"foo_count_count": {"foo_count", "_count"},
	} {
		metric, a := rollupNames{counters: []string{"reads", "writes"}}.splitName(name)
		if want[0] == "" {
			require.Nil(t, a, name)
			continue
		}
		require.NotNil(t, a, name)
		require.Equal(t, want, [2]string{metric, a.suffix}, name)
	}
}

func TestRollupsAreReadByName(t *testing.T) {
	now := time.Date(2026, 5, 5, 0, 0, 0, 0, time.UTC)
	store := storagetest.Open(t, memory.New(), storagetest.FixedClock(now))
	begin := now.Add(-24 * time.Hour).UnixMilli()
	write := func(name, job string, samples ...storagetest.FloatSample) {
		storagetest.Write(t, store, "default", labels.FromStrings(labels.MetricName, name, "job", job), samples...)
	}
	// The values are 1 to 60 in each hour.
	write("temperature", "api", storagetest.Samples(begin+60_000, 60_000, 24*60, func(i int) float64 {
		return float64(i%60 + 1)
	})...)
	write("disk_reads", "api", storagetest.Samples(begin+60_000, 60_000, 24*60, func(int) float64 { return 2 })...)
	write("load", "api", storagetest.Samples(begin+60_000, 60_000, 24*60, func(int) float64 { return 1 })...)
	write("temperature_count", "real", storagetest.FloatSample{T: begin + 1, V: 7})
	require.NoError(t, store.SealAll(t.Context()))

	for _, planned := range []bool{true, false} {
		eo := DefaultOptions()
		eo.NoPlanner = !planned
		e := NewEngine(eo)
		defer e.Close()
		var report *Report
		var notes []error
		ask := func(query, resolution string, step time.Duration) map[string][]float64 {
			ctx, err := WithResolution(t.Context(), resolution, 0)
			require.NoError(t, err)
			report = &Report{}
			ctx = report.Into(ctx)
			q, err := e.NewRangeQuery(ctx, NewQueryable(store, "reads"), nil, query, now.Add(-6*time.Hour), now, step)
			require.NoError(t, err)
			r := q.Exec(ctx)
			require.NoError(t, r.Err)
			notes = r.Warnings.AsErrors()
			m, err := r.Matrix()
			require.NoError(t, err)
			out := map[string][]float64{}
			for _, s := range m {
				for _, p := range s.Floats {
					out[s.Metric.String()] = append(out[s.Metric.String()], p.F)
				}
			}
			return out
		}
		hourly := func(v float64) []float64 { return []float64{v, v, v, v, v, v, v} }
		for query, want := range map[string]map[string][]float64{
			"temperature_max":   {`{__name__="temperature_max", job="api"}`: hourly(60)},
			"temperature_min":   {`{__name__="temperature_min", job="api"}`: hourly(1)},
			"temperature_sum":   {`{__name__="temperature_sum", job="api"}`: hourly(1830)},
			"temperature_avg":   {`{__name__="temperature_avg", job="api"}`: hourly(30.5)},
			"temperature_count": {}, // a stored series has that name, at another time
			"load_count":        {`{__name__="load_count", job="api"}`: hourly(60)},
			"disk_reads_sum":    {`{__name__="disk_reads_sum", job="api"}`: hourly(120)},
			"disk_reads_max":    {},
			"sum(max_over_time(temperature_max[2h]))": {"{}": hourly(60)},
			`temperature_max{job="other"}`:            {},
			`{__name__=~"temperature_m.*"}`:           {},
		} {
			require.Equal(t, want, ask(query, "", time.Hour), query)
			if len(want) > 0 {
				require.Equal(t, "1h", report.Resolution(), query)
				require.Len(t, report.Fragments(), 1, query)
				require.Equal(t, 1, report.Fragments()[0].Series, query)
				require.Empty(t, notes, query)
			}
			require.Empty(t, ask(query, "raw", time.Hour), query)
		}
		fine := ask("temperature_max", "5m", time.Hour)
		require.Equal(t, hourly(60), fine[`{__name__="temperature_max", job="api"}`],
			"the last five minutes of each hour")
		require.Equal(t, "5m", report.Resolution())
		ask("temperature_max - temperature_max offset 2h + ignoring(job) sum(quantile_over_time(0.5, disk_reads[1h]))",
			"", time.Hour)
		if planned {
			require.Equal(t, "1h, raw", report.Resolution(), "buckets have no quantiles")
			require.Len(t, report.Fragments(), 3)
		}
		require.Len(t, ask("temperature_max", "", 5*time.Minute)[`{__name__="temperature_max", job="api"}`], 73)
		require.Less(t, len(ask("temperature_max", "1h", 25*time.Minute)[`{__name__="temperature_max", job="api"}`]), 7)
		require.Len(t, notes, 1)
		require.ErrorContains(t, notes[0],
			"temperature_max has one value per bucket of 1h, at the end of the bucket; use that step or a multiple of it, or a range over it")
	}

	names := func(ctx context.Context, hints *promstorage.LabelHints) []string {
		q, err := NewQueryable(store, "reads").Querier(begin, now.UnixMilli())
		require.NoError(t, err)
		list, _, err := q.LabelValues(ctx, labels.MetricName, hints)
		require.NoError(t, err)
		return list
	}
	require.Equal(t, []string{"disk_reads", "load", "temperature", "temperature_count"}, names(t.Context(), nil))
	require.Equal(t, []string{
		"disk_reads", "disk_reads_sum", "load", "load_avg", "load_count", "load_max", "load_min", "load_sum",
		"temperature", "temperature_avg", "temperature_count", "temperature_count_count",
		"temperature_max", "temperature_min", "temperature_sum",
	}, names(WithRollupNames(t.Context()), nil))
	require.Len(t, names(WithRollupNames(t.Context()), &promstorage.LabelHints{Limit: 3}), 3)
}
