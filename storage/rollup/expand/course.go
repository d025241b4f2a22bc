package expand

import (
	"math"
	"slices"
)

// course is a sequence of levels. Each level is the value of one or more samples:
//
//	1 max              ┌───top
//	               ┌───┘   │     ┌──last    up      ↑ ↑ ↓ ↓ ↑
//	first ─────────┘       └─┐   │          held    3 1 2 1 1 2
//	0 min                    └───bottom
//
// Levels are fractions: 0 is the min value and 1 the max. A course has as many rises and falls as its outline.
type course struct {
	up    []bool // whether the course rises from each level to the next
	held  []int  // number of samples at each level
	level []float64
	known []int8 // index in knots of a level that can't change; -1 for levels that can

	// knots are the known levels, ascending: 0, the first level, the last level, 1, and a level that pinLevel may add.
	knots []float64
	// top and bottom are the indices of a level of 1 and a level of 0.
	top, bottom int

	turns []float64 // for drawOutline
	work  search    // for solveTarget
}

// maxKnots is the max number of knots.
const maxKnots = 5

// outline defines the shape of a course. Levels are fractions as in course.
type outline struct {
	samples, rises, falls int
	first, last           float64
	// mean is the mean of all samples, and beforeFall the mean of the levels before falls. total is the sum of the
	// levels before falls.
	mean, beforeFall, total float64

	// runs is the number of runs of consecutive falls.
	runs             int
	beginsUp, endsUp bool
	// deep is set if all troughs are at 0, steep if all peaks are at 1.
	deep, steep bool
	// firstRises and firstFalls are the lengths of the first run of rises and of falls; 0 means in proportion to the
	// run's height.
	firstRises, firstFalls int
}

// risingRuns returns the number of runs of consecutive rises.
func (o *outline) risingRuns() int {
	n := o.runs
	switch {
	case o.beginsUp && o.endsUp:
		n++
	case !o.beginsUp && !o.endsUp:
		n--
	}
	return n
}

// isCounter reports whether falls are rare enough to be counter resets.
func (o *outline) isCounter() bool { return o.falls*4 <= o.rises }

// isPossible reports whether there are enough rises and falls for the runs, and whether the first and last levels allow
// them.
func (o *outline) isPossible() bool {
	rising := o.risingRuns()
	return o.runs >= 0 && rising >= 0 && rising <= o.rises && o.runs <= o.falls && (rising == 0) == (o.rises == 0) &&
		(o.runs == 0) == (o.falls == 0) &&
		(o.beginsUp && o.first < 1 || !o.beginsUp && o.first > 0) && (o.endsUp && o.last > 0 || !o.endsUp && o.last < 1)
}

// drawOutline sets c to a course of even rises and falls with levels of about equal length. It returns false if it
// finds none for the outline.
func (c *course) drawOutline(o *outline) bool {
	if !o.isPossible() || !c.setTurns(o) {
		return false
	}
	n := o.rises + o.falls
	c.up, c.held = slices.Grow(c.up[:0], n)[:n], slices.Grow(c.held[:0], n+1)[:n+1]
	c.level, c.known = slices.Grow(c.level[:0], n+1)[:n+1], slices.Grow(c.known[:0], n+1)[:n+1]
	rises := shares{runs: o.risingRuns(), steps: o.rises, first: o.firstRises}
	falls := shares{runs: o.runs, steps: o.falls, first: o.firstFalls}
	for i := 1; i < len(c.turns); i++ {
		if rise := c.turns[i] - c.turns[i-1]; rise > 0 {
			rises.height += rise
		} else {
			falls.height -= rise
		}
	}
	at := 0
	c.level[0] = c.turns[0]
	for i := 1; i < len(c.turns); i++ {
		rise := c.turns[i] - c.turns[i-1]
		run := 0
		if rise > 0 {
			run = rises.nextRun(rise)
		} else {
			run = falls.nextRun(-rise)
		}
		for j := 1; j <= run; j++ {
			c.up[at+j-1] = rise > 0
			c.level[at+j] = c.turns[i-1] + rise*float64(j)/float64(run)
		}
		at += run
		c.level[at] = c.turns[i]
	}
	return c.assignSamples(o) && c.isStrict()
}

