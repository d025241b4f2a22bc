package promql

import (
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup"
)

// windows are the ranges of time that a function is asked for, one a step, all of one length. Like PromQL's
// they are left-open and right-closed, and they may overlap.
//
//	asked       (......]            right edges at First + k*Step
//	     |--------|--------|        multiples of Snap
//	snapped (.....]                 both edges moved to an earlier one
type windows struct {
	// First is the right edge of the first window, and Step the way to the next, milliseconds.
	First, Step int64
	// Steps is how many there are.
	Steps int
	// Span is how long a window is, milliseconds.
	Span int64
	// Snap moves right edges to the multiple of it at, or before, them, milliseconds; 0: they stay.
	Snap int64
	// Scale is the length of the window that was asked for, divided by Span, where windows were widened: what
	// grows with a window's length, such as increase, is multiplied by it. 0 and 1: nothing is.
	Scale float64
}

// window returns the edges of the window of step k.
func (w windows) window(k int) (a, b int64) {
	b = w.First + int64(k)*w.Step
	if w.Snap > 0 {
		b = floorTo(b, w.Snap)
	}
	return b - w.Span, b
}

// seconds returns the length of the windows as Prometheus' rate divides by it.
func (w windows) seconds() float64 { return (time.Duration(w.Span) * time.Millisecond).Seconds() }

// scale returns the factor for what grows with a window's length.
func (w windows) scale() float64 {
	if w.Scale == 0 {
		return 1
	}
	return w.Scale
}

// floorTo returns the greatest multiple of width that isn't greater than t.
func floorTo(t, width int64) int64 {
	past := t % width
	if past < 0 {
		past += width
	}
	return t - past
}

// answers are the values of one series, by step. Steps without a value aren't there.
type answers struct {
	// Step are the steps that have a value, ascending.
	Step []int32
	// Value are their values; 0 where it is a histogram.
	Value []float64
	// Histogram are their native histograms; nil if no step has one. They belong to the buckets: whoever wants
	// to change one copies it.
	Histogram []*histogram.FloatHistogram
	// Unanswered are the steps, ascending, that only the samples themselves can answer.
	Unanswered []int32
}

// Reset empties a and keeps its memory.
func (a *answers) Reset() {
	clear(a.Histogram) // its pointers would keep histograms alive
	a.Step, a.Value, a.Unanswered = a.Step[:0], a.Value[:0], a.Unanswered[:0]
	a.Histogram = a.Histogram[:0]
}

func (a *answers) add(step int, v float64) {
	a.Step, a.Value = append(a.Step, int32(step)), append(a.Value, v)
	if len(a.Histogram) > 0 {
		a.Histogram = append(a.Histogram, nil)
	}
}

func (a *answers) addHistogram(step int, h *histogram.FloatHistogram) {
	for len(a.Histogram) < len(a.Step) {
		a.Histogram = append(a.Histogram, nil)
	}
	a.Step, a.Value, a.Histogram = append(a.Step, int32(step)), append(a.Value, 0), append(a.Histogram, h)
}

func (a *answers) needsSamples(step int) { a.Unanswered = append(a.Unanswered, int32(step)) }

// bucketFunc computes a function over buckets where others compute it over samples. It keeps memory from one
// series to the next, and is used by one goroutine at a time.
type bucketFunc struct {
	fn     *function
	live   rollup.Buckets // those that hold samples, where not all do
	kinds  kinds
	joints joints
	fold   fold[float64]
	sums   fold[compensated]
	leaves []float64
	pairs  []compensated
	steps  []uint32
}

// overFunc is how a function is computed from buckets.
type overFunc func(f *bucketFunc, b *rollup.Buckets, w windows, out *answers)

// newBucketFunc returns what computes the function of that name ("": an instant selector), or nil if buckets
// can't answer it.
func newBucketFunc(name string) *bucketFunc {
	fn := functionOf(name)
	if fn == nil || fn.over == nil {
		return nil
	}
	return &bucketFunc{fn: fn}
}

// columnsOf returns the columns of buckets that the function of that name needs; 0 if buckets can't answer it.
func columnsOf(name string) rollup.Columns {
	fn := functionOf(name)
	if fn == nil || fn.over == nil {
		return 0
	}
	return fn.columns | rollup.ColumnCount
}

// evaluate appends to out the function's values over the windows, given the buckets of one series: those of
// columnsOf, ascending, none overlapping another, of any widths. No bucket straddles the right edge of a window
// nor, unless the function only looks for the newest sample (see function.newest), its left edge.
//
// What it appends is what Prometheus' function makes of the samples: within 1e-12 of the greatest absolute value
// that enters the computation, and for what doesn't round to the last bit.
func (f *bucketFunc) evaluate(b *rollup.Buckets, w windows, out *answers) {
	if f.fn.staleness { // buckets of nothing but a stale marker matter
		f.kinds.of(b)
		f.fn.over(f, b, w, out)
		return
	}
	b = f.onlyLive(b)
	f.kinds.of(b)
	f.fn.over(f, b, w, out)
}

