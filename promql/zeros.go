package promql

import (
	"math"
	"sort"
)

// byValue orders values as Prometheus' quantile does: NaN first. The order of two zeros, whose signs may differ,
// depends on the algorithm of sort.Sort and on their original order.
type byValue []float64

func (v byValue) Len() int           { return len(v) }
func (v byValue) Swap(i, j int)      { v[i], v[j] = v[j], v[i] }
func (v byValue) Less(i, j int) bool { return math.IsNaN(v[i]) || v[i] < v[j] }

// sortedQuantile returns the q-quantile of v for q from 0 to 1, by the same computation as Prometheus, so that a zero
// has the same sign. v must not be empty. It sorts v. If no value is a negative zero, faster algorithms have the same
// result.
func sortedQuantile(q float64, v []float64) float64 {
	sort.Sort(byValue(v))
	lower, upper, weight := quantileRank(q, len(v))
	return v[lower]*(1-weight) + v[upper]*weight
}

// quantileRank returns the indices of the two of n sorted values between which the q-quantile is, and the weight of the
// upper value.
func quantileRank(q float64, n int) (lower, upper int, weight float64) {
	rank := q * float64(n-1)
	floor := math.Floor(rank)
	lower = int(max(0, floor))
	return lower, min(n-1, lower+1), rank - floor
}

// hasNegativeZero reports whether one of the values is -0.
func hasNegativeZero(v []float64) bool {
	for _, f := range v {
		if f == 0 && math.Signbit(f) {
			return true
		}
	}
	return false
}
