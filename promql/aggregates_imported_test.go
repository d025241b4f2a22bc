package promql

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/rollup"
)

// downsampledStores are a store with samples, and a store with the aggregates that another system has computed from
// these samples: buckets of counts, sums, minima and maxima.
type downsampledStores struct{ samples, buckets *keptStore }

func newDownsampledStores(t *testing.T, res rollup.Resolution) *downsampledStores {
	now := time.Date(2026, 5, 21, 12, 0, 0, 0, time.UTC)
	open := func(raw, fiveMinutes time.Duration) *keptStore {
		s := &keptStore{t: t, eng: memory.New(), now: now, from: now.Add(-100 * testDay)}
		s.open(raw, fiveMinutes, 0)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	fine := 200 * testDay
	if res == rollup.OneHour {
		fine = 20 * testDay
	}
	d := &downsampledStores{open(0, 0), open(10*testDay, fine)}
	var counter, gauge, up chunk.Samples
	total := 0.0
	for i := range int64(6 * 24 * 60) { // one per minute, not at the edge of a bucket
		at := d.samples.from.UnixMilli() + i*60_000 + 17_000
		if total += float64(i % 7); i%1700 == 1699 {
			total = 2
		}
		counter.AppendFloat(at, 0, total)
		gauge.AppendFloat(at, 0, float64(i*i%101)-50)
		up.AppendFloat(at, 0, 1)
	}
	for name, s := range map[string]*chunk.Samples{"c_total": &counter, "g": &gauge, "up": &up} {
		ls := labels.FromStrings(labels.MetricName, name)
		var b, made rollup.Buckets
		rollup.AppendEvery(&b, s, res.Width())
		for i, end := range b.End {
			a := rollup.Aggregate{
				End: end, Count: b.Count[i], Sum: b.Sum[i], Min: b.Min[i], Max: b.Max[i], First: b.First[i],
				Last: b.Last[i], FirstT: b.FirstT[i], LastT: b.LastT[i], Correction: b.Correction[i],
			}
			if name == "g" {
				a.First, a.Last, a.Correction = a.Sum/float64(a.Count), a.Sum/float64(a.Count), 0
			}
			made.AppendAggregate(a, res.Width())
		}
		stats, err := d.buckets.ImportBuckets(t.Context(), "default", []storage.ImportedBuckets{
			{Labels: ls, Resolution: res, Buckets: &made},
		})
		require.NoError(t, err)
		require.Equal(t, s.Len(), stats.RollupsOnly)
		_, err = d.samples.Import(t.Context(), "default", []storage.ImportedSeries{{Labels: ls, Samples: s}})
		require.NoError(t, err)
	}
	return d
}

// TestQueriesOfAggregates compares answers computed from aggregates with answers computed from samples. Answers from
// known columns are exact and have no annotations. Answers from estimated columns have a warning. Answers that need
// unknown columns have no value.
func TestQueriesOfAggregates(t *testing.T) {
	for _, res := range rollup.Resolutions {
		t.Run(res.String(), func(t *testing.T) {
			d := newDownsampledStores(t, res)
			at := d.samples.from.Add(4 * testDay)
			ask := func(query string) (want, got float64, ok bool, notes string) {
				t.Helper()
				want, ok, _ = d.samples.ask(query, "raw", at)
				require.True(t, ok, query)
				got, ok, infos := d.buckets.ask(query, "", at)
				var texts []string
				for _, info := range infos {
					texts = append(texts, info.Error())
				}
				return want, got, ok, strings.Join(texts, "\n")
			}
			for _, metric := range []string{"c_total", "g", "up"} {
				for _, window := range []string{"1h", "6h", "2d"} {
					for _, f := range []string{
						"count_over_time", "sum_over_time", "avg_over_time", "min_over_time", "max_over_time",
					} {
						query := fmt.Sprintf("%s(%s[%s])", f, metric, window)
						want, got, ok, notes := ask(query)
						require.True(t, ok, query)
						require.InDelta(t, want, got, 1e-12*math.Max(1, math.Abs(want)), query)
						require.Empty(t, notes, query)
					}
				}
				for _, f := range []string{"changes", "resets"} {
					_, _, ok, notes := ask(fmt.Sprintf("%s(%s[6h])", f, metric))
					require.False(t, ok)
					require.Contains(t, notes, "steps that need raw samples have no value")
				}
				for _, query := range []string{
					"last_over_time(%s[6h])", "first_over_time(%s[6h])", "delta(%s[6h])",
					"quantile_over_time(0.5, %s[6h])", "deriv(%s[6h])", "stddev_over_time(%s[6h])",
					"sum_over_time(%s[6h7m])", "sum(rate(%s[6h]))", "predict_linear(%s[6h], 3600)", "%s",
				} {
					query = fmt.Sprintf(query, metric)
					_, _, ok, notes := ask(query)
					require.True(t, ok, query)
					require.Contains(t, notes, "which are estimates", query)
				}
			}
			for _, query := range []string{
				"rate(c_total[6h])", "increase(c_total[2d])", "last_over_time(c_total[1h])",
			} {
				want, got, ok, _ := ask(query)
				require.True(t, ok)
				require.InEpsilon(t, want, got, 1e-12, query)
			}
			want, got, _, _ := ask("quantile_over_time(0.5, up[6h])")
			require.Equal(t, want, got)
			want, got, _, _ = ask("stddev_over_time(up[6h])")
			require.Equal(t, want, got)
		})
	}
}
