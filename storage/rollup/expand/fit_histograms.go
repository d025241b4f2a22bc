package expand

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup"
)

// histogramFit finds the histograms of a bucket from their number, first, last, sum, resets, changes and the sum of the
// values before resets:
//
//	observations │      ╱│         run: samples without a reset; the last of each is a peak
//	             │   ╱   │   ╱
//	             │╱      │╱        steps: as many as there are changes
//	             └───────────
//
// The peaks add up to the correction. Between them, each bucket grows evenly, scaled to match its sum.
// All histograms between the first and the last have one layout, to which all others are reconciled.
type histogramFit struct {
	layout          *histogram.FloatHistogram // without observations
	resets, changes int
	lost            float64   // number of observations before resets
	sum             []float64 // nil if unknown
	first, last     *histogram.FloatHistogram
	n               int
}

// growingRun is a number of samples without a reset.
type growingRun struct {
	n         int
	low, high []float64
	startsLow bool // the first sample is low; the last sample is high
	steps     int  // changes within the run
	ones      int  // with startsLow and one step: number of samples before the last that are high
}

// fitHistograms returns nil if the histograms have no common layout.
func fitHistograms(h *rollup.Histograms, resets, changes int) []*histogram.FloatHistogram {
	f := &histogramFit{
		first: h.First, last: h.Last, n: int(h.Count), resets: resets, changes: max(changes, resets),
	}
	if !f.setLayout(h.First, h.Last, h.Sum, h.Correction) {
		return nil
	}
	first, last, correction := f.vector(h.First), f.vector(h.Last), f.vector(h.Correction)
	f.sum = f.vector(h.Sum)
	if first == nil || last == nil || (f.sum == nil) != (h.Sum == nil) || (correction == nil) != (h.Correction == nil) {
		return nil
	}
	if h.First.CounterResetHint == histogram.GaugeType {
		return f.gauge(first, last)
	}
	if h.FirstReset {
		f.lost = h.First.Count
		if fine := f.afterFirst(h, first); fine != nil {
			f, last, correction = fine, fine.vector(h.Last), fine.vector(h.Correction)
			first = make([]float64, len(last)) // The sum of fine doesn't include it.
		}
	}
	if h.Correction != nil {
		f.lost += h.Correction.Count
	}
	if correction == nil {
		correction = make([]float64, len(first))
	}
	peaks := resets - asCount(h.FirstReset)
	if h.Correction != nil {
		peaks = max(peaks, 1)
	} else {
		peaks = 0
	}
	return f.counter(first, last, correction, peaks, h.FirstReset)
}

// isFiner reports whether a histogram has a finer layout than f. A change to a finer layout is a reset.
func (f *histogramFit) isFiner(h *histogram.FloatHistogram) bool {
	return h.Schema > f.layout.Schema || h.ZeroThreshold < f.layout.ZeroThreshold
}

// afterFirst returns a fit for the layout and sum of the histograms after the first one, or nil if their layout
// isn't finer or can't hold them. A change to a coarser layout isn't a reset, so the peaks and the last histogram have
// their layout. Within each bucket of the common layout, the sum is distributed as in the peaks and the last histogram.
func (f *histogramFit) afterFirst(h *rollup.Histograms, first []float64) *histogramFit {
	fine := *f
	fine.layout = nil
	if !fine.setLayout(h.Last, h.Correction) || !f.isFiner(fine.layout) {
		return nil
	}
	shape, correction := fine.vector(h.Last), fine.vector(h.Correction)
	if shape == nil || (correction == nil) != (h.Correction == nil) {
		return nil
	}
	if f.sum == nil {
		return &fine
	}
	if correction != nil {
		shape = mix(shape, 1, correction)
	}
	size := len(shape)
	bucketOf, one, total, rest := make([]int, size), make([]float64, size), make([]float64, len(first)),
		mix(f.sum, -1, first)
	for c := vectorCount; c < size; c++ {
		one[c] = 1
		bucketOf[c] = slices.Index(f.vector(fine.histogram(one)), 1)
		one[c] = 0
		if bucketOf[c] < vectorCount {
			return nil
		}
		total[bucketOf[c]] += shape[c]
	}
	fine.sum = make([]float64, size)
	if fine.sum[vectorSum] = rest[vectorSum]; math.IsNaN(rest[vectorSum]) { // ∞ - ∞
		fine.sum[vectorSum] = f.sum[vectorSum]
	}
	for c := vectorCount; c < size; c++ {
		if in := bucketOf[c]; shape[c] > 0 {
			fine.sum[c] = rest[in] * shape[c] / total[in]
		}
	}
	return &fine
}