// shares distributes steps among runs in proportion to their height, at least one per run.
type shares struct {
	runs, steps int
	height      float64
	first       int // if greater than 0, the number of steps of the first run

	seen          float64
	passed, given int
}

// nextRun returns the number of steps of the next run.
func (s *shares) nextRun(height float64) int {
	s.passed++
	until := 0
	switch {
	case s.passed == s.runs:
		until = s.steps - s.runs
	case s.passed == 1 && s.first > 0: // The other runs share the rest.
		until = s.first - 1
		s.height -= height
		height = 0
	case s.first > 0:
		s.seen += height
		until = s.first - 1 + int(math.Round(s.seenShare()*float64(s.steps-s.runs-s.first+1)))
	default:
		s.seen += height
		until = int(math.Round(s.seenShare() * float64(s.steps-s.runs)))
	}
	n := until - s.given
	s.given = until
	return n + 1
}

// seenShare returns the share of the height in the runs that were seen. If the other runs are negligible next to the
// first, subtracting the first run's height from the height of all may leave nothing, or less than was seen.
func (s *shares) seenShare() float64 {
	if !(s.seen < s.height) {
		return 1
	}
	return s.seen / s.height
}

// setTurns sets the levels at which the course turns, including the first and the last. It reports whether rises and
// falls alternate and the course reaches 0 and 1.
func (c *course) setTurns(o *outline) bool {
	n := o.runs + o.risingRuns()
	c.turns = slices.Grow(c.turns[:0], n+1)[:n+1]
	c.turns[0], c.turns[n] = o.first, o.last
	high, low := o.heights()
	top, bottom := -1, -1
	for i := 1; i < n; i++ {
		isPeak := i%2 == 1 == o.beginsUp
		if isPeak {
			v := high
			if i == 1 && v <= o.first {
				v = (o.first + 1) / 2
			}
			if i == n-1 && v <= o.last {
				v = (o.last + 1) / 2
			}
			if c.turns[i] = v; top < 0 || v > c.turns[top] || v == c.turns[top] && i <= n/2 {
				top = i
			}
			continue
		}
		v := low
		if i == 1 && v >= o.first {
			v = o.first / 2
		}
		if i == n-1 && v >= o.last {
			v = o.last / 2
		}
		if c.turns[i] = v; bottom < 0 || v < c.turns[bottom] || v == c.turns[bottom] && i <= n/2+1 {
			bottom = i
		}
	}
	if max(o.first, o.last) < 1 {
		if top < 0 {
			return false
		}
		c.turns[top] = 1
	}
	if min(o.first, o.last) > 0 {
		if bottom < 0 {
			return false
		}
		c.turns[bottom] = 0
	}
	for i := 1; i <= n; i++ {
		if isUp := i%2 == 1 == o.beginsUp; isUp && !(c.turns[i] > c.turns[i-1]) ||
			!isUp && !(c.turns[i] < c.turns[i-1]) {
			return false
		}
	}
	return true
}

// peaks returns the number of turns from rising to falling.
func (o *outline) peaks() int {
	turns := o.runs + o.risingRuns() - 1
	if o.beginsUp {
		turns++
	}
	return turns / 2
}

// heights returns estimates of the levels of peaks and troughs. If falls and rises are even, the mean of the levels
// before falls exceeds the mean of all levels by half a fall.
func (o *outline) heights() (high, low float64) {
	half := float64(o.falls) / float64(max(o.runs, 1)) * (o.beforeFall - o.mean)
	high, low = o.mean+half, o.mean-half
	if o.runs == o.falls { // Every level before a fall is a peak, or the first.
		rest, n := o.total, o.peaks()
		if !o.beginsUp {
			rest -= o.first
		}
		if max(o.first, o.last) < 1 {
			rest, n = rest-1, n-1
		}
		if n > 0 {
			high = rest / float64(n)
		}
	}
	if high = min(high, 1); high <= 0 {
		high = 0.02
	}
	low = min(max(low, 0), high*0.98)
	if o.deep {
		low = 0
	}
	if o.steep {
		high = 1
	}
	return high, low
}

