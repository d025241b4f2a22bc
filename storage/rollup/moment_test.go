package rollup

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// momentColumn returns the 5m buckets of the samples, and the column of moments in their chunk.
func momentColumn(t *testing.T, s *chunk.Samples, metric string) (*Buckets, []byte) {
	var b Buckets
	AppendStored(&b, s, metric, fiveMinutes)
	var e envelope
	require.NoError(t, e.parse(AppendChunk(nil, &b, fiveMinutes, 1)))
	return &b, e.column(columnMoment)
}

// TestMomentsThatTakeNoRoom requires that constants and counters have no column, and that series of two values have a
// very short one.
func TestMomentsThatTakeNoRoom(t *testing.T) {
	b, column := momentColumn(t, usualShapes()[2].floats(480, 1), "constant")
	require.Empty(t, column)
	require.Zero(t, b.Moment[3])
	for _, i := range []int{0, 3, 4, 6} {
		for _, metric := range []string{"x_total", "x_sum", "x_count", "x_bucket"} {
			b, column = momentColumn(t, usualShapes()[i].floats(480, 1), metric)
			require.Empty(t, column, usualShapes()[i].name)
			require.Contains(t, b.Moment, float64(unknownMoment))
		}
	}
	s := &chunk.Samples{}
	for i := range int64(480) {
		s.AppendFloat(startMS+i*intervalMS, 0, float64(i/7%2))
	}
	b, column = momentColumn(t, s, "up")
	require.Len(t, column, 3)
	require.InDelta(t, float64(b.Count[5])*0.2475, b.Moment[5], 0.5)
}

// TestMomentsOfFallingCounters requires that moments are kept for metrics with the name of a counter whose values fall.
func TestMomentsOfFallingCounters(t *testing.T) {
	b, column := momentColumn(t, usualShapes()[1].floats(480, 1), "jobs_count")
	require.NotEmpty(t, column)
	require.NotContains(t, b.Moment, float64(unknownMoment))
	var hours, want Buckets
	CoarsenStored(&hours, b, "jobs_count", oneHour)
	Coarsen(&want, b, oneHour)
	require.True(t, want.Equal(&hours))

	var rising Buckets // Values rise within an hour, but not within 5 minutes.
	s := &chunk.Samples{}
	for i := range int64(48) {
		s.AppendFloat(startMS+1+i*fiveMinutes, 0, float64(i))
	}
	AppendStored(&rising, s, "x_total", fiveMinutes)
	require.NotContains(t, rising.Moment, float64(unknownMoment))
	hours.Reset()
	CoarsenStored(&hours, &rising, "x_total", oneHour)
	require.Equal(t, []float64{-1, -1, -1, -1}, hours.Moment)
	hours.Reset()
	CoarsenStored(&hours, &rising, "x", oneHour)
	require.InDeltaSlice(t, []float64{143, 143, 143, 143}, hours.Moment, 1e-9)
}

// TestSmallMomentsOfLargeValues requires that deviations that are small relative to the values are as precise as their
// floats allow.
func TestSmallMomentsOfLargeValues(t *testing.T) {
	for _, offset := range []float64{0, 1 << 20, 1 << 40, -1 << 40, 1 << 50} {
		s := &chunk.Samples{}
		for i := range int64(20 * 48) {
			s.AppendFloat(startMS+1+i*intervalMS, 0, offset+float64(i%5)) // variance 2
		}
		var fine, coarse Buckets
		AppendEvery(&fine, s, fiveMinutes)
		Coarsen(&coarse, &fine, oneHour)
		for _, b := range []*Buckets{&fine, &coarse} {
			for i := range b.End {
				require.InEpsilon(t, 2, b.Moment[i]/float64(b.Count[i]), 1e-12, "offset %v", offset)
			}
		}
	}
}

// TestMomentsOfConstants requires that constants have moment 0 for any number of samples per bucket.
func TestMomentsOfConstants(t *testing.T) {
	s := &chunk.Samples{}
	for i := range int64(1000) {
		s.AppendFloat(startMS+i*i*100, 0, 0.1)
	}
	var fine, coarse Buckets
	AppendEvery(&fine, s, fiveMinutes)
	Coarsen(&coarse, &fine, oneHour)
	for _, m := range append(fine.Moment, coarse.Moment...) {
		require.Zero(t, m)
	}
}

// TestColumnsOfTinyParts requires that a bucket that is coarsened from parts whose values hardly differ has the moment
// and the line of the bucket that is built from its samples.
func TestColumnsOfTinyParts(t *testing.T) {
	for _, values := range [][]float64{
		{1e-278, 3e-278, 1, 2}, {1e-155, 2e-155, 1, 2}, {1e-200, 3e-200, 1e-280, 3e-279}, {0, 5e-324, 1e-310, 1},
		{0, 5e-324, 0, 5e-324}, {1, 1 + 0x1p-52, 0, 5e-324}, {1, 2, 7e-161, 1e-160},
	} {
		s := &chunk.Samples{}
		for i, v := range values {
			s.AppendFloat(int64(i+1), 0, v)
		}
		var fine, coarse, built Buckets
		AppendEvery(&fine, s, 2)
		Coarsen(&coarse, &fine, 4)
		AppendEvery(&built, s, 4)
		requireAlike(t, &built, &coarse, "tiny parts")
		for _, b := range []*Buckets{&fine, &coarse, &built} {
			require.NotContains(t, b.Moment, float64(unknownMoment), "%v", values)
			require.NotContains(t, b.TimeSquares, int64(unknownSquares), "%v", values)
		}
		var got Buckets
		require.NoError(t, Decode(AppendChunk(nil, &coarse, 4, 1), AllColumns, &got))
		requireSame(t, &coarse, &got, "tiny parts")
	}
}

// TestMomentsWithoutValue requires that moments that would overflow are unknown, and that moments of values that aren't
// finite are 0.
func TestMomentsWithoutValue(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{1e200, -1e200}, -1},
		{[]float64{1e-170, 2e-170}, 0},
		{[]float64{1e-153, 2e-153}, 5e-307},
		{[]float64{math.Inf(1), 1}, 0},
		{[]float64{math.NaN(), 1, 2}, 0},
		{[]float64{1e100, -1e100}, 2e200},
	} {
		b := bothWays(c.values)
		for _, m := range b.Moment {
			require.InDelta(t, c.want, m, 1e-12*math.Abs(c.want), "%v", c.values)
		}
	}
}