// counter returns the histograms of a counter. peaks is the number of peaks that add up to the correction.
func (f *histogramFit) counter(
	first, last, correction []float64, peaks int, firstReset bool,
) []*histogram.FloatHistogram {
	zero := make([]float64, len(first))
	var runs []growingRun
	share, low, startsLow := mix(zero, 1/float64(max(peaks, 1)), correction), zero, false
	if firstReset {
		runs = append(runs, growingRun{n: 1, low: first, high: first})
	} else {
		low, startsLow = first, true
		share = mix(share, -1/float64(max(peaks, 1)), first)
		for c := vectorCount; c < len(share); c++ {
			share[c] = max(share[c], 0) // A rounding error can make it negative.
		}
	}
	for range peaks {
		high := mix(low, 1, share)
		if peaks == 1 {
			high = correction
		}
		runs = append(runs, growingRun{low: low, high: high, startsLow: startsLow})
		low, startsLow = zero, false
	}
	runs = append(runs, growingRun{low: low, high: last, startsLow: startsLow})
	best := f.build(runs, firstReset)
	if best != nil && f.errorOf(best) == 0 {
		return best
	}
	// Fall to 0 at the resets that the peaks alone don't show, then at each reset.
	for _, each := range [...]bool{false, true} {
		for i := 1; i < len(runs); i++ {
			runs[i].startsLow = each || !f.histogram(runs[i].high).DetectReset(f.histogram(runs[i-1].high))
		}
		if list := f.build(runs, firstReset); list != nil && (best == nil || f.errorOf(list) < f.errorOf(best)) {
			best = list
		}
	}
	if peaks > 1 && (best == nil || f.errorOf(best) >= float64(f.n)) { // One peak that has the whole correction.
		list := f.counter(first, last, correction, 1, firstReset)
		if list != nil && (best == nil || f.errorOf(list) < f.errorOf(best)) {
			return list
		}
	}
	return best
}

// errorOf returns a measure of the difference between the increase, resets and changes of list and of the bucket. The
// increase has the largest weight.
func (f *histogramFit) errorOf(list []*histogram.FloatHistogram) float64 {
	resets, changes, lost := countSteps(list)
	off := math.Abs(float64(resets-f.resets))*float64(f.n) + math.Abs(float64(changes-f.changes))
	if f.first.CounterResetHint != histogram.GaugeType && math.Abs(lost-f.lost) > 1e-9*f.lost {
		off += float64(f.n * f.n)
	}
	return off
}

// countSteps returns the resets and changes, and the number of observations before resets.
func countSteps(list []*histogram.FloatHistogram) (resets, changes int, lost float64) {
	for k := 1; k < len(list); k++ {
		if list[k] != list[k-1] && !list[k].Equals(list[k-1]) {
			changes++
			if list[k].DetectReset(list[k-1]) {
				resets, lost = resets+1, lost+list[k-1].Count
			}
		}
	}
	return resets, changes, lost
}

// build returns the samples of runs, with the length of the last run that allows the sum; nil if there are too few
// samples.
func (f *histogramFit) build(runs []growingRun, firstReset bool) []*histogram.FloatHistogram {
	final, from := &runs[len(runs)-1], asCount(firstReset)
	shortest := 1 + asCount(final.startsLow)
	if len(runs) == 1+from {
		if final.n = f.n - from; final.n < shortest {
			return nil
		}
		f.setSteps(runs)
		return f.samples(runs)
	}
	before := 0
	for _, r := range runs[from : len(runs)-1] {
		before += 1 + asCount(r.startsLow)
	}
	longest := f.n - from - before
	if f.isFiner(f.last) {
		longest = min(longest, shortest) // Samples before it are coarser, so the last one is a reset.
	}
	best, bestOff := 0, math.Inf(1)
	end, peaks := observations(final.high), observations(runs[len(runs)-2].high)*float64(len(runs)-1-from)
	natural := float64(f.n) / 2 // number of samples in the last run if all runs grow equally fast
	if end+peaks > 0 {
		natural *= 2 * end / (end + peaks)
	}
	for n := shortest; n <= longest; n++ {
		f.setLengths(runs, from, n)
		f.setSteps(runs)
		off := f.missing(runs)
		if off += 1e-9 * math.Abs(float64(n)-natural) / float64(f.n); off < bestOff {
			best, bestOff = n, off
		}
	}
	if best == 0 {
		return nil
	}
	f.setLengths(runs, from, best)
	f.setSteps(runs)
	return f.samples(runs)
}

