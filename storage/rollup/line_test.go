package rollup

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// lineColumns returns the 5m buckets of the samples, and the columns of lines in their chunk.
func lineColumns(t *testing.T, s *chunk.Samples, metric string) (b *Buckets, comoment, times []byte) {
	b = &Buckets{}
	AppendStored(b, s, metric, fiveMinutes)
	encoded := AppendChunk(nil, b, fiveMinutes, 1)
	var e envelope
	require.NoError(t, e.parse(encoded))
	var got Buckets
	require.NoError(t, Decode(encoded, AllColumns, &got))
	requireSame(t, b, &got, metric)
	return b, e.column(columnComoment), e.column(columnTimes)
}

// jittered moves every nth sample by 35 ms.
func jittered(s *chunk.Samples, n int) *chunk.Samples {
	for i := range s.T {
		if i%n == n-2 {
			s.T[i] += 35
		}
	}
	return s
}

func TestLinesThatTakeNoRoom(t *testing.T) {
	b, comoment, times := lineColumns(t, usualShapes()[2].floats(480, 1), "constant")
	require.Empty(t, comoment)
	require.Empty(t, times)
	require.Positive(t, b.TimeSquares[3])

	b, comoment, times = lineColumns(t, usualShapes()[1].floats(480, 1), "gauge")
	require.NotEmpty(t, comoment)
	require.Empty(t, times, "regular times")
	require.Positive(t, b.TimeSquares[3])

	for _, s := range []*chunk.Samples{usualShapes()[0].floats(480, 1), jittered(usualShapes()[0].floats(480, 1), 30)} {
		b, comoment, times = lineColumns(t, s, "x_total")
		require.Empty(t, comoment, "a counter")
		require.Empty(t, times)
		require.EqualValues(t, unknownSquares, b.TimeSquares[3])
	}
	// A counter that doesn't rise has a line if its times use no space.
	b, comoment, _ = lineColumns(t, usualShapes()[2].floats(480, 1), "x_total")
	require.Empty(t, comoment)
	require.Positive(t, b.TimeSquares[3])
	b, _, times = lineColumns(t, jittered(usualShapes()[2].floats(480, 1), 20), "x_total")
	require.EqualValues(t, unknownSquares, b.TimeSquares[3])
	require.LessOrEqual(t, len(times), 8)
}

// TestTimesOfOneLateSample requires that a bucket with one late sample is stored in few bytes.
func TestTimesOfOneLateSample(t *testing.T) {
	b, _, times := lineColumns(t, jittered(usualShapes()[1].floats(480, 1), 20), "gauge")
	require.NotEmpty(t, times)
	require.LessOrEqual(t, len(times), 1+2*4, "two runs of a constant")
	sum, _ := timesSums(20, intervalMS)
	require.Equal(t, sum+35, b.TimeSum[3])
}

func timesSums(n, interval int64) (sum, squares int64) {
	for i := range n {
		sum += i * interval
		squares += i * i * interval * interval
	}
	return sum, squares
}

func TestRegularTimes(t *testing.T) {
	for n := range int64(50) {
		sum, squares := timesSums(n, 17)
		a, b := times{n: n}.regularSums(17)
		require.Equal(t, []int64{sum, squares}, []int64{a, b})
		require.True(t, times{n: n, span: max(0, n-1) * 17}.isRegular(sum, squares))
	}
	require.False(t, times{n: 3, span: 34}.isRegular(18, 18*18+34*34))
}

// TestSmallSlopesOfLargeValues requires that the slope of large values that rise slowly is as precise as their floats
// allow.
func TestSmallSlopesOfLargeValues(t *testing.T) {
	for _, offset := range []float64{0, 1 << 20, 1 << 40, -1 << 40, 1 << 50} {
		s := &chunk.Samples{}
		for i := range int64(20 * 48) {
			s.AppendFloat(startMS+1+i*intervalMS+i%3, 0, offset+float64(i*intervalMS+i%3))
		}
		var fine, coarse Buckets
		AppendEvery(&fine, s, fiveMinutes)
		Coarsen(&coarse, &fine, oneHour)
		for _, b := range []*Buckets{&fine, &coarse} {
			for i := range b.End {
				apart := math.Sqrt(b.TimeMoment(i) / float64(b.Count[i]))
				require.InDelta(t, 1, b.Comoment[i]/b.TimeMoment(i),
					(1e-13*(b.Max[i]-b.Min[i])+1e-15*math.Abs(offset))/apart, "offset %v", offset)
			}
		}
	}
}

// TestUnknownLines requires that lines are unknown for sums that aren't finite, for values that are too large, and for
// too many samples.
func TestUnknownLines(t *testing.T) {
	unknown := func(b *Buckets) {
		t.Helper()
		for i := range b.End {
			require.EqualValues(t, unknownSquares, b.TimeSquares[i])
			require.Negative(t, b.TimeMoment(i))
		}
		var got Buckets
		require.NoError(t, Decode(AppendChunk(nil, b.slice(0, 1), b.End[0]-b.Start[0], 1), AllColumns, &got))
		require.EqualValues(t, unknownSquares, got.TimeSquares[0])
	}
	for _, values := range [][]float64{{math.Inf(1), 1}, {math.NaN(), 1, 2}, {1e295, 1e296}} {
		unknown(bothWays(values))
	}
	s := &chunk.Samples{}
	for i := range int64(maxLineSamples + 1) {
		s.AppendFloat(startMS+i+1, 0, 5)
	}
	var b Buckets
	AppendEvery(&b, s, oneHour)
	unknown(&b)
}
