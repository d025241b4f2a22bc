package bucketfn

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/util/kahansum"

	"github.com/cassia-db/cassia/storage/rollup"
)

// Fold joins the leaves of a sliding window in amortized constant time per leaf and window, for any number of leaves in
// a window. It never subtracts. So no precision is lost, and joins without an inverse, such as a maximum, also work. It
// is a queue made of two stacks (two-stack sliding window aggregation), whose front stack holds suffixes:
//
//	leaves   0 1 2 3 4 5 6 7 8 9
//	          [lo   |pivot  ]hi
//	suffix    1-3 2-3 3             joined once, when lo passed the last pivot
//	recent          4-7             joined as hi moves
type Fold[T any] struct {
	join   func(earlier, later T) T
	suffix []T // suffix[i] is the join of leaves [base+i, pivot)
	recent T   // the join of leaves [pivot, done)

	base, pivot, done int
}

// Start starts a new series, whose leaves are joined by join. It keeps the memory.
func (f *Fold[T]) Start(join func(earlier, later T) T) {
	f.join, f.base, f.pivot, f.done = join, 0, 0, 0
}

// Of returns the join of leaves[lo:hi], which must not be empty. lo and hi must not decrease from call to call.
func (f *Fold[T]) Of(leaves []T, lo, hi int) T {
	if hi-lo == 1 {
		return leaves[lo]
	}
	if lo >= f.pivot {
		f.turn(leaves, lo, hi)
		return f.suffix[0]
	}
	for ; f.done < hi; f.done++ {
		if f.done == f.pivot {
			f.recent = leaves[f.done]
		} else {
			f.recent = f.join(f.recent, leaves[f.done])
		}
	}
	if f.done == f.pivot {
		return f.suffix[lo-f.base]
	}
	return f.join(f.suffix[lo-f.base], f.recent)
}

// turn moves the pivot to hi.
func (f *Fold[T]) turn(leaves []T, lo, hi int) {
	f.suffix = slices.Grow(f.suffix[:0], hi-lo)[:hi-lo]
	joined := leaves[hi-1]
	f.suffix[hi-1-lo] = joined
	for i := hi - 2; i >= lo; i-- {
		joined = f.join(leaves[i], joined)
		f.suffix[i-lo] = joined
	}
	f.base, f.pivot, f.done = lo, hi, hi
}

// Min joins two values as min_over_time does. The result is NaN only if both are NaN. If both are equal, as two zeros
// with different signs are, it is the earlier value.
func Min(earlier, later float64) float64 {
	if later < earlier || earlier != earlier {
		return later
	}
	return earlier
}

// Max joins two values as max_over_time does, with the same rules as Min.
func Max(earlier, later float64) float64 {
	if later > earlier || earlier != earlier {
		return later
	}
	return earlier
}

func overMin(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overFold(Min, b.Min, b, w, out)
}

func overMax(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overFold(Max, b.Max, b, w, out)
}

func (f *Evaluator) overFold(join func(earlier, later float64) float64, leaves []float64,
	b *rollup.Buckets, w Windows, out *Result,
) {
	f.fold.Start(join)
	f.overEach(b, w, out, func(step, lo, hi int) {
		switch f.kinds.in(lo, hi) {
		case ofFloats:
			out.add(step, f.fold.Of(leaves, lo, hi))
		case ofBoth: // Histograms have no min and max value.
			out.note(NoteHistogramsIgnored)
			out.add(step, foldFloats(join, leaves, b, lo, hi))
		}
	})
}

// foldFloats joins the leaves whose buckets have floats. There must be at least one.
func foldFloats[T any](join func(earlier, later T) T, leaves []T, b *rollup.Buckets, lo, hi int) (joined T) {
	any := false
	for i := lo; i < hi; i++ {
		switch {
		case !b.Flags[i].HasFloats():
		case !any:
			joined, any = leaves[i], true
		default:
			joined = join(joined, leaves[i])
		}
	}
	return joined
}

// compensated is a sum in two parts, as in Neumaier's summation.
type compensated struct{ high, low float64 }

func addCompensated(a, b compensated) compensated {
	high, low := kahansum.Inc(b.high, a.high, a.low)
	return compensated{high, low + b.low}
}