// assignSamples assigns about equally many samples to each level, and sets which levels are known. It returns false if
// no level is 1 or no level is 0.
func (c *course) assignSamples(o *outline) bool {
	c.knots = append(c.knots[:0], 0, o.first, o.last, 1)
	slices.Sort(c.knots)
	c.knots = slices.Compact(c.knots)
	n, before := len(c.held), 0
	for j := range c.held {
		until := (j + 1) * o.samples / n
		c.held[j] = until - before
		before = until
		c.known[j] = -1
	}
	c.known[0], c.known[n-1] = c.knotOf(o.first), c.knotOf(o.last)
	c.top, c.bottom = c.find(1), c.find(0)
	if c.top < 0 || c.bottom < 0 {
		return false
	}
	one, zero := c.knotOf(1), c.knotOf(0)
	c.known[c.top], c.known[c.bottom] = one, zero
	for j, v := range c.level {
		if o.steep && v == 1 {
			c.known[j] = one
		}
		if o.deep && v == 0 {
			c.known[j] = zero
		}
	}
	return true
}

// find returns the index of a level, or -1. It prefers the first and the last level.
func (c *course) find(level float64) int {
	if n := len(c.level) - 1; c.level[n] == level && c.level[0] != level {
		return n
	}
	return slices.Index(c.level, level)
}

// knotOf returns the index of a level in knots.
func (c *course) knotOf(level float64) int8 { return int8(slices.Index(c.knots, level)) }

// isStrict reports whether each level is above or below the previous one as up requires.
func (c *course) isStrict() bool {
	for j, up := range c.up {
		if up != (c.level[j] < c.level[j+1]) || c.level[j] == c.level[j+1] {
			return false
		}
	}
	return true
}

// isBeforeFall reports whether level j is followed by a fall.
func (c *course) isBeforeFall(j int) bool { return j < len(c.up) && !c.up[j] }

// bendToSum turns even rises and falls into arcs, so that the sum of all samples is sum, or as close to sum as arcs
// allow. This avoids unnecessarily steep steps. It returns the curvature, from -0.98 to 0.98.
func (c *course) bendToSum(sum float64) float64 {
	missing, full := sum-c.point().sum, 0.0 // full: the sum that the strongest monotonic arcs add
	c.eachWithin(func(j int, height, along float64) { full += float64(c.held[j]) * height * along * (1 - along) })
	if full == 0 {
		return 0
	}
	by := min(max(missing/full, -0.98), 0.98)
	c.eachWithin(func(j int, height, along float64) { c.level[j] += by * height * along * (1 - along) })
	return by
}

// eachWithin calls do for each level within a run of rises or falls, with the height of the run and the position of the
// level along it, from 0 to 1. It skips runs that contain a known level.
func (c *course) eachWithin(do func(j int, height, along float64)) {
	for from := 0; from < len(c.up); {
		to, isFree := from+1, true
		for ; to < len(c.up) && c.up[to] == c.up[from]; to++ {
			isFree = isFree && c.known[to] < 0
		}
		if isFree {
			height := math.Abs(c.level[to] - c.level[from])
			for j := from + 1; j < to; j++ {
				do(j, height, float64(j-from)/float64(to-from))
			}
		}
		from = to
	}
}

// pinLevel computes a level before a fall from correction, the sum of all levels before falls, and makes it known. It
// does nothing unless exactly one of these levels is unknown.
func (c *course) pinLevel(correction float64) {
	at, rest := -1, correction
	for j := range c.level {
		switch {
		case !c.isBeforeFall(j):
		case c.known[j] >= 0:
			rest -= c.knots[c.known[j]]
		case at >= 0:
			return
		default:
			at = j
		}
	}
	if at < 0 || rest <= 0 || rest >= 1 {
		return
	}
	before := c.level[at]
	if c.level[at] = rest; !c.isStrict() {
		c.level[at] = before
		return
	}
	i, isKnot := slices.BinarySearch(c.knots, rest)
	if !isKnot {
		c.knots = slices.Insert(c.knots, i, rest)
		for j, k := range c.known {
			if int(k) >= i {
				c.known[j]++
			}
		}
	}
	c.known[at] = int8(i)
}

