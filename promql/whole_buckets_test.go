package promql

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/tenant"
)

// shapesOfBuckets returns series with changes and resets that samples on a line from the first to the last value of a
// bucket wouldn't have.
func shapesOfBuckets(begin time.Time) []storage.ImportedSeries {
	r := rand.New(rand.NewPCG(7, 7))
	state := map[string]float64{"up": 1, "requests_total": 1e6}
	next := map[string]func(v float64) float64{
		"up": func(v float64) float64 { // One outage in some hours.
			if v == 0 && r.IntN(7) == 0 || v == 1 && r.IntN(200) == 0 {
				return 1 - v
			}
			return v
		},
		"is_leader": func(float64) float64 { return float64(r.IntN(2)) },
		"replicas": func(v float64) float64 {
			if r.IntN(25) == 0 {
				return math.Round(3 + 2*r.NormFloat64())
			}
			return v
		},
		"temperature": func(float64) float64 { return math.Round(450+3*r.NormFloat64()) / 10 },
		"memory":      func(v float64) float64 { return max(v+4096*math.Round(100*r.NormFloat64()), 4096) },
		"requests_total": func(v float64) float64 {
			if r.IntN(150) == 0 {
				return 0
			}
			return v + float64(r.IntN(3)*r.IntN(40))
		},
	}
	var all []storage.ImportedSeries
	for _, name := range []string{"up", "is_leader", "replicas", "temperature", "memory", "requests_total"} {
		var s chunk.Samples
		v := state[name]
		for i := range 10 * 24 * 60 {
			v = next[name](v)
			at := begin.Add(time.Duration(i)*time.Minute + 7*time.Second).UnixMilli()
			if name == "memory" && i%7 == 3 { // Some scrapes are late.
				at += 35 + r.Int64N(20)
			}
			s.AppendFloat(at, 0, v)
		}
		all = append(all, storage.ImportedSeries{Labels: labels.FromStrings("__name__", "shape", "of", name),
			Samples: &s})
	}
	return all
}

// TestWindowsUseBucketsWholeWhateverTheStep checks that, at any step of a query, a window whose edges are bucket edges
// has the same answer as from raw samples. The whole buckets inside the window are used even if the edges of other
// windows cut them.
func TestWindowsUseBucketsWholeWhateverTheStep(t *testing.T) {
	a := newAgedStores(t, shapesOfBuckets)
	e := NewEngine(DefaultOptions())
	defer e.Close()
	ctx, err := WithResolution(tenant.NewContext(t.Context(), "default"), "exact", 0)
	require.NoError(t, err)
	functions := []string{"changes", "resets", "rate", "increase", "delta", "sum_over_time", "avg_over_time",
		"min_over_time", "max_over_time", "count_over_time",
		"first_over_time", "last_over_time", "stddev_over_time", "deriv", "predict_linear"}
	for _, zone := range []struct {
		from   time.Time
		width  time.Duration
		ranges []string
	}{
		{a.now.Add(-7 * 24 * time.Hour), time.Hour, []string{"1d", "2h"}},
		{a.now.Add(-4 * 24 * time.Hour), 5 * time.Minute, []string{"1d", "2h", "10m"}},
	} {
		for _, step := range []time.Duration{time.Second, time.Minute, 5 * time.Minute, time.Hour} {
			from, to := zone.from.Add(-20*step), zone.from.Add(max(130*step, min(2*time.Hour, 1000*step)))
			for _, function := range functions {
				for _, width := range zone.ranges {
					query := fmt.Sprintf(`%s(shape[%s])`, function, width)
					if function == "predict_linear" {
						query = fmt.Sprintf(`predict_linear(shape[%s], 600)`, width)
					}
					want, _ := a.points(t, e, a.whole, ctx, query, from, to, step)
					got, _ := a.points(t, e, a.aged, ctx, query, from, to, step)
					require.Len(t, want, 6)
					for series, values := range want {
						compared, tolerance := 0, 1e-11*1e6
						if function == "deriv" {
							tolerance = 1e-9 * slices.MaxFunc(slices.Collect(maps.Values(values)),
								func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
							tolerance = math.Abs(tolerance)
						}
						for at, v := range values {
							if at%zone.width.Milliseconds() != 0 {
								continue
							}
							compared++
							require.InDelta(t, v, got[series][at], tolerance+1e-11*math.Abs(v),
								"%s of %s at %s, step %s", query, series, time.UnixMilli(at).UTC(), step)
						}
						require.NotZero(t, compared, query)
					}
				}
			}
		}
	}
}

// TestSamplesMadeOfBucketsMakeThem checks that samples made from buckets can be rolled up to the same buckets, for all
// readers: remote read, exports, and expressions that the planner leaves to the evaluator.
func TestSamplesMadeOfBucketsMakeThem(t *testing.T) {
	a := newAgedStores(t, shapesOfBuckets)
	for _, zone := range []struct {
		from  time.Time
		width time.Duration
	}{{a.now.Add(-8 * 24 * time.Hour), time.Hour}, {a.now.Add(-5 * 24 * time.Hour), 5 * time.Minute}} {
		read := func(store *storage.Store) map[string]*chunk.Samples {
			q, err := NewQueryable(store).Querier(zone.from.UnixMilli()+1, zone.from.Add(24*time.Hour).UnixMilli())
			require.NoError(t, err)
			defer q.Close()
			ctx := WithReading(tenant.NewContext(t.Context(), "default"), &Reading{})
			set := q.Select(ctx, true, &promstorage.SelectHints{Start: zone.from.UnixMilli() + 1,
				End: zone.from.Add(24 * time.Hour).UnixMilli()},
				name("shape"))
			all := map[string]*chunk.Samples{}
			for set.Next() {
				var s chunk.Samples
				it := set.At().Iterator(nil)
				for it.Next() == chunkenc.ValFloat {
					at, v := it.At()
					s.AppendFloat(at, 0, v)
				}
				require.NoError(t, it.Err())
				all[set.At().Labels().Get("of")] = &s
			}
			require.NoError(t, set.Err())
			return all
		}
		raw, made := read(a.whole), read(a.aged)
		require.Len(t, made, 6)
		for of, s := range raw {
			var want, got rollup.Buckets
			rollup.AppendEvery(&want, s, zone.width.Milliseconds())
			rollup.AppendEvery(&got, made[of], zone.width.Milliseconds())
			require.Equal(t, [][]uint32{want.Count, want.Changes, want.Resets},
				[][]uint32{got.Count, got.Changes, got.Resets}, of)
			require.Equal(t, [][]float64{want.First, want.Last, want.Min, want.Max},
				[][]float64{got.First, got.Last, got.Min, got.Max}, of)
			for i, v := range want.Sum {
				require.InDelta(t, v, got.Sum[i], 1e-12*(math.Abs(v)+1), of)
			}
			if of == "up" || of == "is_leader" || of == "requests_total" {
				require.InDeltaSlice(t, want.Correction, got.Correction, 1e-5, of)
			}
			if of != "up" && of != "is_leader" {
				continue
			}
			for _, v := range made[of].V {
				require.True(t, v == 0 || v == 1, "%s has %v", name, v)
			}
		}
	}
}
