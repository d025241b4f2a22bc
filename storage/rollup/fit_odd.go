package rollup

import (
	"math"
	"slices"
)

// setOddCourse sets values with the rises and falls of the bucket, and reports whether it found such values. It is for
// buckets whose sum doesn't determine the values, because the sum is NaN, infinite or too imprecise. If possible, the
// values also have the correction. NaN is placed at the ends, or between two values of a rise:
//
//	  ┌──┐  NaN  ┌──┐
//	──┘  │     ┌─┘  │       The bucket counts a change to NaN and a change from NaN as rises.
//	     └─────┘    └── NaN
func (x *fit) setOddCourse() bool {
	e, all := x.e, x.v
	defer func() { x.e, x.v = e, all }()
	if math.IsNaN(e.least) || math.IsNaN(e.greatest) || e.least > e.greatest || e.rises+e.falls >= e.n {
		return false
	}
	firsts, lasts := []float64{e.first}, []float64{e.last}
	from, to := 0, e.n
	if math.IsNaN(e.first) {
		firsts, from, x.e.rises = []float64{e.least, e.greatest}, 1, x.e.rises-1
	}
	if math.IsNaN(e.last) {
		lasts, to, x.e.rises = []float64{e.greatest, e.least}, to-1, x.e.rises-1
	}
	isBetween := math.IsNaN(e.sum) && from == 0 && to == e.n && !(math.IsInf(e.least, -1) && math.IsInf(e.greatest, 1))
	if e.least == e.greatest && e.falls == 0 && (isBetween || to-from < e.n) {
		setAlternating(all, e.first, e.last, e.least, e.rises)
		return true
	}
	if isBetween {
		to, x.e.rises = to-1, x.e.rises-1
	}
	if x.e.rises < 0 || to-from < 3 || e.least == e.greatest {
		return false
	}
	x.e.n, x.v = to-from, all[from:to]
	for _, x.e.first = range firsts {
		for _, x.e.last = range lasts {
			if !x.setFinite() {
				continue
			}
			all[0] = e.first
			if isBetween {
				k := 1
				for k < to-1 && !(all[k-1] < all[k]) {
					k++
				}
				copy(all[k+1:], all[k:to])
				all[k] = math.NaN()
			}
			all[e.n-1] = e.last
			return true
		}
	}
	return false
}

// setAlternating sets values that alternate between NaN and v, with the given first, last and number of changes.
func setAlternating(all []float64, first, last, v float64, changes int) {
	other := math.NaN()
	if math.IsNaN(first) {
		other = v
	}
	for k := range all {
		if all[k] = first; (k*(changes+1)/len(all))%2 == 1 {
			all[k] = other
		}
	}
	all[len(all)-1] = last
}

// setFinite sets x.v to values with the given first, last, min, max, rises and falls, none of which is NaN.
func (x *fit) setFinite() bool {
	e := x.e
	defer func() { x.e = e }()
	if areFinite(e.correction, (e.greatest-e.least)*float64(e.n), (e.greatest+e.least)*float64(e.n)) {
		for _, height := range oddHeights {
			x.e.sum, x.e.low = float64(e.n)*(e.least+height*(e.greatest-e.least)), 0
			if x.isPossible() && x.setOutline() && x.searchAll() && x.hasSteps(e.rises, e.falls) {
				return true
			}
		}
	}
	scale := rankScale(e.first, e.last, e.least, e.greatest)
	x.e.least, x.e.greatest = 0, 1
	x.e.first, x.e.last = scale.rank(e.first), scale.rank(e.last)
	for _, height := range oddHeights {
		x.e.sum, x.e.low, x.e.correction = float64(e.n)*height, 0, float64(e.falls)*(height+1)/2
		if !x.isPossible() || !x.setOutline() {
			return false
		}
		if x.target.anyCorrection = true; !x.searchAll() {
			continue
		}
		for k, v := range x.v {
			x.v[k] = scale.value(v)
		}
		if x.hasSteps(e.rises, e.falls) {
			return true
		}
	}
	return false
}

// oddHeights are the means that setFinite tries, as fractions of the range of values.
var oddHeights = [...]float64{0.5, 0.25, 0.75}

// hasSteps reports whether the values have the given numbers of rises and falls.
func (x *fit) hasSteps(rises, falls int) bool {
	for k := 1; k < len(x.v); k++ {
		rises -= int(asCount(x.v[k] > x.v[k-1]))
		falls -= int(asCount(x.v[k] < x.v[k-1]))
	}
	return rises == 0 && falls == 0
}

// scale maps values to ranks from 0 to 1, evenly between known values. A course of ranks has the right rises and falls
// even if values are infinite or differ too much in size to be added.
type scale []float64 // known values, ascending

func rankScale(known ...float64) scale {
	slices.Sort(known)
	return slices.Compact(known)
}

// rank returns the rank of a known value.
func (s scale) rank(v float64) float64 { return float64(slices.Index(s, v)) / float64(len(s)-1) }

// value returns the value of a rank.
func (s scale) value(rank float64) float64 {
	at := rank * float64(len(s)-1)
	i := int(math.Round(at))
	if math.Abs(at-float64(i)) < 1e-12 {
		return s[i]
	}
	i = int(at)
	low, high, share := s[i], s[i+1], at-float64(i)
	switch {
	case math.IsInf(low, 0) && math.IsInf(high, 0):
		return 2*share - 1
	case math.IsInf(low, 0):
		return high - max(math.Abs(high), 1)*(1-share)
	case math.IsInf(high, 0):
		return low + max(math.Abs(low), 1)*share
	default:
		return low*(1-share) + high*share
	}
}
