package promql

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/memory"
)

// TestUnsealedSamplesPastTheRetention queries samples that pass the raw retention before they are sealed, as when the
// disk is full. Each function must count them, although there are no rollups and no sealed samples.
func TestUnsealedSamplesPastTheRetention(t *testing.T) {
	t.Parallel()
	for _, sealed := range []string{"", "younger", "older"} {
		t.Run("other samples: "+sealed, func(t *testing.T) {
			t.Parallel()
			s := &keptStore{t: t, eng: memory.New(), now: time.Date(2026, 5, 21, 12, 0, 0, 0, time.UTC)}
			s.open(testDay, 6*testDay, 0)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			at := s.now.Add(-2 * time.Hour)
			switch sealed {
			case "younger":
				s.importDays(at.Add(2*time.Hour), 1)
			case "older":
				s.importDays(at.Add(-22*time.Hour), 1)
			}
			b := s.NewBatch("default")
			series, err := b.Define(nil, labels.FromStrings(labels.MetricName, "g_total"))
			require.NoError(t, err)
			for i := range int64(120) {
				require.NoError(t, b.Float(series, at.UnixMilli()+i*60_000, 0, float64(i)))
			}
			require.NoError(t, b.Commit(t.Context()))
			for _, passed := range []time.Duration{0, 24 * time.Hour, 4 * time.Hour, 20 * time.Hour, 48 * time.Hour} {
				s.now = s.now.Add(passed)
				for _, resolution := range []string{"auto", "exact", "5m", "1h"} {
					s.requireUnsealed(resolution, at.Add(2*time.Hour))
				}
				_, err := s.Expire(t.Context())
				require.NoError(t, err)
			}
		})
	}
}

// requireUnsealed requires the answers for a counter that rose from 0 to 119 in the two hours before a time.
func (s *keptStore) requireUnsealed(resolution string, at time.Time) {
	s.t.Helper()
	for query, want := range map[string]float64{
		"count_over_time(g_total[1d])":                     120,
		"sum_over_time(g_total[2h])":                       119 * 120 / 2,
		"sum(max_over_time(g_total[1d]))":                  119,
		"resets(g_total[3h])":                              0,
		"last_over_time(g_total[1h])":                      119,
		"g_total":                                          119,
		"quantile_over_time(1, g_total[1d])":               119,
		"max_over_time(sum_over_time(g_total[1h])[2h:1h])": 5310,
		"count({__name__=\"g_total\"})":                    1,
	} {
		v, ok, infos := s.ask(query, resolution, at)
		require.True(s.t, ok, "%s at %s is empty: %v", query, resolution, infos)
		require.InDelta(s.t, want, v, 1e-9, "%s at %s: %v", query, resolution, infos)
	}
}
