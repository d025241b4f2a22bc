package promql

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/soak"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// churnedSample is a sample that may be a stale marker.
type churnedSample struct {
	t     int64
	stale bool
}

// writeChurn writes many short-lived series, enough for queries to use the spans of chunks. The series have gaps, stale
// markers and late samples. It returns their samples.
func writeChurn(t *testing.T, rng *rand.Rand, store *storage.Store, from, until int64) (all [][]churnedSample) {
	all = make([][]churnedSample, 2600)
	for part := range 2 { // The second part has late samples.
		batch := store.NewBatch("default")
		for i := range all {
			if part == 1 && i%5 > 0 {
				continue
			}
			ref, err := batch.Define(fmt.Append(nil, i), labels.FromStrings(model.MetricNameLabel,
				fmt.Sprint("pods_", i%2), "job", "pods", "pod", fmt.Sprint(i)))
			require.NoError(t, err)
			at := from + rng.Int64N(until-from)
			if n := len(all[i]); n > 0 {
				at = all[i][n-1].t + 1 + rng.Int64N(hour)
			}
			for n := rng.IntN(20); n >= 0 && at < until; n-- {
				v, stale := float64(n), n == 0 && i%3 == 0 || rng.IntN(20) == 0
				if stale {
					v = math.Float64frombits(value.StaleNaN)
				}
				require.NoError(t, batch.Float(ref, at, 0, v))
				all[i] = append(all[i], churnedSample{at, stale})
				at += 15_000 + rng.Int64N(2)*rng.Int64N(10*minute)
			}
		}
		require.NoError(t, batch.Commit(t.Context()))
		if part == 0 && rng.IntN(2) == 0 {
			require.NoError(t, store.SealAll(t.Context()))
		}
	}
	return all
}

// TestCountOverChurn checks that counts of short-lived series equal counts of the samples, unsealed and sealed, from
// the planner and the evaluator.
func TestCountOverChurn(t *testing.T) {
	rng := rand.New(rand.NewPCG(soak.Seed(t), 40))
	end := someDay + 10*hour + 30*minute
	store := storagetest.Open(
		t, storagetest.Pebble(t), storagetest.KeepForever, storagetest.FixedClock(time.UnixMilli(end)),
	)
	from := end - 5*hour
	all := writeChurn(t, rng, store, from, end)
	countAt := func(at int64) (n int) {
		for _, samples := range all {
			var newest churnedSample
			for _, s := range samples {
				if s.t <= at {
					newest = s
				}
			}
			if newest.t > at-5*minute && !newest.stale {
				n++
			}
		}
		return n
	}
	for _, sealed := range []bool{false, true, true} { // The last read is from the cache.
		if sealed {
			require.NoError(t, store.SealAll(t.Context()))
		}
		for _, planner := range []bool{false, true} {
			o := DefaultOptions()
			o.NoPlanner = !planner
			e, q := NewEngine(o), NewQueryable(store)
			for range 5 {
				a := asked{text: `count({job="pods"}) or vector(0)`, start: from + rng.Int64N(end-from),
					step: 7 * time.Minute}
				a.end = a.start + rng.Int64N(2)*hour
				query, err := a.query(t.Context(), e, q)
				require.NoError(t, err)
				result := query.Exec(t.Context())
				require.NoError(t, result.Err)
				matrix, ok := result.Value.(promengine.Matrix)
				require.True(t, ok)
				got := map[int64]int{}
				for _, s := range matrix {
					for _, p := range s.Floats {
						got[p.T] = int(p.F)
					}
				}
				want := map[int64]int{}
				for at := a.start; at <= a.end; at += a.step.Milliseconds() {
					want[at] = countAt(at)
				}
				require.Equal(t, want, got, "sealed %v, planner %v, from %d to %d", sealed, planner, a.start, a.end)
				query.Close()
			}
			require.NoError(t, e.Close())
		}
	}
}
