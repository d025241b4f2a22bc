package expand

import (
	"math"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// setOddCourse sets values with the first, last, min and max, the rises and falls and, if possible, the correction of
// the bucket, and reports whether it found such values. It is for buckets whose sum doesn't determine the values,
// because the sum is NaN, infinite or too imprecise. The values follow a course with gaps, which are NaN samples (see
// gaps).
func (x *fit) setOddCourse() bool {
	e, all := x.e, x.v
	defer func() { x.e, x.v = e, all }()
	x.searches = maxOddSearches
	if math.IsNaN(e.least) || math.IsNaN(e.greatest) || e.least > e.greatest || e.rises+e.falls >= e.n {
		return false
	}
	firsts, lasts := []float64{e.first}, []float64{e.last}
	if math.IsNaN(e.first) {
		firsts = []float64{e.least, e.greatest}
		if e.falls == 1 && e.correction > e.least && e.correction < e.greatest {
			firsts = append(firsts, e.correction) // It may be the value before the only fall.
		}
	}
	if math.IsNaN(e.last) {
		lasts = []float64{e.greatest, e.least}
	}
	found := false
	for _, g := range gapsOf(&e) {
		for _, first := range firsts {
			for _, last := range lasts {
				x.e, x.v = e, all
				switch {
				case !x.setWithGaps(g, first, last):
				case x.matchCorrection():
					return true
				case !found && areFinite(x.correction()) == areFinite(e.correction):
					found, x.odd = true, append(x.odd[:0], all...)
				}
			}
		}
	}
	if found {
		copy(all, x.odd)
	}
	return found
}

// maxOddSearches is the max number of searches for one odd course.
const maxOddSearches = 64

// gaps are the numbers of NaN samples between other samples. A bucket counts a change to NaN and a change from NaN as
// rises:
//
//	in a rise        at a level      in a fall
//	     ┌──
//	 NaN             ── NaN ──       ──┐ NaN
//	──┘                                └──────
//	one more rise    2 more rises    2 more rises, one fall less
type gaps struct{ rises, levels, falls int }

func (g gaps) count() int { return g.rises + g.levels + g.falls }

// gapsOf returns the gaps that a bucket's values may have, the most likely first.
func gapsOf(e *expanded) []gaps {
	if !math.IsNaN(e.sum) {
		return []gaps{{}}
	}
	var list []gaps
	rises := e.rises - asCount(math.IsNaN(e.first)) - asCount(math.IsNaN(e.last))
	if rises < e.rises || math.IsInf(e.least, -1) && math.IsInf(e.greatest, 1) {
		list = append(list, gaps{}) // The sum is NaN without gaps.
	}
	for _, g := range [...]gaps{
		{rises: 1}, {levels: 1}, {falls: 1}, {levels: rises / 2}, {rises: 1, levels: (rises - 1) / 2},
		{levels: (rises - 2) / 2, falls: 1}, {rises: 1, levels: (rises - 3) / 2, falls: 1},
	} {
		if g.levels >= 0 && rises >= g.rises+2*g.levels+2*g.falls && g.count() > 0 && !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	return list
}

// setWithGaps sets x.v to values with the first, last, min, max, rises and falls of x.e, and reports whether it found
// them. first and last are the first and last value that isn't NaN.
func (x *fit) setWithGaps(g gaps, first, last float64) bool {
	e, all := x.e, x.v
	from, to := asCount(math.IsNaN(e.first)), e.n-asCount(math.IsNaN(e.last))
	x.e.n, x.e.first, x.e.last = to-from-g.count(), first, last
	x.e.rises -= from + e.n - to + g.rises + 2*g.levels + 2*g.falls
	x.e.falls += g.falls
	if x.e.n < 1 || x.e.rises < 0 || x.e.rises+x.e.falls >= x.e.n {
		return false
	}
	x.v = all[from:][:x.e.n]
	if !x.setWithoutNaN(g.falls == 0) {
		return false
	}
	copy(all[from:to], x.insertGaps(g, e.correction))
	all[0], all[e.n-1] = e.first, e.last
	x.e, x.v = e, all
	return x.hasSteps() && slices.Contains(all, e.least) && slices.Contains(all, e.greatest)
}

// setWithoutNaN sets x.v to values with the given first, last, min, max, rises and falls. They aren't
// NaN. If possible, they also have the correction if corrected is set.
func (x *fit) setWithoutNaN(corrected bool) bool {
	e := x.e
	if e.n <= 2 || e.rises+e.falls == 0 {
		for k := range x.v {
			x.v[k] = e.first
		}
		x.v[e.n-1] = e.last
		return x.hasSteps()
	}
	defer func() { x.e = e }()
	if corrected && !math.IsInf(e.greatest, 1) && x.setCorrected() {
		return true
	}
	x.e = e
	scale := rankScale(e.first, e.last, e.least, e.greatest)
	x.e.least, x.e.greatest = 0, 1
	x.e.first, x.e.last = scale.rank(e.first), scale.rank(e.last)
	for _, height := range oddHeights {
		x.e.correction = float64(e.falls) * (math.Abs(height) + 1) / 2
		if x.searchHeight(height, true) {
			for k, v := range x.v {
				x.v[k] = scale.value(v)
			}
			if x.hasSteps() {
				return true
			}
		}
	}
	return false
}

// searchHeight searches for a course whose mean is at a fraction of the range of values, see oddHeights. It uses up one
// of the searches, and returns false if all are used up.
func (x *fit) searchHeight(height float64, anyCorrection bool) bool {
	e := &x.e
	e.sum, e.low = float64(e.n)*(e.least+math.Abs(height)*(e.greatest-e.least)), 0
	if !x.isPossible() || !x.setOutline() || x.searches == 0 {
		return false
	}
	x.searches--
	x.target.anyCorrection, x.target.anySum = anyCorrection, height < 0
	return x.searchAll()
}

// setCorrected sets x.v to values that also have the correction, and reports whether it found them. If the min is -Inf,
// a lower value than the others represents it.
func (x *fit) setCorrected() bool {
	e, least := &x.e, x.e.least
	if math.IsInf(least, -1) {
		low := min(e.greatest, e.correction/float64(max(e.falls, 1)))
		for _, v := range [...]float64{e.first, e.last} {
			if areFinite(v) {
				low = min(low, v)
			}
		}
		e.least = low - max(e.greatest-low, math.Abs(low), 1)
		e.first, e.last = max(e.first, e.least), max(e.last, e.least)
	}
	if !areFinite(e.correction, (e.greatest-e.least)*float64(e.n), (e.greatest+e.least)*float64(e.n)) {
		return false
	}
	for _, height := range oddHeights {
		if x.searchHeight(height, false) && x.hasSteps() {
			for k, v := range x.v {
				if v == e.least {
					x.v[k] = least
				}
			}
			return true
		}
	}
	return false
}

// oddHeights are the means to try, as fractions of the range of values.
var oddHeights = [...]float64{anyHeight, 0.5, 0.25, 0.75}

// anyHeight stands for the mean of the even course. Its absolute value is the mean that outlines expect.
const anyHeight = -0.5

// hasSteps reports whether the values have the rises and falls.
func (x *fit) hasSteps() bool {
	s := x.steps()
	return int(s.Resets) == x.e.falls && int(s.Changes) == x.e.falls+x.e.rises
}

// steps counts the steps between the values.
func (x *fit) steps() (s rollup.Steps) {
	for k := 1; k < len(x.v); k++ {
		s.CountStep(x.v[k-1], x.v[k])
	}
	return s
}

// insertGaps returns x.v with gaps. correction is the correction that the values with gaps should have.
func (x *fit) insertGaps(g gaps, correction float64) []float64 {
	out, nan := x.gapped[:0], math.NaN()
	inRise, inFall := -1, -1
	if g.rises > 0 {
		inRise = x.middleRise()
	}
	if g.falls > 0 {
		inFall = x.fallOf(correction)
	}
	spare, seen := x.e.n-1-x.e.rises-x.e.falls, 0 // Samples with the value of the sample before.
	for k, v := range x.v {
		if out = append(out, v); k+1 == len(x.v) {
			break
		}
		switch {
		case k == inRise, k == inFall:
			out = append(out, nan)
		case v == x.v[k+1]:
			if seen++; seen*g.levels/spare > (seen-1)*g.levels/spare {
				out = append(out, nan)
			}
		}
	}
	x.gapped = out
	return out
}

// middleRise returns the index of the value before the rise that is the closest to the middle.
func (x *fit) middleRise() int {
	best, middle := -1, len(x.v)/2
	for k := 1; k < len(x.v); k++ {
		if x.v[k-1] < x.v[k] && (best < 0 || k-1-middle <= middle-best) {
			best = k - 1
		}
	}
	return best
}

// fallOf returns the index of the value before the fall without which the values are closest to a correction.
func (x *fit) fallOf(correction float64) int {
	need, best, least := x.correction()-correction, -1, math.Inf(1)
	for k := 1; k < len(x.v); k++ {
		if !(x.v[k] < x.v[k-1]) {
			continue
		}
		off := math.Abs(x.v[k-1] - need)
		if x.v[k-1] == need {
			off = 0 // also if both are infinite
		}
		if best < 0 || off < least {
			best, least = k-1, off
		}
	}
	return best
}

// correction returns the correction of the values.
func (x *fit) correction() float64 {
	s := x.steps()
	return s.Correction.Total()
}

// matchCorrection moves values before falls until the values have the correction, and reports whether they have it.
// First, last, min and max, rises and falls stay the same.
func (x *fit) matchCorrection() bool {
	for round := range 4 {
		have := x.correction()
		off := x.e.correction - have
		switch {
		case have == x.e.correction, areFinite(off) && math.Abs(off) <= 1e-13*math.Abs(x.e.correction):
			return true
		case math.IsNaN(off):
			return false
		}
		x.byOrder = round > 1
		x.moveValues(off)
	}
	return false
}

// refineCorrection matches the correction if its error is below the rounding error of the sum, but above the rounding
// error of the increase. This occurs if some values are much larger than the increase.
func (x *fit) refineCorrection() {
	e := &x.e
	visible := 1e-12 * max(math.Abs(e.first), math.Abs(e.last), math.Abs(e.correction))
	if e.falls == 0 || e.n < 3 || e.maxSumError() <= visible {
		return
	}
	if off := math.Abs(x.correction() - e.correction); off > visible && off <= e.maxSumError() {
		x.matchCorrection()
	}
}

// moveValues moves values before falls by off in total, as far as possible.
func (x *fit) moveValues(off float64) {
	v, n := x.v, len(x.v)
	least, greatest := x.indexOf(x.e.least), x.indexOf(x.e.greatest)
	move := func(from, to int, by float64) float64 { return x.moveRun(from, to, by, least, greatest) }
	if off > 0 {
		for from, to := 0, 0; from < n && off > 0; from = to {
			if to = x.endOfRun(from); to < n && v[to] < v[from] {
				off -= move(from, to, off)
			}
		}
		return
	}
	for from, to := 0, 0; from < n; from = to { // to make room for the others
		if to = x.endOfRun(from); to == n || !(v[to] < v[from]) {
			move(from, to, off)
		}
	}
	for to := n; to > 0 && off < 0; {
		from := to - 1
		for from > 0 && v[from-1] == v[to-1] {
			from--
		}
		if to < n && v[to] < v[from] {
			off -= move(from, to, off)
		}
		to = from
	}
}

// indexOf returns the index of a value, the first or last sample if it has the value.
func (x *fit) indexOf(v float64) int {
	if n := len(x.v) - 1; x.v[n] == v {
		return n
	}
	return slices.Index(x.v, v)
}

// endOfRun returns the end of the samples that have the value of the sample from.
func (x *fit) endOfRun(from int) int {
	to := from + 1
	for to < len(x.v) && x.v[to] == x.v[from] {
		to++
	}
	return to
}

// moveRun moves the equal values [from, to) by at most by, so that they stay on the same side of their neighbors, and
// returns the distance moved. It doesn't move the first and last value and the samples smallest and largest.
func (x *fit) moveRun(from, to int, by float64, smallest, largest int) float64 {
	v := x.v[from]
	isIn := func(k int) bool { return k >= from && k < to }
	if from == 0 || to == len(x.v) || isIn(smallest) || isIn(largest) || !areFinite(v) {
		return 0
	}
	low, high, neighbors := x.e.least, x.e.greatest, [...]float64{x.v[from-1], x.v[to]}
	for _, neighbor := range neighbors {
		if neighbor < v {
			low = max(low, neighbor)
		} else if neighbor > v {
			high = min(high, neighbor)
		}
	}
	moved := min(max(v+by, low), high)
	if slices.Contains(neighbors[:], moved) {
		moved = x.closeTo(moved, v)
	}
	if slices.Contains(neighbors[:], moved) {
		return 0
	}
	for k := from; k < to; k++ {
		x.v[k] = moved
	}
	return moved - v
}

// closeTo returns a value between limit and v that is close to limit. If byOrder is set, it is close in the order of
// all float64s, which has about as many values between 1 and 10 as between 1e300 and 1e301.
func (x *fit) closeTo(limit, v float64) float64 {
	if linear := limit*(1-1.0/64) + v/64; !x.byOrder && areFinite(linear) {
		return linear
	}
	at, from := chunk.OrderedBits(limit), chunk.OrderedBits(v)
	return chunk.FromOrderedBits(at + from/64 - at/64)
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
