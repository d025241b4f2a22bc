// Package bucketfntest contains helpers for tests of functions over buckets. It generates series, and compares the
// values computed from buckets with the results of Prometheus' functions over the samples.
package bucketfntest

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"
)

// BitExact contains the functions that don't round.
var BitExact = map[string]bool{
	"": true, "last_over_time": true, "first_over_time": true, "min_over_time": true, "max_over_time": true,
	"count_over_time": true, "resets": true, "changes": true, "present_over_time": true,
	"ts_of_first_over_time": true, "ts_of_last_over_time": true,
}

// predictionSeconds is the number of seconds after a step for which predict_linear predicts.
const predictionSeconds = 60

// MaxMagnitude returns the largest absolute value that enters the computation of a function over the points, relative
// to which rounding errors are judged. ahead is the number of seconds after the last point for which predict_linear
// predicts.
func (p Points) MaxMagnitude(name string, ahead float64) float64 {
	largest := p.Largest()
	switch {
	case name == "stdvar_over_time": // The squares of the values enter.
		return largest * largest
	case len(p.Floats) < 2:
	case name == "deriv": // The slope is divided by the deviation of the times.
		return largest / p.deviation()
	case name == "predict_linear":
		// predict_linear also multiplies the values by the time to the prediction, and Prometheus' rounding errors grow
		// with the cube of that time.
		far := (math.Abs(ahead) + p.duration()) / p.deviation()
		return largest * (1 + far + far*far*far/2000)
	}
	return largest
}

// deviation returns the standard deviation of the times of floats, in seconds. duration returns the time from the first
// float to the last, in seconds.
func (p Points) deviation() float64 {
	n, mean, squares := float64(len(p.Floats)), 0.0, 0.0
	for _, f := range p.Floats {
		mean += float64(f.T-p.Floats[0].T) / n
	}
	for _, f := range p.Floats {
		d := float64(f.T-p.Floats[0].T) - mean
		squares += d * d / n
	}
	return math.Sqrt(squares) / 1000
}

func (p Points) duration() float64 {
	return float64(p.Floats[len(p.Floats)-1].T-p.Floats[0].T) / 1000
}

// requireSameSample fails unless got equals want. The values of functions that don't round must be equal to the last
// bit. All others may differ by 1e-12 of largest, the largest value that entered the computation.
func requireSameSample(t testing.TB, name string, want, got promengine.Sample, largest float64, context string) {
	if BitExact[name] && want.H == nil && got.H == nil {
		require.Equal(t, math.Float64bits(want.F), math.Float64bits(got.F), "%s: %v, not %v", context, got.F, want.F)
		return
	}
	isLine := name == "deriv" || name == "predict_linear"
	if isLine && math.IsInf(want.F, 0) && math.Abs(got.F) <= 1e-12*largest {
		return // Prometheus divided by a variance of timestamps that it rounded to 0.
	}
	requireCloseSample(t, want, got, largest, context)
}

func requireCloseSample(t testing.TB, want, got promengine.Sample, largest float64, context string) {
	require.Equal(t, want.H != nil, got.H != nil, "%s: a histogram", context)
	if want.H != nil {
		requireSameHistogram(t, want.H, got.H, largest, context)
		return
	}
	requireClose(t, want.F, got.F, largest, context)
}

func scaleSample(s *promengine.Sample, by float64) {
	if s.F *= by; s.H != nil {
		s.H.Mul(by)
	}
}

func requireClose(t testing.TB, want, got, largest float64, context string) {
	t.Helper()
	if math.IsNaN(want) || math.IsInf(want, 0) {
		require.True(t, math.IsNaN(want) && math.IsNaN(got) || want == got, "%s: %v, not %v", context, got, want)
		return
	}
	const minNormal = 0x1p-1022 // Smaller numbers have fewer digits.
	tolerance := 1e-12*max(largest, math.Abs(want)) + minNormal
	require.LessOrEqual(t, math.Abs(want-got), tolerance, "%s: %v, not %v", context, got, want)
}

func requireSameHistogram(t testing.TB, want, got *histogram.FloatHistogram, largest float64, context string) {
	t.Helper()
	require.Equal(t, want.Schema, got.Schema, context)
	require.Equal(t, want.ZeroThreshold, got.ZeroThreshold, context)
	require.Equal(t, want.CustomValues, got.CustomValues, context)
	requireClose(t, want.Count, got.Count, largest, context+": count")
	requireClose(t, want.Sum, got.Sum, largest, context+": sum")
	a, b := BucketCounts(want), BucketCounts(got)
	for at := range a {
		requireClose(t, a[at], b[at], largest, context+": bucket "+at)
	}
	for at := range b {
		requireClose(t, a[at], b[at], largest, context+": bucket "+at)
	}
}

// BucketCounts returns the counts of a histogram's buckets, by the bounds of the buckets as text.
func BucketCounts(h *histogram.FloatHistogram) map[string]float64 {
	all := map[string]float64{}
	for it := h.AllBucketIterator(); it.Next(); {
		bucket := it.At()
		all[fmt.Sprintf("(%g,%g]", bucket.Lower, bucket.Upper)] += bucket.Count
	}
	return all
}