// onlyLive returns b without the buckets that hold nothing but stale markers.
func (f *bucketFunc) onlyLive(b *rollup.Buckets) *rollup.Buckets {
	dead := 0
	for i, n := range b.Count {
		if n == 0 && b.Flags[i]&rollup.NotSimple == 0 {
			dead++
		}
	}
	if dead == 0 {
		return b
	}
	f.live.Start, f.live.End = keepLive(f.live.Start, b.Start, b), keepLive(f.live.End, b.End, b)
	f.live.Flags, f.live.Count = keepLive(f.live.Flags, b.Flags, b), keepLive(f.live.Count, b.Count, b)
	f.live.FirstT, f.live.LastT = keepLive(f.live.FirstT, b.FirstT, b), keepLive(f.live.LastT, b.LastT, b)
	f.live.First, f.live.Last = keepLive(f.live.First, b.First, b), keepLive(f.live.Last, b.Last, b)
	f.live.Min, f.live.Max = keepLive(f.live.Min, b.Min, b), keepLive(f.live.Max, b.Max, b)
	f.live.Sum, f.live.SumLow = keepLive(f.live.Sum, b.Sum, b), keepLive(f.live.SumLow, b.SumLow, b)
	f.live.Correction = keepLive(f.live.Correction, b.Correction, b)
	f.live.Resets, f.live.Changes = keepLive(f.live.Resets, b.Resets, b), keepLive(f.live.Changes, b.Changes, b)
	clear(f.live.Histograms)
	f.live.Histograms = keepLive(f.live.Histograms, b.Histograms, b)
	return &f.live
}

// keepLive fills into with a column of b, but for the buckets without samples.
func keepLive[T any](into, column []T, b *rollup.Buckets) []T {
	into = into[:0]
	for i := range column {
		if b.Count[i] > 0 || b.Flags[i]&rollup.NotSimple != 0 {
			into = append(into, column[i])
		}
	}
	return into
}

// cursor walks through the buckets of one window after the other.
type cursor struct {
	b      *rollup.Buckets
	lo, hi int
}

// move goes to the buckets of window (a, b], which are those from index lo to before hi. Neither edge is before
// that of the last call.
func (c *cursor) move(a, b int64) (lo, hi int) {
	ends := c.b.End
	for c.hi < len(ends) && ends[c.hi] <= b {
		c.hi++
	}
	for c.lo < c.hi && ends[c.lo] <= a {
		c.lo++
	}
	return c.lo, c.hi
}

// kinds says what the buckets of a window are. Where a series has only simple buckets of floats, which is the
// common case, there is nothing to look up.
type kinds struct {
	plain bool
	// histograms[i] and complex[i] are how many of the first i buckets hold histograms, or aren't simple.
	histograms, complex []int32
}

func (k *kinds) of(b *rollup.Buckets) {
	all := rollup.Flags(0)
	for _, flags := range b.Flags {
		all |= flags
	}
	k.plain = all&(rollup.HasHistograms|rollup.NotSimple) == 0
	if k.plain {
		return
	}
	k.histograms, k.complex = append(k.histograms[:0], 0), append(k.complex[:0], 0)
	for i, flags := range b.Flags {
		h, c := k.histograms[i], k.complex[i]
		if flags&rollup.HasHistograms != 0 {
			h++
		}
		if flags&rollup.NotSimple != 0 {
			c++
		}
		k.histograms, k.complex = append(k.histograms, h), append(k.complex, c)
	}
}

// kind is what the buckets of one window hold.
type kind uint8

const (
	ofFloats     kind = iota // floats alone
	ofHistograms             // histograms alone, and all simple
	ofBoth                   // buckets of floats and buckets of histograms, all simple
	ofUnknown                // not simple
)

// in returns what the buckets from lo to before hi hold, of which there is at least one.
func (k *kinds) in(lo, hi int) kind {
	if k.plain {
		return ofFloats
	}
	if k.complex[hi] > k.complex[lo] {
		return ofUnknown
	}
	switch k.histograms[hi] - k.histograms[lo] {
	case 0:
		return ofFloats
	case int32(hi - lo):
		return ofHistograms
	default:
		return ofBoth
	}
}

// overEach calls each for the windows that hold samples, with their buckets, lo to before hi. Windows of a kind
// beyond most are left to the samples.
func (f *bucketFunc) overEach(b *rollup.Buckets, w windows, out *answers, most kind, each func(step, lo, hi int)) {
	c := cursor{b: b}
	for k := range w.Steps {
		lo, hi := c.move(w.window(k))
		switch {
		case lo == hi:
		case f.kinds.in(lo, hi) > most:
			out.needsSamples(k)
		default:
			each(k, lo, hi)
		}
	}
}
