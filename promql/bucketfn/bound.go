package bucketfn

import (
	"math"

	"github.com/cassia-db/cassia/storage/rollup"
)

// Bounds limit how much values may differ from the values over the requested windows, if other windows were evaluated
// or buckets were cut. They are computed from the buckets at the edges. A bound is unknown if such a bucket contains a
// NaN sample that may affect the value.
//
//	asked        (............]
//	buckets   |----|----|----|----|
//	inner          (.........]         certainly inside
//	outer     (...................]    certainly contains the window
type Bounds struct {
	// Largest is the largest difference of one value.
	Largest float64
	// Steps are the sums of the differences of all series, by step.
	Steps []float64
	// Unknown is set if some value has no bound: it is a native histogram, it is computed from a counter with negative
	// values, or it isn't finite. It is also set if a sum of differences isn't finite.
	Unknown bool
}

// Add adds the bounds of other series. The first step of other is step number from of b.
func (b *Bounds) Add(other *Bounds, from int) {
	b.Largest, b.Unknown = max(b.Largest, other.Largest), b.Unknown || other.Unknown
	for i, d := range other.Steps {
		b.addStep(from+i, d)
	}
}

// addValue adds a value whose exact value may be anywhere between the two limits. A missing value counts as 0: value is
// 0 if the evaluated window has no value, and the limits include 0 if the requested window may have none.
func (b *Bounds) addValue(step int, value, least, greatest float64) {
	d := max(greatest-value, value-least, 0)
	if !(d <= math.MaxFloat64) {
		b.Unknown = true
		return
	}
	b.Largest = max(b.Largest, d)
	b.addStep(step, d)
}

func (b *Bounds) addStep(step int, d float64) {
	b.Steps[step] += d
	b.Unknown = b.Unknown || math.IsInf(b.Steps[step], 0)
}

// BoundColumns returns the columns that ComputeBounds needs for the function with the given name.
func BoundColumns(name string) rollup.Columns {
	columns := Columns(name)
	switch name {
	case "count_over_time", "changes", "resets":
		return columns
	case "rate", "increase":
		return columns | rollup.ColumnMin | rollup.ColumnSum
	}
	return columns | rollup.ColumnMin | rollup.ColumnMax | rollup.ColumnSum
}

// ComputeBounds computes the max differences between the values that Evaluate returned and the values for the requested
// windows, and adds them to into. used are the windows that were evaluated. The requested windows have the same number
// of steps. b holds all buckets of the series that overlap windows of either kind, with BoundColumns.
func (e *Evaluator) ComputeBounds(b *rollup.Buckets, asked, used Windows, values *Result, into *Bounds) {
	limits := e.fn.limits
	if limits == nil || len(values.Histogram) > 0 {
		into.Unknown = into.Unknown || len(values.Step) > 0
		return
	}
	b = e.liveBuckets(b)
	e.kinds.setBuckets(b, rollup.NotSimple|rollup.Aggregated)
	e.starts.setBuckets(b, e.UsesStarts)
	e.larges.setBuckets(b)
	edges := &e.edges
	edges.reset(e, b, asked.Span)
	e.fold.Start(JoinMin)
	e.maxFold.Start(JoinMax)
	given, unanswered := values.Step, values.Unanswered
	at, need := 0, edges.minSamples()
	for step := range asked.Steps {
		value := 0.
		if at < len(given) && int(given[at]) == step {
			value = values.Value[at]
			at++
		}
		if len(unanswered) > 0 && int(unanswered[0]) == step {
			unanswered = unanswered[1:]
			continue
		}
		to := asked.First + int64(step)*asked.Step
		usedFrom, usedTo := used.Window(step)
		if !edges.moveTo(to-asked.Span, to, usedFrom, usedTo) {
			continue // None of the windows has samples.
		}
		if e.kinds.kindOf(edges.from, edges.to) != kindFloats || !e.larges.isEmpty && e.fn.columns&orderedColumns != 0 {
			into.Unknown = true
			continue
		}
		lo, hi := edges.innerBuckets()
		if hi-lo == edges.to-edges.from && (edges.isSame || need == 1 && used.scaleFactor() == 1) ||
			sumBetween(edges.counts, edges.from, edges.to) < need && e.starts.b == nil {
			continue
		}
		least, greatest := limits(e, edges)
		if !(least <= greatest) || edges.mayBeNaN() {
			into.Unknown = true
			continue
		}
		if sumBetween(edges.counts, lo, hi) < need { // The value may be missing.
			least, greatest = min(least, 0), max(greatest, 0)
		}
		into.addValue(step, value, least, greatest)
	}
}