func overSum(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overSums(b, w, out, func(sum compensated, _ uint64, _ bool) (v float64, known bool) {
		return (sum.high + sum.low) * w.scale(), true
	},
		func(sum *histogram.FloatHistogram, _ uint64) *histogram.FloatHistogram {
			if w.scale() != 1 {
				sum.Mul(w.scale())
			}
			return sum
		})
}

func overAvg(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overSums(b, w, out, func(sum compensated, n uint64, large bool) (v float64, known bool) {
		return sum.high/float64(n) + sum.low/float64(n), !large || !math.IsInf(sum.high, 0)
	},
		func(sum *histogram.FloatHistogram, n uint64) *histogram.FloatHistogram { return sum.Div(float64(n)) })
}

// startSums prepares f.sums for adding up the sums of buckets.
func (f *Evaluator) startSums(b *rollup.Buckets) {
	f.pairs = f.pairs[:0]
	for i, high := range b.Sum {
		f.pairs = append(f.pairs, compensated{high, b.SumLow[i]})
	}
	f.sums.Start(addCompensated)
}

// overSums computes a function of the sum of a window and its number of samples. large reports whether the window has
// large values, see larges.
func (f *Evaluator) overSums(b *rollup.Buckets, w Windows, out *Result,
	value func(sum compensated, n uint64, large bool) (v float64, known bool),
	hist func(sum *histogram.FloatHistogram, n uint64) *histogram.FloatHistogram,
) {
	f.startSums(b)
	f.larges.setBuckets(b)
	vague := vagueOf(b)
	n := running{of: [][]uint32{b.Count}}
	f.overEach(b, w, out, func(step, lo, hi int) {
		count := n.in(lo, hi)
		switch f.kinds.in(lo, hi) {
		case ofFloats:
			sum := f.sums.Of(f.pairs, lo, hi)
			if v, known := value(sum, count, f.larges.in(lo, hi)); known && !f.larges.mixed(lo, hi) &&
				!vague.in(lo, hi, sum.high+sum.low, count) {
				out.add(step, v)
			} else {
				out.needsSamples(step)
			}
		case ofHistograms:
			sum, known := sumOfHistograms(b, lo, hi, out)
			switch {
			case !known:
				out.needsSamples(step)
			case sum != nil:
				out.addHistogram(step, hist(sum, count))
			}
		default:
			out.note(NoteFloatsAndHistograms)
		}
	})
}

// sumOfHistograms adds up the sums of the buckets [lo, hi) of histograms as Prometheus' sum_over_time does. sum is nil
// if the histograms can't be added. known is false if the sum of a bucket is unknown.
func sumOfHistograms(b *rollup.Buckets, lo, hi int, out *Result) (sum *histogram.FloatHistogram, known bool) {
	list := b.Histograms[lo:hi]
	if slices.ContainsFunc(list, func(h *rollup.Histograms) bool { return h.SumDropped }) {
		return nil, false
	}
	if slices.ContainsFunc(list, func(h *rollup.Histograms) bool { return h.Sum == nil }) {
		out.note(NoteMixedKinds)
		return nil, true
	}
	sum = list[0].Sum.Copy()
	var low *histogram.FloatHistogram
	reconciled, differ, err := false, false, error(nil)
	for _, h := range list[1:] {
		if low, _, differ, err = sum.KahanAdd(h.Sum, low); err != nil {
			break
		}
		reconciled = reconciled || differ
	}
	if err == nil && low != nil {
		_, _, _, err = sum.Add(low)
	}
	if err != nil {
		out.note(NoteMixedKinds)
		return nil, true
	}
	if reconciled {
		out.note(NoteBoundsReconciledSum)
	}
	return sum, true
}

// running is a sum of whole numbers over a moving window. It may subtract, because whole numbers aren't rounded.
type running struct {
	of     [][]uint32 // columns to add up
	lo, hi int
	sum    uint64
}

// in returns the sum over the buckets [lo, hi). lo and hi must not decrease from call to call.
func (r *running) in(lo, hi int) uint64 {
	for _, column := range r.of {
		for i := r.hi; i < hi; i++ {
			r.sum += uint64(column[i])
		}
		for i := r.lo; i < lo; i++ {
			r.sum -= uint64(column[i])
		}
	}
	r.lo, r.hi = lo, hi
	return r.sum
}