// setLengths divides the samples that aren't in the last run evenly.
func (f *histogramFit) setLengths(runs []growingRun, from, last int) {
	rest := f.n - from - last
	runs[len(runs)-1].n = last
	between := runs[from : len(runs)-1]
	free := rest
	for _, r := range between {
		free -= 1 + asCount(r.startsLow)
	}
	for i := range between {
		more := free / (len(between) - i)
		between[i].n, free = 1+asCount(between[i].startsLow)+more, free-more
	}
}

// setSteps divides the changes that aren't resets by the lengths of the runs.
func (f *histogramFit) setSteps(runs []growingRun) {
	steps, room := f.changes-(len(runs)-1), 0
	for i := range runs {
		r := &runs[i]
		r.steps = 0
		if !equalVectors(r.low, r.high) {
			r.steps = asCount(r.startsLow)
			steps -= r.steps
			room += r.n - 1 - r.steps
		}
	}
	steps = max(steps, 0)
	for i := range runs {
		r := &runs[i]
		if free := r.n - 1 - r.steps; free > 0 && !equalVectors(r.low, r.high) {
			more := min(free, int(math.Round(float64(steps)*float64(free)/float64(room))))
			r.steps, steps, room = r.steps+more, steps-more, room-free
		}
	}
	f.setOnes(runs)
}

// setOnes sets how many samples of a run with a single step are high.
func (f *histogramFit) setOnes(runs []growingRun) {
	for i := range runs {
		r := &runs[i]
		if r.ones = (r.n - 2) / 2; !r.startsLow || r.steps != 1 || f.sum == nil || r.n <= 2 {
			continue
		}
		r.ones = 0
		_, even, _ := f.sums(runs)
		ones := math.Round((observations(f.sum) - observations(even)) / (observations(r.high) - observations(r.low)))
		r.ones = int(max(0, min(ones, float64(r.n-2))))
	}
}

// level returns the height of sample k of a run, from 0 to 1, before it is scaled. It is fixed at 0 and 1.
func (r *growingRun) level(k int) (at float64, fixed bool) {
	switch {
	case k == r.n-1 || r.steps == 0:
		return 1, true
	case r.startsLow && (k == 0 || r.steps == 1):
		at = float64(asCount(k > r.n-2-r.ones))
		return at, true
	case r.startsLow:
		return float64(1+(k-1)*(r.steps-1)/(r.n-2)) / float64(r.steps), false
	default:
		return float64(k*r.steps/(r.n-1)) / float64(r.steps), false
	}
}

// sums returns the smallest sum that the runs can have, the sum without scaling, and the largest sum.
func (f *histogramFit) sums(runs []growingRun) (smallest, even, largest []float64) {
	size := len(runs[0].low)
	smallest, even, largest = make([]float64, size), make([]float64, size), make([]float64, size)
	for i := range runs {
		r := &runs[i]
		var low, mid, high float64 // number of samples at low in the smallest, even and largest sum
		for k := range r.n {
			at, fixed := r.level(k)
			mid += 1 - at
			if fixed {
				low, high = low+1-at, high+1-at
			} else {
				low++
			}
		}
		n := float64(r.n)
		for c := range size {
			smallest[c] += low*r.low[c] + (n-low)*r.high[c]
			even[c] += mid*r.low[c] + (n-mid)*r.high[c]
			largest[c] += high*r.low[c] + (n-high)*r.high[c]
		}
	}
	return smallest, even, largest
}

// missing returns the share of the sum that the runs can't have.
func (f *histogramFit) missing(runs []growingRun) (off float64) {
	if f.sum == nil {
		return 0
	}
	smallest, _, largest := f.sums(runs)
	for c := vectorZero; c < len(smallest); c++ {
		off += max(0, smallest[c]-f.sum[c], f.sum[c]-largest[c])
	}
	return off / max(observations(f.sum), 1)
}

