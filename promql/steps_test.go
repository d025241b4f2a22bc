package promql

import (
	"testing"
	"time"

	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"
)

// TestStepsOfSubqueriesAreBounded checks the bound on steps. Beyond the bound, the evaluator would allocate more memory
// than any machine has.
func TestStepsOfSubqueriesAreBounded(t *testing.T) {
	o := DefaultOptions()
	o.MaxSamples = 10_000
	e := NewEngine(o)
	defer func() { require.NoError(t, e.Close()) }()
	nothing := promstorage.QueryableFunc(func(int64, int64) (promstorage.Querier, error) {
		return promstorage.NoopQuerier(), nil
	})
	for query, ok := range map[string]bool{
		"vector(1)":                                                                  true,
		"count_over_time(vector(1)[10000s:1s])":                                      true,
		"count_over_time(vector(1)[10001s:1s])":                                      false,
		"count_over_time(vector(1)[10000m:])":                                        true,
		"count_over_time(vector(1)[10001m:])":                                        false,
		"1 + abs(count_over_time(vector(1)[50y:1ms]))":                               false,
		"count_over_time(count_over_time(vector(1)[5000s:1s])[5000s:1s])":            true,
		"count_over_time(count_over_time(vector(1)[5001s:1s])[5000s:1s])":            false,
		"count_over_time(vector(1)[100y:1ms] offset 1y)":                             false,
		"count_over_time(vector(1)[(50y + 50y):(1ms * 2)] @ 0)":                      false,
		"count_over_time(vector(1)[292y:1d]) + count_over_time(vector(1)[292y:1ms])": false,
	} {
		made, err := e.NewInstantQuery(t.Context(), nothing, nil, query, time.Unix(0, 0))
		if !ok {
			require.ErrorIs(t, err, ErrQueryTooComplex, query)
			require.ErrorContains(t, err, "has more steps than the maximum number of samples per query, 10000", query)
			continue
		}
		require.NoError(t, err, query)
		made.Close()
	}
	_, err := e.NewRangeQuery(t.Context(), nothing, nil, "count_over_time(vector(1)[5000s:1s])", time.Unix(0, 0),
		time.Unix(6000, 0), time.Hour)
	require.ErrorIs(t, err, ErrQueryTooComplex, "the range of the query comes on top")
	_, err = e.NewRangeQuery(t.Context(), nothing, nil, "vector(1)", time.Unix(0, 0), time.Unix(0, 0),
		100*time.Microsecond)
	require.ErrorContains(t, err, "the step is 100µs")
}
