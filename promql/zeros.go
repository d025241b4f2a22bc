package promql

import (
	"math"
	"sort"
)

// byValue orders values as Prometheus' quantile does: NaN first. Which of two zeros comes first, whose signs may differ, depends on the
// algorithm of sort.Sort and on where they stood before.
type byValue []float64

func (v byValue) Len() int           { return len(v) }
func (v byValue) Swap(i, j int)      { v[i], v[j] = v[j], v[i] }
func (v byValue) Less(i, j int) bool { return math.IsNaN(v[i]) || v[i] < v[j] }

// sortedQuantile is the q-quantile, for q from 0 to 1, of at least one value, in the steps that Prometheus takes: with its sign where it is
// zero. It leaves the values in order. Where none is a negative zero, the result is that of any other way to find the two values that
// it lies between, which take less time.
func sortedQuantile(q float64, v []float64) float64 {
	sort.Sort(byValue(v))
	lower, upper, weight := placeOf(q, len(v))
	return v[lower]*(1-weight) + v[upper]*weight
}

// placeOf returns between which of n values in order the q-quantile lies, and the weight of the upper one.
func placeOf(q float64, n int) (lower, upper int, weight float64) {
	rank := q * float64(n-1)
	floor := math.Floor(rank)
	lower = int(max(0, floor))
	return lower, min(n-1, lower+1), rank - floor
}

// anyNegativeZero reports whether one of the values is -0.
func anyNegativeZero(v []float64) bool {
	for _, f := range v {
		if f == 0 && math.Signbit(f) {
			return true
		}
	}
	return false
}