// placeTries is the max number of distributions of samples that distribution.find considers.
const placeTries = 4096

// placeSamples redistributes samples among levels: each unknown level gets one sample plus a share of loose, and the
// known levels get the rest, such that the sum of all samples is close to goal, or equal to it if no level is unknown.
// It reports whether goal is within reach.
func (c *course) placeSamples(samples, loose int, goal float64) bool {
	extra := samples - len(c.held) - loose
	unknown := 0
	for _, k := range c.known {
		if k < 0 {
			unknown++
		}
	}
	if extra < 0 || loose > 0 && unknown == 0 {
		return false
	}
	seen := 0
	for j := range c.held {
		if c.held[j] = 1; c.known[j] < 0 {
			c.held[j] += (seen+1)*loose/unknown - seen*loose/unknown
			seen++
		}
	}
	lowest, ok := c.extremeCourse(&c.work.left, point{sum: -1})
	highest, _ := c.extremeCourse(&c.work.right, point{sum: 1})
	if !ok {
		return false
	}
	missing := goal - c.point().sum
	least, most := goal-highest.sum, goal-lowest.sum // limits of the sum that known levels must add
	if margin := (most - least) * 1e-9; margin > 1e-18 {
		least, most = least+margin, most-margin // At the limits, levels would be equal.
	} else {
		least, most = least-1e-9, most+1e-9
	}
	if !slices.Contains(c.up, false) {
		missing = (least + most) / 2
	}
	d := distribution{extra: extra, missing: missing, least: least, most: most, enough: 0.001*float64(unknown) + 1e-9}
	a, b := c.knownBetween()
	if !d.find(c.level, a, b) {
		return false
	}
	if a >= 0 {
		c.held[a] += d.a
	}
	if b >= 0 {
		c.held[b] += d.b
	}
	c.held[c.top] += d.top
	c.held[c.bottom] += extra - d.a - d.b - d.top
	return true
}

// knownBetween returns the indices of two known levels other than 0 and 1, or -1 for each one missing.
func (c *course) knownBetween() (a, b int) {
	a, b = -1, -1
	for j, k := range c.known {
		switch {
		case k <= 0 || int(k) == len(c.knots)-1:
		case a < 0:
			a = j
		case k != c.known[a]:
			return a, j
		}
	}
	return a, b
}

// distribution is the number of extra samples at two levels and the top. The bottom gets the rest.
type distribution struct {
	extra                int
	missing, least, most float64 // the sum that the extra samples should have, and its limits
	enough               float64 // max difference to missing at which the search stops
	a, b, top            int
}

// find sets a, b and top such that their sum is as close to missing as possible. It returns false if no sum is within
// the limits.
func (d *distribution) find(level []float64, a, b int) bool {
	levelOf := func(j int) (float64, int) {
		if j < 0 {
			return 0, 0
		}
		return level[j], d.extra
	}
	levelA, mostA := levelOf(a)
	levelB, mostB := levelOf(b)
	best, tries := math.Inf(1), 0
	for k := 0; k <= mostA; k++ {
		for m := 0; m <= min(mostB, d.extra-k); m++ {
			sum := float64(k)*levelA + float64(m)*levelB
			top := min(max(math.Round(d.missing-sum), 0), float64(d.extra-k-m))
			sum += top
			if off := math.Abs(d.missing - sum); off < best && sum >= d.least && sum <= d.most {
				best, d.a, d.b, d.top = off, k, m, int(top)
			}
			if tries++; best <= d.enough || tries > placeTries {
				return best < math.Inf(1)
			}
		}
	}
	return best < math.Inf(1)
}
