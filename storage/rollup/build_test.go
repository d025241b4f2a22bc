package rollup

import (
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

func TestBucketsAreLeftOpenAndRightClosed(t *testing.T) {
	for _, c := range []struct{ at, start, end int64 }{
		{0, -300_000, 0},
		{1, 0, 300_000},
		{300_000, 0, 300_000},
		{300_001, 300_000, 600_000},
		{-1, -300_000, 0},
		{-300_000, -600_000, -300_000},
		{-299_999, -300_000, 0},
		{math.MaxInt64, math.MaxInt64 - math.MaxInt64%300_000, math.MaxInt64},
		{math.MinInt64, math.MinInt64, math.MinInt64 + (-(math.MinInt64 % 300_000))},
	} {
		var b Buckets
		AppendEvery(&b, &chunk.Samples{T: []int64{c.at}, V: []float64{1}}, 300_000)
		require.Equal(t, []int64{c.start}, b.Start, "%d", c.at)
		require.Equal(t, []int64{c.end}, b.End, "%d", c.at)
	}
}

func TestEdgesCutBuckets(t *testing.T) {
	var s chunk.Samples
	for at := int64(-10); at <= 25; at++ {
		s.AppendFloat(at, 0, float64(at))
	}
	var b Buckets
	AppendCells(&b, &s, []int64{-100, -3, 0, 4, 10, 17, 18, 90}, 10)
	require.Equal(t, []int64{-20, -10, -3, 0, 4, 10, 17, 18, 20}, b.Start)
	require.Equal(t, []int64{-10, -3, 0, 4, 10, 17, 18, 20, 30}, b.End)
	require.Equal(t, []uint32{1, 7, 3, 4, 6, 7, 1, 2, 5}, b.Count)
	require.Equal(t, []int64{-10, -9, -2, 1, 5, 11, 18, 19, 21}, b.FirstT)
	require.Equal(t, []int64{-10, -3, 0, 4, 10, 17, 18, 20, 25}, b.LastT)
}

func TestExtremesKeepTheFirstOfEqualValues(t *testing.T) {
	negative := math.Copysign(0, -1)
	for _, c := range []struct{ values, least, greatest []float64 }{
		{[]float64{negative, -1, 0}, []float64{-1}, []float64{negative}},
		{[]float64{negative, 1, 0}, []float64{negative}, []float64{1}},
		{[]float64{0, -1, negative}, []float64{-1}, []float64{0}},
		{[]float64{math.NaN(), negative, 0, math.NaN()}, []float64{negative}, []float64{negative}},
	} {
		b := bothWays(c.values)
		for i := range b.End {
			require.Equal(t, math.Float64bits(c.least[0]), math.Float64bits(b.Min[i]), "%v", c.values)
			require.Equal(t, math.Float64bits(c.greatest[0]), math.Float64bits(b.Max[i]), "%v", c.values)
		}
	}
}

func TestStaleMarkers(t *testing.T) {
	s := &chunk.Samples{}
	for i, v := range []float64{1, staleNaN, 2, staleNaN, staleNaN, staleNaN, staleNaN, 3} {
		s.AppendFloat(int64(i+1), 0, v)
	}
	var b, coarse Buckets
	AppendEvery(&b, s, 2)
	require.Equal(t, []Flags{EndsStale, EndsStale, EndsStale, 0}, b.Flags)
	require.Equal(t, []uint32{1, 1, 0, 1}, b.Count)
	require.Equal(t, []float64{1, 2, 0, 3}, b.Last)
	require.Equal(t, []int64{1, 3, 0, 8}, b.LastT)
	Coarsen(&coarse, &b, 4)
	require.Equal(t, []Flags{EndsStale, 0}, coarse.Flags)
	require.Equal(t, []uint32{2, 1}, coarse.Count)
	require.Equal(t, []uint32{1, 0}, coarse.Changes)
}

func TestFlags(t *testing.T) {
	float := func(at int64, v float64) func(*chunk.Samples) {
		return func(s *chunk.Samples) { s.AppendFloat(at, 0, v) }
	}
	hist := func(at int64, schema int32, threshold float64, hint histogram.CounterResetHint) func(*chunk.Samples) {
		return func(s *chunk.Samples) {
			c, err := chunk.CanonicalHistogram(chunk.Histogram{
				T: at, Int: histogramOf([]int64{at, at}, schema, threshold, hint),
			})
			require.NoError(t, err)
			s.AppendHistogram(c)
		}
	}
	staleHistogram := func(s *chunk.Samples) {
		s.AppendHistogram(chunk.Histogram{T: 9, Float: &histogram.FloatHistogram{Sum: staleNaN}})
	}
	const custom = histogram.CustomBucketsSchema
	for name, c := range map[string]struct {
		add   []func(*chunk.Samples)
		flags Flags
		count uint32
	}{
		"floats":                       {[]func(*chunk.Samples){float(1, 1), float(2, 2)}, 0, 2},
		"histograms":                   {[]func(*chunk.Samples){hist(1, 0, 0, 0), hist(2, 0, 0, 0)}, ofHistograms, 2},
		"custom bounds":                {[]func(*chunk.Samples){hist(1, custom, 0, 0), hist(2, custom, 0, 0)}, ofHistograms, 2},
		"both":                         {[]func(*chunk.Samples){float(1, 1), hist(2, 0, 0, 0)}, HasHistograms | hasFloatsToo | LastIsHistogram, 2},
		"both, a float last":           {[]func(*chunk.Samples){hist(1, 0, 0, 0), float(2, 1)}, HasHistograms | hasFloatsToo | FirstIsHistogram, 2},
		"float and stale histogram":    {[]func(*chunk.Samples){float(1, 1), staleHistogram}, EndsStale, 1},
		"histogram and stale float":    {[]func(*chunk.Samples){hist(1, 0, 0, 0), float(2, staleNaN)}, ofHistograms | EndsStale, 1},
		"stale histogram":              {[]func(*chunk.Samples){staleHistogram}, EndsStale, 0},
		"schemas":                      {[]func(*chunk.Samples){hist(1, 0, 0, 0), hist(2, 1, 0, 0)}, ofHistograms, 2},
		"exponential and custom":       {[]func(*chunk.Samples){hist(1, 0, 0, 0), hist(2, custom, 0, 0)}, ofHistograms, 2},
		"thresholds":                   {[]func(*chunk.Samples){hist(1, 0, 0.1, 0), hist(2, 0, 0.2, 0)}, ofHistograms, 2},
		"gauge":                        {[]func(*chunk.Samples){hist(1, 0, 0, histogram.GaugeType)}, ofHistograms, 1},
		"gauge later":                  {[]func(*chunk.Samples){hist(1, 0, 0, 0), hist(2, 0, 0, histogram.GaugeType)}, ofHistograms, 2},
		"large":                        {[]func(*chunk.Samples){float(1, 1), float(2, -1e300), float(3, 1)}, Large | LargeNegative, 3},
		"infinite":                     {[]func(*chunk.Samples){float(1, math.Inf(1))}, 0, 1},
		"large behind an infinite one": {[]func(*chunk.Samples){float(1, math.Inf(1)), float(2, 1e300)}, Large | LargePositive, 2},
	} {
		s := &chunk.Samples{}
		for _, add := range c.add {
			add(s)
		}
		s.Normalize()
		var b, fine Buckets
		AppendEvery(&b, s, 10)
		AppendEvery(&fine, s, 1)
		Coarsen(&b, &fine, 20)
		require.Equal(t, []Flags{c.flags, c.flags}, b.Flags, name)
		require.Equal(t, []uint32{c.count, c.count}, b.Count, name)
	}
}