// samples returns the samples of runs, scaled to the sum.
func (f *histogramFit) samples(runs []growingRun) []*histogram.FloatHistogram {
	smallest, even, largest := f.sums(runs)
	want, free := f.sum, 0
	if want == nil {
		want = even
	}
	for i := range runs {
		for k := range runs[i].n {
			if _, fixed := runs[i].level(k); !fixed {
				free++
			}
		}
	}
	more := (want[vectorSum] - even[vectorSum]) / float64(max(free, 1))
	list := make([]*histogram.FloatHistogram, 0, f.n)
	for i := range runs {
		r := &runs[i]
		before := math.NaN()
		for k := range r.n {
			at, fixed := r.level(k)
			switch {
			case i == len(runs)-1 && (k == r.n-1 || fixed && at == 1 && r.steps > 0):
				list = append(list, f.last)
				continue
			case i == 0 && (k == 0 && (r.startsLow || r.n == 1) || r.startsLow && fixed && (at == 0 || r.steps == 0)):
				list = append(list, f.first)
				continue
			case at == before:
				list = append(list, list[len(list)-1])
				continue
			}
			before = at
			v := mix(mix(make([]float64, len(r.low)), 1-at, r.low), at, r.high)
			if !fixed {
				v[vectorSum] += more
				for c := vectorCount; c < len(v); c++ {
					v[c] = scaled(v[c], r.low[c], r.high[c], want[c], smallest[c], even[c], largest[c])
				}
			}
			h := f.histogram(v)
			// Rounding must not make the count fall from the first histogram, or to the last.
			if i == 0 && r.startsLow {
				h.Count = max(h.Count, f.first.Count)
			}
			if i == len(runs)-1 {
				h.Count = min(h.Count, f.last.Count)
			}
			list = append(list, h)
		}
	}
	return list
}

// scaled returns v moved towards low or high, by the fraction that changes a sum from even to want. smallest and
// largest are the limits of the sum. If low and high are equal, rounding can still make want differ from even; v then
// stays between low and high.
func scaled(v, low, high, want, smallest, even, largest float64) float64 {
	switch {
	case want < even && even > smallest:
		v = low + (v-low)*max(0, want-smallest)/(even-smallest)
	case want > even && even < largest:
		v = high - (high-v)*max(0, largest-want)/(largest-even)
	}
	return max(min(v, max(low, high)), min(low, high))
}

// gauge returns the histograms of a gauge: between the first and the last, the mean, with small steps up and down.
func (f *histogramFit) gauge(first, last []float64) []*histogram.FloatHistogram {
	if f.sum == nil {
		return grow(nil, f.first, f.last, f.n)
	}
	inner := f.n - 2
	if f.changes <= 1 {
		before, after, ones := observations(first), observations(last), 0.0
		if before != after {
			ones = math.Round((observations(f.sum) - before*float64(f.n)) / (after - before))
		}
		high := int(max(1, min(ones, float64(f.n-1))))
		return repeat(repeat(nil, f.first, f.n-high), f.last, high)
	}
	mean := mix(mix(f.sum, -1, first), -1, last)
	for c := range mean {
		if mean[c] /= float64(inner); c != vectorSum {
			mean[c] = max(mean[c], 0)
		}
	}
	best, bestError := []*histogram.FloatHistogram(nil), math.Inf(1)
	changes, resets := f.changes-2, f.resets
	for range 4 {
		changes = max(0, min(changes, inner-1))
		resets = max(0, min(resets, changes))
		list := append([]*histogram.FloatHistogram{f.first}, f.around(mean, inner, changes, resets)...)
		list = append(list, f.last)
		if err := f.errorOf(list); err < bestError {
			best, bestError = list, err
		}
		gotResets, gotChanges, _ := countSteps(list)
		if gotResets == f.resets && gotChanges == f.changes {
			break
		}
		changes, resets = changes+f.changes-gotChanges, resets+f.resets-gotResets
	}
	return best
}

// around returns n histograms with the given mean. Each differs from the mean by at most half of it. There are the
// given numbers of changes between them, and of falls among these changes.
func (f *histogramFit) around(mean []float64, n, changes, falls int) []*histogram.FloatHistogram {
	heights, height, sum, widest := make([]float64, n), 0.0, 0.0, 0.0
	step, fall := 0, 0
	for k := range heights {
		if now := changes * k / max(n-1, 1); now > step {
			step = now
			if falling := (falls*step + changes/2) / changes; falling > fall {
				fall = falling
				height--
			} else {
				height++
			}
		}
		heights[k] = height
		sum += height
	}
	for k := range heights {
		heights[k] -= sum / float64(n)
		widest = max(widest, math.Abs(heights[k]))
	}
	list := make([]*histogram.FloatHistogram, n)
	for k := range list {
		if k > 0 && heights[k] == heights[k-1] {
			list[k] = list[k-1]
			continue
		}
		list[k] = f.histogram(mix(mean, heights[k]/max(2*widest, 1), mean))
	}
	return list
}
