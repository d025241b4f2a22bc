package query

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// TestHiddenStarts checks that hiding the start timestamps up to a time, in samples and in buckets of these samples,
// has the same result as if the samples up to that time had been sent without start timestamps.
func TestHiddenStarts(t *testing.T) {
	r := rand.New(rand.NewPCG(soak.Seed(t), 0))
	const width, buckets = 300_000, 12
	for range 300 {
		var samples chunk.Samples
		starts := soak.Starts{Rand: r, Kind: soak.StartKinds[r.IntN(len(soak.StartKinds))]}
		floats, before := r.IntN(2) == 0, math.Inf(-1)
		for at := r.Int64N(2 * width); at < buckets*width; at += 1 + r.Int64N(width) {
			v := float64(r.IntN(100))
			if st := starts.Next(at, v < before); floats {
				samples.AppendFloat(at, st, v)
			} else {
				samples.AppendHistogram(chunk.Histogram{T: at, ST: st, Float: &histogram.FloatHistogram{
					Schema: int32(r.IntN(2)), Count: v, Sum: v, PositiveSpans: []histogram.Span{{Length: 1}},
					PositiveBuckets: []float64{v},
				}})
			}
			before = v
		}
		until := []int64{
			math.MinInt64, 0, int64(r.IntN(buckets)) * width, int64(r.IntN(buckets)) * width, math.MaxInt64,
		}[r.IntN(5)]
		var without chunk.Samples
		for i, at := range samples.T {
			st := int64(0)
			if at > until && len(samples.ST) > 0 {
				st = samples.ST[i]
			}
			without.AppendFloat(at, st, samples.V[i])
		}
		for _, h := range samples.H {
			if h.T <= until {
				h.ST = 0
			}
			without.AppendHistogram(h)
		}
		var whole, want rollup.Buckets
		rollup.AppendCells(&whole, &samples, nil, width)
		hideBucketStarts(&whole, until)
		rollup.AppendCells(&want, &without, nil, width)
		if want.FirstST == nil && whole.FirstST != nil { // Buckets after until have no starts.
			whole.FirstST, whole.LastST, whole.StartCorrection, whole.StartResets = nil, nil, nil, nil
		}
		require.Equal(t, want, whole, "%s until %d", starts.Kind, until)
		hideSampleStarts(&samples, until)
		require.ElementsMatch(t, without.H, samples.H)
		require.Equal(t, without.T, samples.T)
		for i := range samples.T {
			require.Equal(t, startOf(&without, i), startOf(&samples, i))
		}
	}
}

func startOf(s *chunk.Samples, i int) int64 {
	if len(s.ST) == 0 {
		return 0
	}
	return s.ST[i]
}
