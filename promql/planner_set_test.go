package promql

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// TestFragmentSeriesIterateAsSamplesDo checks that the iterator of a fragment's series returns the same as an iterator
// over the same samples, for every sequence of Next and Seek.
func TestFragmentSeriesIterateAsSamplesDo(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	var ours chunkenc.Iterator
	for range 500 {
		grid := steps{first: rnd.Int64N(1000) - 500, step: 1 + rnd.Int64N(30), n: 1 + rnd.IntN(50)}
		var all values
		all.reset(grid.n)
		for i := range all.v {
			if rnd.IntN(3) > 0 {
				all.v[i] = float64(i)
				all.floats++
			}
		}
		if all.floats == 0 {
			continue
		}
		var memory arena
		row := fragmentRow{fragmentSeries: memory.copySeries(labels.EmptyLabels(), &all), grid: grid}
		require.False(t, isMissingValue(row.v[0]) || isMissingValue(row.v[len(row.v)-1]))
		var samples chunk.Samples
		for i, v := range row.v {
			samples.AppendFloat(grid.timeAt(row.from+i), 0, v)
		}
		if row.from+len(row.v) < grid.n {
			samples.AppendFloat(grid.timeAt(row.from+len(row.v)), 0, missingValue)
		}
		ours = row.Iterator(ours)
		theirs := iteratorFor(nil, math.MinInt64, over(samples))
		for target := grid.first - 100; ; {
			var got chunkenc.ValueType
			if rnd.IntN(2) == 0 {
				got = ours.Next()
				require.Equal(t, theirs.Next(), got)
			} else {
				target += rnd.Int64N(3 * grid.step)
				got = ours.Seek(target)
				require.Equal(t, theirs.Seek(target), got)
			}
			require.Equal(t, theirs.AtT(), ours.AtT())
			if got == chunkenc.ValNone {
				break
			}
			_, want := theirs.At()
			_, v := ours.At()
			require.Equal(t, math.Float64bits(want), math.Float64bits(v))
		}
	}
}
