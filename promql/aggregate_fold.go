package promql

import (
	"math"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/kahansum"
)

// The folds below compute all steps of one series at a time. The evaluator computes all series of one step at a time.
// Both add the samples of a step in the same order.

func (g *group) addSum(v []float64) {
	value, compensation := g.value[:len(v)], g.compensation[:len(v)]
	for i, f := range v {
		switch {
		case isMissingValue(f):
		case isMissingValue(value[i]):
			value[i] = f
		default:
			value[i], compensation[i] = kahansum.Inc(f, value[i], compensation[i])
		}
	}
}

func (g *group) addMin(v []float64) {
	value := g.value[:len(v)]
	for i, f := range v {
		if isMissingValue(f) {
			continue
		}
		if isMissingValue(value[i]) || value[i] > f || math.IsNaN(value[i]) {
			value[i] = f
		}
	}
}

func (g *group) addMax(v []float64) {
	value := g.value[:len(v)]
	for i, f := range v {
		if isMissingValue(f) {
			continue
		}
		if isMissingValue(value[i]) || value[i] < f || math.IsNaN(value[i]) {
			value[i] = f
		}
	}
}

func (g *group) addCount(v []float64) {
	value := g.value[:len(v)]
	for i, f := range v {
		switch {
		case isMissingValue(f):
		case isMissingValue(value[i]):
			value[i] = 1
		default:
			value[i]++
		}
	}
}

func (g *group) addGroup(v []float64) {
	for i, f := range v {
		if !isMissingValue(f) {
			g.value[i] = 1
		}
	}
}

// addAvg keeps a sum until it would overflow, and the mean after that.
func (g *group) addAvg(v []float64) {
	for i, f := range v {
		if isMissingValue(f) {
			continue
		}
		g.count[i]++
		count := g.count[i]
		if isMissingValue(g.value[i]) {
			g.value[i] = f
			continue
		}
		if g.incremental == nil || !g.incremental[i] {
			sum, compensation := kahansum.Inc(f, g.value[i], g.compensation[i])
			if !math.IsInf(sum, 0) {
				g.value[i], g.compensation[i] = sum, compensation
				continue
			}
			if g.incremental == nil {
				g.incremental, g.mean = make([]bool, len(v)), make([]float64, len(v))
			}
			g.incremental[i] = true
			g.mean[i] = g.value[i] / (count - 1)
			g.compensation[i] /= count - 1
		}
		q := (count - 1) / count
		g.mean[i], g.compensation[i] = kahansum.Inc(f/count, q*g.mean[i], q*g.compensation[i])
	}
}

// addDeviation keeps the mean and the sum of squared differences from it (Welford, "Note on a method for
// calculating corrected sums of squares and products", 1962).
func (g *group) addDeviation(v []float64) {
	for i, f := range v {
		switch {
		case isMissingValue(f):
		case isMissingValue(g.value[i]):
			g.mean[i], g.count[i], g.value[i] = f, 1, 0
			if math.IsNaN(f) || math.IsInf(f, 0) {
				g.value[i] = math.NaN()
			}
		default:
			g.count[i]++
			delta := f - g.mean[i]
			g.mean[i] += delta / g.count[i]
			g.value[i] += delta * (f - g.mean[i])
		}
	}
}

// finish turns the state of the group into the result.
func (g *group) finish(op parser.ItemType) {
	for i, v := range g.value {
		if isMissingValue(v) {
			continue
		}
		switch op {
		case parser.SUM:
			g.value[i] = v + g.compensation[i]
		case parser.AVG:
			if g.incremental != nil && g.incremental[i] {
				g.value[i] = g.mean[i] + g.compensation[i]
			} else {
				g.value[i] = v/g.count[i] + g.compensation[i]/g.count[i]
			}
		case parser.STDVAR:
			g.value[i] = v / g.count[i]
		case parser.STDDEV:
			g.value[i] = math.Sqrt(v / g.count[i])
		}
	}
}

// quantile sets the value of each step to the q-quantile of the members' values.
func (g *group) quantile(q float64) {
	var sorted []float64
	for i := range g.value {
		sorted = sorted[:0]
		for _, m := range g.members {
			if k := i - m.from; k >= 0 && k < len(m.v) && !isMissingValue(m.v[k]) {
				sorted = append(sorted, m.v[k])
			}
		}
		if len(sorted) > 0 {
			g.value[i] = quantileOf(q, sorted)
		}
	}
	g.members = nil
}

// quantileOf returns the q-quantile of v, interpolated between the two nearest values. NaN sorts before all numbers.
// The elements of v are reordered.
func quantileOf(q float64, v []float64) float64 {
	switch {
	case math.IsNaN(q):
		return math.NaN()
	case q < 0:
		return math.Inf(-1)
	case q > 1:
		return math.Inf(+1)
	}
	if hasNegativeZero(v) {
		return sortedQuantile(q, v)
	}
	lower, upper, weight := quantileRank(q, len(v))
	low := selectNth(v, lower)
	high := low
	if upper > lower {
		high = smallestOf(v[upper:])
	}
	return low*(1-weight) + high*weight
}

// selectNth returns the element at position k of v in sorted order, NaN first. Afterwards no element behind position k
// is smaller (Hoare, "Algorithm 65: find", 1961).
func selectNth(v []float64, k int) float64 {
	nans := 0
	for i, f := range v {
		if math.IsNaN(f) {
			v[i], v[nans] = v[nans], f
			nans++
		}
	}
	if k < nans {
		return v[k]
	}
	from, to := nans, len(v)-1
	for from < to {
		pivot := median(v[from], v[from+(to-from)/2], v[to])
		i, j := from, to
		for i <= j {
			for v[i] < pivot {
				i++
			}
			for v[j] > pivot {
				j--
			}
			if i <= j {
				v[i], v[j] = v[j], v[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			to = j
		case k >= i:
			from = i
		default:
			return v[k]
		}
	}
	return v[k]
}

func median(a, b, c float64) float64 { return max(min(a, b), min(max(a, b), c)) }

// smallestOf returns the smallest element of v, NaN first.
func smallestOf(v []float64) float64 {
	out := v[0]
	for _, f := range v[1:] {
		if math.IsNaN(out) {
			break
		}
		if f < out || math.IsNaN(f) {
			out = f
		}
	}
	return out
}
