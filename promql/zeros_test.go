package promql

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestSignsOfZeros checks that the functions and aggregations of the planner return zeros with the same signs as the
// evaluator, for series of zeros of both signs, NaN, infinities and stale markers. The windows are so long that sorting
// doesn't use insertion sort, which would keep the order of equal values.
func TestSignsOfZeros(t *testing.T) {
	t.Parallel()
	store := readyStore(t)
	s := sampler{t: t, rnd: rand.New(rand.NewPCG(soak.Seed(t), 3)), store: store}
	of := []float64{0, math.Copysign(0, -1), 0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1),
		5e-324, -5e-324}
	s.series("zeros", 60, func(b *storage.Batch, series *storage.Series, i int) {
		some := of[:[]int{2, 6, len(of)}[i%3]]
		s.floats(b, series, func() float64 {
			if i%2 == 0 && s.rnd.IntN(4) > 0 {
				return 0
			}
			return some[s.rnd.IntN(len(some))]
		})
	})
	r := newRivals(t, NewQueryable(store), nil)
	r.ctx = newRollupContext(t, "raw")
	q := func() string { return fmt.Sprint([]float64{0, 0.1, 0.25, 0.5, 0.9, 0.99, 1}[s.rnd.IntN(7)]) }
	for range 200 {
		width := []string{"1m", "4m", "10m", "25m"}[s.rnd.IntN(4)]
		for _, text := range []string{
			fmt.Sprintf("quantile_over_time(%s, zeros[%s])", q(), width), fmt.Sprintf("quantile(%s, zeros)", q()),
			fmt.Sprintf("quantile by (job) (%s, max_over_time(zeros[%s]))", q(), width),
			fmt.Sprintf("%s_over_time(zeros[%s])", []string{"min", "max", "sum", "avg"}[s.rnd.IntN(4)], width),
			fmt.Sprintf("%s by (job) (zeros)", []string{"min", "max", "sum", "avg", "stddev"}[s.rnd.IntN(5)]),
			fmt.Sprintf("%s(zeros[%s])", []string{"rate", "increase", "delta"}[s.rnd.IntN(3)], width),
		} {
			a := asked{text: text, start: sampledFrom + s.rnd.Int64N(3_000_000),
				step: time.Duration(1+s.rnd.IntN(300)) * time.Second}
			a.end = a.start + 20*a.step.Milliseconds()
			d, ok := r.difference(a)
			require.True(t, ok)
			require.Empty(t, d, "%s", a)
		}
	}
	require.Greater(t, r.fragments[""], 600)
}