// minSamples returns the minimum number of samples for which a window has a value.
func (e *edgeBuckets) minSamples() float64 {
	switch e.name {
	case "rate", "increase", "delta":
		return 2
	default:
		return 1
	}
}

// edgeBuckets holds a series' buckets and the ranges of buckets that belong to a window: the buckets [from, to) overlap
// the window, and the buckets [whole, part) are inside it.
type edgeBuckets struct {
	b *rollup.Buckets
	// starts are the start timestamps of b.
	starts *starts
	span   int64 // of the requested windows
	name   string

	from, whole, part, to int
	// isSame is set if the evaluated windows are the requested windows.
	isSame bool

	// counts and steps are prefix sums: element i is the total of the first i buckets. steps adds up counter
	// corrections (rate, increase), resets or changes, including those between buckets. negative is set if the counter
	// has been below 0.
	counts, steps []float64
	negative      bool
	perSecond     float64 // the factor of rate: 1 / seconds of the range; 1 for others
}

// reset sets the buckets of another series, and computes the sums that the function needs.
func (e *edgeBuckets) reset(f *Evaluator, b *rollup.Buckets, span int64) {
	*e = edgeBuckets{b: b, starts: &f.starts, span: span, name: f.fn.Name, perSecond: 1,
		counts: append(e.counts[:0], 0), steps: append(e.steps[:0], 0)}
	for i, n := range b.Count {
		e.counts = append(e.counts, e.counts[i]+float64(n))
	}
	switch e.name {
	case "sum_over_time", "avg_over_time":
		f.startSums(b)
	case "rate", "increase":
		f.setCorrections(b)
		for i, correction := range f.leaves {
			e.steps = append(e.steps, e.steps[i]+correction)
			e.negative = e.negative || b.Min[i] < 0
		}
		if e.name == "rate" {
			e.perSecond = 1 / windowSeconds(span)
		}
	case "resets":
		f.setSteps(b, f.resetFunc(b))
		for i, between := range f.steps {
			e.steps = append(e.steps, e.steps[i]+float64(b.Resets[i])+f.starts.resets(i)+float64(between))
		}
	case "changes":
		f.setSteps(b, b.IsChange)
		for i, between := range f.steps {
			e.steps = append(e.steps, e.steps[i]+float64(b.Changes[i])+float64(between))
		}
	}
}

// moveTo moves to the windows of the next step: (a, b] was requested, and (x, y] was evaluated. The edges must not
// decrease from call to call. It returns false if no bucket overlaps these windows.
func (e *edgeBuckets) moveTo(a, b, x, y int64) bool {
	e.isSame = a == x && b == y
	starts, ends := e.b.Start, e.b.End
	for least := min(a, x); e.from < len(ends) && ends[e.from] <= least; {
		e.from++
	}
	for most := max(a, x); e.whole < len(starts) && starts[e.whole] < most; {
		e.whole++
	}
	for least := min(b, y); e.part < len(ends) && ends[e.part] <= least; {
		e.part++
	}
	for most := max(b, y); e.to < len(starts) && starts[e.to] < most; {
		e.to++
	}
	return e.from < e.to
}

// innerBuckets returns the buckets [lo, hi) inside the window. If there are none, lo equals hi.
func (e *edgeBuckets) innerBuckets() (lo, hi int) {
	if e.whole >= e.part {
		at := min(max(e.part, e.from), e.to)
		return at, at
	}
	return e.whole, e.part
}

// edgeValues returns the number of samples in the buckets that are partly inside the window, and the min and max value
// of these samples.
func (e *edgeBuckets) edgeValues() (n, least, greatest float64) {
	lo, hi := e.innerBuckets()
	least, greatest = math.Inf(1), math.Inf(-1)
	for i := e.from; i < e.to; i++ {
		if i == lo {
			i = hi
		}
		if i == e.to {
			break
		}
		n += float64(e.b.Count[i])
		least, greatest = min(least, e.b.Min[i]), max(greatest, e.b.Max[i])
	}
	return n, least, greatest
}

