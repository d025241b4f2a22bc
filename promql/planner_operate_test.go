package promql

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOperandsAreCounted checks that the samples of operands are counted as the evaluator counts them, at any position
// of the operation in a query.
func TestOperandsAreCounted(t *testing.T) {
	store := readyStore(t)
	s := sampler{t: t, rnd: rand.New(rand.NewPCG(45, 1)), store: store}
	s.fill()
	r := newRivals(t, NewQueryable(store), nil)
	r.ctx = newRollupContext(t, "raw")
	for _, text := range []string{
		"temperature", "temperature > 1e9", "2 * temperature", "sum(temperature > 1e9)", "temperature > 1e9 > 5",
		"(temperature > 1e9)", "temperature / temperature",
		"sum by (job) (temperature - on (instance, job) temperature) > 0", "temperature * 2 and up",
		"temperature + on (job, instance) group_left (zone) temperature",
		"count(temperature > bool 20) + sum(temperature * 3)",
	} {
		for _, a := range []asked{
			{text: text, start: sampledFrom + 1_800_000},
			{text: text, start: sampledFrom + 1_800_000, end: sampledFrom + 2_400_000, step: time.Minute},
		} {
			var total, read [2]int64
			for i, e := range []*Engine{r.plain, r.planned} {
				q, err := a.query(r.ctx, e, r.q)
				require.NoError(t, err)
				require.NoError(t, q.Exec(r.ctx).Err)
				samples := q.Stats().Samples
				total[i], read[i] = samples.TotalSamples, samples.SamplesRead
				q.Close()
			}
			require.Positive(t, total[0], a)
			require.Equal(t, total[0], total[1], a)
			require.Equal(t, read[0], read[1], a)
		}
	}
}
