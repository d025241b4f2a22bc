package expand

import (
	"math"
	"slices"

	"github.com/cassia-db/cassia/storage/rollup"
)

// expanded contains the known properties of a bucket's values.
type expanded struct {
	n, rises, falls              int
	first, last, least, greatest float64
	sum, low                     float64
	correction                   float64
}

// maxSumError returns the max rounding error of sums.
func (e *expanded) maxSumError() float64 {
	return 1e-14 * max(math.Abs(e.least), math.Abs(e.greatest)) * float64(e.n)
}

// fit finds values with the properties of a bucket.
type fit struct {
	e      expanded
	v      []float64 // the values
	odd    []float64 // for setOddCourse
	gapped []float64 // for insertGaps
	// searches is the number of searches that setOddCourse may still run.
	searches int
	byOrder  bool // for closeTo
	course   course
	outline  outline
	target   target
	runs     [5]int // for likelyRuns
	tries    int
	mild     bool // reject courses that need strong bending
}

// setValues sets x.v to values with the properties of the bucket. If it finds none, setOddCourse or setOdd sets values
// with some of the properties.
func (x *fit) setValues() {
	e := &x.e
	x.v = slices.Grow(x.v[:0], e.n)[:e.n]
	switch {
	case x.setFitting():
		x.refineCorrection()
	case !x.setOddCourse():
		x.setOdd()
	}
}

// setFitting sets x.v and returns true, or returns false if it finds no values with all properties.
func (x *fit) setFitting() bool {
	e := &x.e
	switch {
	case e.n <= 2:
		x.v[0], x.v[e.n-1] = e.first, e.last
		return true
	case e.least == e.greatest && e.rises+e.falls == 0:
		for k := range x.v {
			x.v[k] = e.first
		}
		return true
	case !areFinite(e.sum, e.low, e.correction) || !x.isPossible():
		return false
	}
	return x.setLine() || x.twoLevels() || x.setCourse()
}

// isPossible reports whether a course can have the properties other than sum and correction.
func (x *fit) isPossible() bool {
	e := &x.e
	return areFinite(e.first, e.last, e.least, e.greatest, (e.greatest-e.least)*float64(e.n)) &&
		e.least < e.greatest && e.least <= min(e.first, e.last) && e.greatest >= max(e.first, e.last) &&
		e.rises+e.falls > 0 && e.rises+e.falls < e.n // unless columns are damaged
}

// valuesOfUnknownSteps sets x.v for floats among histograms: the numbers of changes and falls are unknown.
func (x *fit) valuesOfUnknownSteps() {
	e := &x.e
	for _, changes := range [...]int{e.n - 1, 0, 1, 2, 3} {
		for falls := range min(changes, 12) + 1 {
			e.rises, e.falls = changes-falls, falls
			e.correction = float64(falls) * e.greatest // as if all falls were from the max value
			if x.v = slices.Grow(x.v[:0], e.n)[:e.n]; x.setFitting() {
				return
			}
		}
	}
	x.setOdd()
}

// valuesOfAggregates sets x.v for aggregates, whose count, sum, min and max are exact, and nothing else.
//
//	counter      ┌── max     otherwise     ┌ max
//	       ┌─────┘                  ───────┘ ┌───── mean of the others
//	 min ──┘                                 └ min
func (x *fit) valuesOfAggregates() {
	e := &x.e
	x.v = slices.Grow(x.v[:0], e.n)[:e.n]
	if e.falls = 0; e.correction > 0 && e.greatest > 0 && areFinite(e.correction/e.greatest) {
		e.falls = int(min(math.Ceil(e.correction/e.greatest-1e-9), float64(e.n-1)))
	}
	e.rises = e.n - 1 - e.falls
	if e.n > 2 && (e.falls > 0 || e.first == e.least && e.last == e.greatest) && x.setFitting() {
		return
	}
	others := float64(e.n - 2)
	mean := e.sum/others - e.least/others - e.greatest/others + e.low/others
	switch {
	case !math.IsNaN(mean):
		mean = min(max(mean, e.least), e.greatest)
	case !math.IsInf(e.least, 0):
		mean = e.least
	default:
		mean = e.greatest
	}
	for k := range x.v {
		x.v[k] = mean
	}
	low, high := e.n/2, max(e.n/2-1, 0)
	if e.falls == 0 && e.first < e.last {
		low, high = 0, e.n-1
	}
	x.v[low], x.v[high] = e.least, e.greatest
}

// asCount returns 1 for true and 0 for false.
func asCount(is bool) int {
	if is {
		return 1
	}
	return 0
}