// mayBeNaN reports whether a NaN sample in a bucket that is partly inside the window may make the value NaN.
func (e *edgeBuckets) mayBeNaN() bool {
	lo, hi := e.innerBuckets()
	switch e.name {
	case "count_over_time", "changes", "resets", "present_over_time", "ts_of_first_over_time", "ts_of_last_over_time":
		return false
	case "min_over_time", "max_over_time": // These functions ignore NaN among other values.
		if lo < hi {
			return false
		}
	}
	for i := e.from; i < e.to; i++ {
		if sum := e.b.Sum[i]; sum != sum && (i < lo || i >= hi) {
			return true
		}
	}
	return false
}

// valueRange returns the min and max value of the buckets that overlap the window.
func (e *edgeBuckets) valueRange(f *Evaluator) (least, greatest float64) {
	_, least, greatest = e.edgeValues()
	if lo, hi := e.innerBuckets(); lo < hi {
		least, greatest = min(least, f.fold.Join(e.b.Min, lo, hi)), max(greatest, f.maxFold.Join(e.b.Max, lo, hi))
	}
	return least, greatest
}

// sumBetween returns the sum over the buckets [lo, hi). sums are prefix sums.
func sumBetween(sums []float64, lo, hi int) float64 { return sums[hi] - sums[lo] }

// limitsFunc returns the min and max value that a function can have over a window; NaN if unknown.
type limitsFunc func(f *Evaluator, e *edgeBuckets) (least, greatest float64)

func boundPresent(*Evaluator, *edgeBuckets) (least, greatest float64) { return 1, 1 }

func boundCount(_ *Evaluator, e *edgeBuckets) (least, greatest float64) {
	lo, hi := e.innerBuckets()
	return sumBetween(e.counts, lo, hi), sumBetween(e.counts, e.from, e.to)
}

func boundSteps(_ *Evaluator, e *edgeBuckets) (least, greatest float64) {
	lo, hi := e.innerBuckets()
	return sumBetween(e.steps, min(lo+1, hi), hi) + e.stepsInFirst(lo, hi),
		sumBetween(e.steps, e.from+1, e.to) + e.stepsInFirst(e.from, e.to)
}

// stepsInFirst returns the number of resets or changes inside the first of the buckets [lo, hi), without a reset or
// change between it and the previous bucket.
func (e *edgeBuckets) stepsInFirst(lo, hi int) float64 {
	switch {
	case lo == hi:
		return 0
	case e.name == "resets":
		return float64(e.b.Resets[lo]) + e.starts.resets(lo)
	default:
		return float64(e.b.Changes[lo])
	}
}

// sumWithError returns the sum of the values in the buckets [lo, hi), and its max rounding error.
func (e *Evaluator) sumWithError(lo, hi int) (sum, rounded float64) {
	if lo < hi {
		x := e.sums.Join(e.pairs, lo, hi)
		sum = x.high + x.low
	}
	return sum, 1e-12 * math.Abs(sum)
}

func boundSum(f *Evaluator, e *edgeBuckets) (least, greatest float64) {
	lo, hi := e.innerBuckets()
	n, low, high := e.edgeValues()
	sum, rounded := f.sumWithError(lo, hi)
	if n == 0 {
		return sum - rounded, sum + rounded
	}
	return sum + n*min(0, low) - rounded, sum + n*max(0, high) + rounded
}

func boundAvg(f *Evaluator, e *edgeBuckets) (least, greatest float64) {
	lo, hi := e.innerBuckets()
	n, low, high := e.edgeValues()
	inside := sumBetween(e.counts, lo, hi)
	if inside == 0 {
		return low, high
	}
	sum, rounded := f.sumWithError(lo, hi)
	avg := sum / inside
	least, greatest = avg, avg
	if n > 0 {
		least, greatest = avg+min(0, low-avg)*n/(n+inside), avg+max(0, high-avg)*n/(n+inside)
	}
	return least - rounded/inside, greatest + rounded/inside
}

func boundMin(f *Evaluator, e *edgeBuckets) (least, greatest float64) {
	lo, hi := e.innerBuckets()
	_, low, high := e.edgeValues()
	if lo == hi {
		return low, high
	}
	least = f.fold.Join(e.b.Min, lo, hi)
	return min(low, least), least
}

