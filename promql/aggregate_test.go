package promql

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// TestAggregationsOfUnusualValues checks that the planner aggregates NaN and infinities, and accepts computed and
// out-of-range parameters, as the evaluator does.
func TestAggregationsOfUnusualValues(t *testing.T) {
	store := readyStore(t)
	b := store.NewBatch("default")
	nan, inf := math.NaN(), math.Inf(1)
	for i, values := range [][]float64{{nan, 1, inf, -inf}, {nan, nan, 1, 1}, {2, nan, nan, -1}, {3, 0.5, 2, nan}} {
		s, err := b.Define(nil, labels.FromStrings(model.MetricNameLabel, "m", "i", strconv.Itoa(i)))
		require.NoError(t, err)
		for k, v := range values {
			require.NoError(t, b.Float(s, int64(k)*minute, 0, v))
		}
	}
	require.NoError(t, b.Commit(t.Context()))
	r := newRivals(t, NewQueryable(store), nil)
	queries := []string{
		"topk(2, m)", "bottomk(2, m)", "topk(5 - 3, m)", "bottomk(4 / 2, m)", "topk(10, m)", "sum(m)", "avg(m)",
		"min(m)", "max(m)", "stddev(m)", "stdvar(m)",
		"quantile(0.5, m)", "quantile(1 / 2, m)", "quantile(1.5, m)", "quantile(2 - 3, m)", "quantile(NaN, m)",
	}
	times := []asked{{start: 0, end: 3 * minute, step: time.Minute}, {start: 0}, {start: minute}, {start: 2 * minute},
		{start: 3 * minute}}
	for _, query := range queries {
		for _, at := range times {
			d, ok := r.difference(at.of(query))
			require.True(t, ok, query)
			require.Empty(t, d, at.of(query))
		}
	}
	require.Equal(t, map[string]int{"": len(queries) * len(times)}, r.fragments, "the planner answered")
	require.Zero(t, r.undecided+r.failing+r.empty)
}