func areFinite(list ...float64) bool {
	for _, v := range list {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// setLine sets values that rise or fall by equal steps, and reports whether they have the properties.
func (x *fit) setLine() bool {
	e := &x.e
	height, steps := e.last-e.first, float64(e.n-1)
	if max(e.rises, e.falls) < e.n-1 || e.least != min(e.first, e.last) || e.greatest != max(e.first, e.last) ||
		math.Abs(float64(e.n)*(e.first+height/2)-e.sum) > e.maxSumError() {
		return false
	}
	for k := range x.v {
		x.v[k] = e.first + height*float64(k)/steps
	}
	x.v[e.n-1] = e.last
	return true
}

// twoLevels sets values that are each the min or the max, as in series like up, and reports whether they have the
// properties. The sum determines the number of samples with each value.
func (x *fit) twoLevels() bool {
	e := &x.e
	span := e.greatest - e.least
	share := (e.sum - float64(e.n)*e.least + e.low) / span
	high := [2]bool{e.first == e.greatest, e.last == e.greatest}
	if math.Abs(share-math.Round(share)) > 1e-9+e.maxSumError()/span ||
		math.Abs(e.correction-float64(e.falls)*e.greatest) > e.maxSumError() ||
		!high[0] && e.first != e.least || !high[1] && e.last != e.least {
		return false
	}
	rises := e.falls
	switch high {
	case [2]bool{true, false}:
		rises--
	case [2]bool{false, true}:
		rises++
	}
	runs := [2]int{1: (e.rises + e.falls + 1) / 2} // number of runs at the min and at the max
	if high == [2]bool{true, true} {
		runs[1]++
	}
	runs[0] = e.rises + e.falls + 1 - runs[1]
	samples := [2]int{1: int(math.Round(share))}
	samples[0] = e.n - samples[1]
	if rises != e.rises || samples[0] < runs[0] || samples[1] < runs[1] {
		return false
	}
	level, at, done := 0, 0, [2]int{}
	if high[0] {
		level = 1
	}
	for range e.rises + e.falls + 1 {
		held := (done[level]+1)*samples[level]/runs[level] - done[level]*samples[level]/runs[level]
		done[level]++
		for range held {
			x.v[at] = [2]float64{e.least, e.greatest}[level]
			at++
		}
		level = 1 - level
	}
	return true
}

// setCourse sets values along a course with the same rises, falls and sum, and, if it finds one, the same correction.
// It returns false if it finds no course.
func (x *fit) setCourse() bool {
	if !x.setOutline() {
		return false
	}
	if x.searchAll() {
		return true
	}
	x.target.anyCorrection = true
	return x.e.falls > 0 && x.searchAll()
}

// setOutline sets the outline and the target. It returns false if fractions can't represent the first and last value
// because values differ too much in size.
func (x *fit) setOutline() bool {
	e, o := &x.e, &x.outline
	span := e.greatest - e.least
	*o = outline{
		samples: e.n, rises: e.rises, falls: e.falls, first: (e.first - e.least) / span,
		last: (e.last - e.least) / span, total: (e.correction - float64(e.falls)*e.least) / span,
	}
	x.target = target{
		point: point{correction: o.total, sum: (e.sum - float64(e.n)*e.least + e.low) / span},
		slack: 1e-15*float64(e.n) + 0.1*e.maxSumError()/span,
	}
	o.mean = x.target.sum / float64(e.n)
	if e.falls > 0 {
		o.beforeFall = o.total / float64(e.falls)
	}
	return (o.first == 1) == (e.first == e.greatest) && (o.first == 0) == (e.first == e.least) &&
		(o.last == 1) == (e.last == e.greatest) && (o.last == 0) == (e.last == e.least)
}

// evenly is a value of loose: samples stay evenly distributed over levels, and course.placeSamples isn't called.
const evenly = -1

// searchAll tries courses, the most likely ones first, until one fits.
func (x *fit) searchAll() bool {
	o := &x.outline
	levels := o.rises + o.falls + 1
	x.tries = 64 + 20_000/levels
	return x.searchSome(true) || x.searchSome(false)
}

// searchSome tries all courses, or only the likely ones.
func (x *fit) searchSome(likely bool) bool {
	o := &x.outline
	extra := o.samples - o.rises - o.falls - 1
	for i, loose := range [...]int{evenly, extra / 2, extra * 7 / 8, 0, 1, 2, 3, extra / 4} {
		if loose > extra || i > 0 && extra == 0 {
			continue
		}
		for _, turns := range [...]struct{ deep, steep bool }{{}, {deep: true}, {steep: true}} {
			o.deep, o.steep = turns.deep, turns.steep
			for k := range 4 {
				if likely && k > 0 && (o.deep || o.steep) {
					break
				}
				// A course likely rises from a first value below the mean, and to a last value above the mean. Counters
				// rise anyway.
				o.beginsUp = (o.isCounter() || o.first < o.mean) == (k&1 == 0)
				o.endsUp = (o.isCounter() || o.last > o.mean) == (k&2 == 0)
				if x.searchRuns(loose, !likely || o.isCounter() && loose == evenly) {
					return true
				}
			}
		}
	}
	return false
}

// searchRuns tries courses with different numbers of runs and, if lengths is set, with different lengths of the first
// run.
func (x *fit) searchRuns(loose int, lengths bool) bool {
	o := &x.outline
	for _, runs := range x.likelyRuns() {
		o.runs, o.firstRises, o.firstFalls = runs, 0, 0
		if !o.isPossible() {
			continue
		}
		// For a counter that rose evenly, the sum determines the time of its reset.
		x.mild = loose == evenly && o.isCounter()
		found := x.mild && x.searchFirst(loose, &o.firstRises, o.rises-o.risingRuns()+1, o.risingRuns())
		if x.mild = false; found {
			return true
		}
		if x.setFromCourse(loose) ||
			lengths && x.searchFirst(loose, &o.firstRises, o.rises-o.risingRuns()+1, o.risingRuns()) ||
			lengths && x.searchFirst(loose, &o.firstFalls, o.falls-o.runs+1, o.runs) {
			return true
		}
	}
	return false
}

// searchFirst tries courses with different lengths of the first run, up to most.
func (x *fit) searchFirst(loose int, first *int, most, runs int) bool {
	if runs < 2 || most < 2 {
		return false
	}
	likely := x.firstSteps(first == &x.outline.firstRises)
	for _, n := range [...]int{likely, likely + 1, likely - 1, likely + 2, 1, most} {
		if *first = n; n > 0 && n <= most && x.setFromCourse(loose) {
			return true
		}
	}
	*first = 0
	return false
}

// firstSteps returns the length of the first run of rises or falls with which the mean is approximately right.
func (x *fit) firstSteps(up bool) int {
	o, c := &x.outline, &x.course
	if !c.setTurns(o) {
		return 0
	}
	i, steps := 1, o.falls
	if up {
		steps = o.rises
	}
	if o.beginsUp != up {
		i++
	}
	mean, rest, height := (c.turns[i-1]+c.turns[i])/2, 0.0, 0.0
	for i += 2; i < len(c.turns); i += 2 {
		rest += math.Abs(c.turns[i]-c.turns[i-1]) * (c.turns[i] + c.turns[i-1]) / 2
		height += math.Abs(c.turns[i] - c.turns[i-1])
	}
	if rest /= height; rest == mean {
		return 0
	}
	return int(math.Round(min(max((o.mean-rest)/(mean-rest), 0), 1) * float64(steps)))
}

// likelyRuns returns numbers of runs of falls, the most likely first.
func (x *fit) likelyRuns() []int {
	o := &x.outline
	if o.falls == 0 {
		return append(x.runs[:0], 0)
	}
	most := o.rises
	switch {
	case o.beginsUp && o.endsUp:
		most--
	case !o.beginsUp && !o.endsUp:
		most++
	}
	most = min(most, o.falls)
	// This is the number of runs if each spans from 0 to 1; otherwise there are more.
	few := min(max(int(math.Ceil(2.4*float64(o.falls)*(o.beforeFall-o.mean))), 1), most)
	likely := few
	if o.isCounter() { // A counter falls in one step.
		likely = most
	}
	list := append(x.runs[:0], likely)
	for _, n := range [...]int{(few + most) / 2, few, most, 1} {
		if n >= 1 && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// setFromCourse sets the values of the outline's course if it fits.
func (x *fit) setFromCourse(loose int) bool {
	if x.tries--; x.tries < 0 {
		return false
	}
	c := &x.course
	if !c.drawOutline(&x.outline) {
		return false
	}
	if x.target.anySum {
		x.target.sum = c.point().sum
	}
	if loose != evenly {
		if !x.target.anyCorrection {
			c.pinLevel(x.target.correction)
		}
		if !c.placeSamples(x.e.n, loose, x.target.sum) {
			return false
		}
	}
	if by := c.bendToSum(x.target.sum); x.mild && math.Abs(by) > 0.5 {
		return false
	}
	return c.solveTarget(x.target) && x.setFromLevels()
}

// setFromLevels converts the levels of the course to values, sets x.v to them, and reports whether they fit.
func (x *fit) setFromLevels() bool {
	e, c := &x.e, &x.course
	for j, v := range c.level {
		c.level[j] = min(max(e.least+v*(e.greatest-e.least), e.least), e.greatest)
	}
	c.level[c.top], c.level[c.bottom] = e.greatest, e.least
	c.level[0], c.level[len(c.level)-1] = e.first, e.last
	if !x.target.anyCorrection {
		c.addRoundingError(e, x.missingCorrection(), func(j int) bool { return c.isBeforeFall(j) }, false)
	}
	if !x.target.anySum {
		c.addRoundingError(e, x.missingSum(), func(j int) bool { return !c.isBeforeFall(j) && c.held[j] == 1 }, true)
		c.addRoundingError(
			e, x.missingSum(), func(j int) bool { return !c.isBeforeFall(j) || x.target.anyCorrection }, true,
		)
	}
	if !c.isStrict() || !x.target.anySum && !(math.Abs(x.missingSum()) <= e.maxSumError()) ||
		!x.target.anyCorrection && !(math.Abs(x.missingCorrection()) <= e.maxSumError()) {
		return false
	}
	at := 0
	for j, v := range c.level {
		for range c.held[j] {
			x.v[at] = v
			at++
		}
	}
	return true
}

// missingCorrection returns the correction minus the sum of the levels before falls.
func (x *fit) missingCorrection() float64 {
	var s rollup.Sum
	s.Add(-x.e.correction)
	for j, v := range x.course.level {
		if x.course.isBeforeFall(j) {
			s.Add(v)
		}
	}
	return -s.Total()
}

// missingSum returns the bucket's sum minus the sum of all samples of the course.
func (x *fit) missingSum() float64 {
	var s rollup.Sum
	s.AddSum(-x.e.sum, -x.e.low)
	for j, v := range x.course.level {
		product := v * float64(x.course.held[j])
		s.AddSum(product, math.FMA(v, float64(x.course.held[j]), -product))
	}
	return -s.Total()
}

// addRoundingError adds off, the rounding error of a sum, to the first changeable level that keeps its order relative
// to its neighbors. If perSample is set, off is shared among the level's samples.
func (c *course) addRoundingError(e *expanded, off float64, mayChange func(j int) bool, perSample bool) {
	if off == 0 {
		return
	}
	for j := 1; j+1 < len(c.level); j++ {
		if c.known[j] >= 0 || !mayChange(j) {
			continue
		}
		v := c.level[j] + off
		if perSample {
			v = c.level[j] + off/float64(c.held[j])
		}
		before, after := c.level[j-1], c.level[j+1]
		if v >= e.least && v <= e.greatest && v != before && v != after && c.up[j-1] == (before < v) &&
			c.up[j] == (v < after) {
			c.level[j] = v
			return
		}
	}
}

// setOdd sets values for a bucket for which setOddCourse finds none. The first value is repeated as often as possible.
// The other values that must occur, and the last value, follow in the order with the fewest excess changes and falls.
func (x *fit) setOdd() {
	e := &x.e
	var others [3]float64
	n := 0
	add := func(v float64, is bool) {
		if is && n < e.n-2 {
			others[n] = v
			n++
		}
	}
	isNaN := math.IsNaN
	add(e.greatest, e.greatest > max(e.first, e.last) || isNaN(e.first) && e.greatest != e.last ||
		isNaN(e.last) && e.greatest != e.first)
	add(e.least, e.least < min(e.first, e.last) || isNaN(e.first) && e.least != e.last && e.least != e.greatest ||
		isNaN(e.last) && e.least != e.first && e.least != e.greatest)
	add(math.NaN(), isNaN(e.sum))
	needed := n
	if n > 0 && isNaN(others[n-1]) &&
		(math.IsInf(e.greatest, 1) && math.IsInf(e.least, -1) || isNaN(e.first) || isNaN(e.last)) {
		needed-- // The sum is NaN without a NaN here, which would turn a fall into two changes.
	}
	for k := range x.v {
		x.v[k] = e.first
	}
	best := math.MaxInt
	var order [3]float64
	used := 0
	for of := needed; of <= n; of++ {
		for _, by := range [...][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			var r rollup.Steps
			before, at, k := e.first, [3]float64{}, 0
			for _, i := range by {
				if i < of {
					r.CountStep(before, others[i])
					before, at[k] = others[i], others[i]
					k++
				}
			}
			r.CountStep(before, e.last)
			if tooMany := max(int(r.Changes)-e.rises-e.falls, 0) + max(int(r.Resets)-e.falls, 0); tooMany < best {
				best, order, used = tooMany, at, of
			}
		}
	}
	copy(x.v[e.n-1-used:], order[:used])
	x.v[e.n-1] = e.last
}
