package expand

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestExpandedStartsLeaveNoGaps requires that the samples of expanded hours fill each hour without gaps. The counter
// has start timestamps, no gaps between samples, and is restarted about every 12 minutes.
func TestExpandedStartsLeaveNoGaps(t *testing.T) {
	const step, width = 15_000, 3_600_000
	r := rand.New(rand.NewPCG(soak.FirstSeed(t), 1))
	widest, densest := int64(0), 0
	for range 100 {
		var s chunk.Samples
		start, v := int64(1), 0.0
		for at := int64(5000); at <= 10*width; at += step {
			if r.IntN(48) == 0 {
				start, v = at-1-r.Int64N(step-2), 0
			}
			v += float64(r.IntN(20))
			s.AppendFloat(at, start, v)
		}
		var b rollup.Buckets
		rollup.AppendEvery(&b, &s, width)
		var x Expander
		for i := range b.End {
			var made chunk.Samples
			x.Expand(&made, &b, i)
			require.Len(t, made.T, int(b.Count[i]))
			for k, at := range made.T[1:] {
				widest = max(widest, at-made.T[k])
			}
			from := 0
			for k, at := range made.T {
				for made.T[from] <= at-300_000 {
					from++
				}
				densest = max(densest, k-from+1)
			}
		}
	}
	require.LessOrEqual(t, widest, int64(4*step))
	require.LessOrEqual(t, densest, 3*300_000/step)
}