func boundMax(f *Evaluator, e *edgeBuckets) (least, greatest float64) {
	lo, hi := e.innerBuckets()
	_, low, high := e.edgeValues()
	if lo == hi {
		return low, high
	}
	greatest = f.maxFold.Join(e.b.Max, lo, hi)
	return greatest, max(high, greatest)
}

func boundStddev(f *Evaluator, e *edgeBuckets) (least, greatest float64) {
	low, high := e.valueRange(f)
	return 0, (high - low) / 2
}

func boundStdvar(f *Evaluator, e *edgeBuckets) (least, greatest float64) {
	_, greatest = boundStddev(f, e)
	return 0, greatest * greatest
}

func boundLast(_ *Evaluator, e *edgeBuckets) (least, greatest float64) {
	if e.whole >= e.part {
		_, least, greatest = e.edgeValues()
		return least, greatest
	}
	last := e.b.Last[e.part-1]
	return e.rangeWith(e.part, e.to, last)
}

func boundFirst(_ *Evaluator, e *edgeBuckets) (least, greatest float64) {
	if e.whole >= e.part {
		_, least, greatest = e.edgeValues()
		return least, greatest
	}
	return e.rangeWith(e.from, e.whole, e.b.First[e.whole])
}

// rangeWith returns the min and max of v and all values in the buckets [lo, hi).
func (e *edgeBuckets) rangeWith(lo, hi int, v float64) (least, greatest float64) {
	least, greatest = v, v
	for i := lo; i < hi; i++ {
		least, greatest = min(least, e.b.Min[i]), max(greatest, e.b.Max[i])
	}
	return least, greatest
}

func boundLastTime(_ *Evaluator, e *edgeBuckets) (least, greatest float64) {
	least = float64(e.b.FirstT[e.from])
	if e.whole < e.part {
		least = float64(e.b.LastT[e.part-1])
	}
	return least / 1000, float64(e.b.LastT[e.to-1]) / 1000
}

func boundFirstTime(_ *Evaluator, e *edgeBuckets) (least, greatest float64) {
	greatest = float64(e.b.LastT[e.to-1])
	if e.whole < e.part {
		greatest = float64(e.b.FirstT[e.whole])
	}
	return float64(e.b.FirstT[e.from]) / 1000, greatest / 1000
}

func boundIncrease(_ *Evaluator, e *edgeBuckets) (least, greatest float64) {
	if e.negative {
		return math.NaN(), math.NaN()
	}
	lo, hi := e.innerBuckets()
	rounded := 1e-12 * (e.steps[e.to] + e.b.Last[e.to-1])
	most := e.increase(e.from, e.to)
	if e.starts.b != nil { // The counter may start at 0 inside the window.
		most += e.b.First[e.from]
	}
	least, greatest = e.increase(lo, hi)-rounded, most*e.maxExtrapolation()+rounded
	return least * e.perSecond, greatest * e.perSecond
}

// increase returns the increase from the first to the last sample of the buckets [lo, hi).
func (e *edgeBuckets) increase(lo, hi int) float64 {
	if lo == hi {
		return 0
	}
	return e.b.Last[hi-1] - e.b.First[lo] + e.b.Correction[lo] + e.starts.correction(lo) + sumBetween(e.steps, lo+1, hi)
}

// maxExtrapolation returns the max factor by which rate, increase and delta extrapolate: by 1.1 average intervals at
// either end, but not beyond the window.
func (e *edgeBuckets) maxExtrapolation() float64 {
	lo, hi := e.innerBuckets()
	if lo == hi {
		return 3.2
	}
	factor := 1 + 2.2/(max(2, sumBetween(e.counts, lo, hi))-1)
	if sampled := e.b.LastT[hi-1] - e.b.FirstT[lo]; sampled > 0 {
		factor = min(factor, float64(e.span)/float64(sampled))
	}
	return max(1, factor)
}

func boundDelta(f *Evaluator, e *edgeBuckets) (least, greatest float64) {
	firstLeast, firstGreatest := boundFirst(f, e)
	lastLeast, lastGreatest := boundLast(f, e)
	least, greatest = lastLeast-firstGreatest, lastGreatest-firstLeast
	stretch := e.maxExtrapolation()
	return min(least, least*stretch), max(greatest, greatest*stretch)
}
