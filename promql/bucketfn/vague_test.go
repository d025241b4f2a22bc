package bucketfn_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestSumsOfValuesThatCancelOut checks that sums of small values among large ones that cancel out, within a bucket or
// between buckets, are exact or left to samples.
func TestSumsOfValuesThatCancelOut(t *testing.T) {
	const step, hour = 15_000, 3600_000
	exact := map[string]int{}
	for _, large := range []float64{0, 1e3, 1e6, 1e15, 1e17, 1e18, 1e25, 1e100} {
		for seed := range soak.Seeds(t, 20) {
			r := rand.New(rand.NewPCG(seed, 2))
			var s chunk.Samples
			total := new(big.Float).SetPrec(2000)
			for i := range 240 {
				v := r.Float64()
				switch { // twice each, in one bucket or in others
				case i == 30 || i == 35 || i == 100:
					v = large
				case i == 37 || i == 95 || i == 170:
					v = -large
				}
				s.AppendFloat(int64(i+1)*step, 0, v)
				total.Add(total, big.NewFloat(v))
			}
			want, _ := total.Float64()
			var fine, stored, coarse rollup.Buckets
			rollup.AppendEvery(&fine, &s, 300_000)
			require.NoError(t, rollup.Decode(rollup.AppendChunk(nil, &fine, 300_000, 1), rollup.AllColumns, &stored))
			rollup.Coarsen(&coarse, &stored, hour)
			for width, b := range map[string]*rollup.Buckets{"5m": &stored, "1h": &coarse} {
				for name, scale := range map[string]float64{"sum_over_time": 1, "avg_over_time": 240} {
					var out bucketfn.Result
					bucketfn.New(name).Evaluate(b, bucketfn.Windows{First: hour, Steps: 1, Span: hour}, &out)
					context := fmt.Sprintf("%s of %g from %s, seed %d", name, large, width, seed)
					if len(out.Value) == 0 {
						require.Equal(t, []int32{0}, out.Unanswered, context)
						require.GreaterOrEqual(t, large, 1e25, context)
						continue
					}
					require.Less(t, math.Abs(out.Value[0]-want/scale), 1e-12*math.Abs(want/scale), context)
					exact[fmt.Sprint(large, width)]++
				}
			}
		}
	}
	for _, large := range []string{"0", "1000", "1e+06", "1e+15", "1e+17", "1e+18"} {
		require.Equal(t, 40, exact[large+"5m"], large)
		require.Equal(t, 40, exact[large+"1h"], large)
	}
	require.Zero(t, exact["1e+1001h"])
}
