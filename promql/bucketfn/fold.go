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

// Join returns the join of leaves[lo:hi], which must not be empty. lo and hi must not decrease from call to call.
func (f *Fold[T]) Join(leaves []T, lo, hi int) T {
	if hi-lo == 1 {
		return leaves[lo]
	}
	if lo >= f.pivot {
		f.movePivot(leaves, lo, hi)
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

// movePivot moves the pivot to hi, and joins the suffixes of leaves[lo:hi].
func (f *Fold[T]) movePivot(leaves []T, lo, hi int) {
	f.suffix = slices.Grow(f.suffix[:0], hi-lo)[:hi-lo]
	joined := leaves[hi-1]
	f.suffix[hi-1-lo] = joined
	for i := hi - 2; i >= lo; i-- {
		joined = f.join(leaves[i], joined)
		f.suffix[i-lo] = joined
	}
	f.base, f.pivot, f.done = lo, hi, hi
}

// JoinMin joins two values as min_over_time does. The result is NaN only if both are NaN. If both are equal, as two
// zeros with different signs are, the result is the earlier value.
func JoinMin(earlier, later float64) float64 {
	if later < earlier || earlier != earlier {
		return later
	}
	return earlier
}

// JoinMax joins two values as max_over_time does, with the same rules as JoinMin.
func JoinMax(earlier, later float64) float64 {
	if later > earlier || earlier != earlier {
		return later
	}
	return earlier
}

func evaluateMin(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateFold(JoinMin, b.Min, b, w, out)
}

func evaluateMax(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateFold(JoinMax, b.Max, b, w, out)
}

func (e *Evaluator) evaluateFold(join func(earlier, later float64) float64, leaves []float64,
	b *rollup.Buckets, w Windows, out *Result,
) {
	e.fold.Start(join)
	e.eachWindow(b, w, out, func(step, lo, hi int) {
		switch e.kinds.kindOf(lo, hi) {
		case kindFloats:
			out.add(step, e.fold.Join(leaves, lo, hi))
		case kindBoth: // Histograms have no min and max value.
			out.addNote(NoteHistogramsIgnored)
			out.add(step, joinFloats(join, leaves, b, lo, hi))
		}
	})
}

// joinFloats joins the leaves whose buckets have floats. At least one bucket must have floats.
func joinFloats[T any](join func(earlier, later T) T, leaves []T, b *rollup.Buckets, lo, hi int) (joined T) {
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

func evaluateSum(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateSums(b, w, out, func(sum compensated, _ uint64, _ bool) (v float64, known bool) {
		return (sum.high + sum.low) * w.scaleFactor(), true
	},
		func(sum *histogram.FloatHistogram, _ uint64) *histogram.FloatHistogram {
			if w.scaleFactor() != 1 {
				sum.Mul(w.scaleFactor())
			}
			return sum
		})
}

func evaluateAvg(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateSums(b, w, out, func(sum compensated, n uint64, large bool) (v float64, known bool) {
		return sum.high/float64(n) + sum.low/float64(n), !large || !math.IsInf(sum.high, 0)
	},
		func(sum *histogram.FloatHistogram, n uint64) *histogram.FloatHistogram { return sum.Div(float64(n)) })
}

// startSums prepares e.sums for adding up the sums of buckets.
func (e *Evaluator) startSums(b *rollup.Buckets) {
	e.pairs = e.pairs[:0]
	for i, high := range b.Sum {
		e.pairs = append(e.pairs, compensated{high, b.SumLow[i]})
	}
	e.sums.Start(addCompensated)
}

// evaluateSums computes a function of the sum of a window and its number of samples. large reports whether the window
// has large values, see largeValues.
func (e *Evaluator) evaluateSums(b *rollup.Buckets, w Windows, out *Result,
	value func(sum compensated, n uint64, large bool) (v float64, known bool),
	hist func(sum *histogram.FloatHistogram, n uint64) *histogram.FloatHistogram,
) {
	e.startSums(b)
	e.larges.setBuckets(b)
	vague := newVagueSums(b)
	n := runningSum{columns: [][]uint32{b.Count}}
	e.eachWindow(b, w, out, func(step, lo, hi int) {
		count := n.sumOver(lo, hi)
		switch e.kinds.kindOf(lo, hi) {
		case kindFloats:
			sum := e.sums.Join(e.pairs, lo, hi)
			if v, known := value(sum, count, e.larges.hasLarge(lo, hi)); known && !e.larges.dependsOnOrder(lo, hi) &&
				!vague.isVague(lo, hi, sum.high+sum.low, count) {
				out.add(step, v)
			} else {
				out.needsSamples(step)
			}
		case kindHistograms:
			sum, known := e.sumOfHistograms(b, lo, hi, out)
			switch {
			case !known:
				out.needsSamples(step)
			case sum != nil:
				out.addHistogram(step, hist(sum, count))
			}
		default:
			out.addNote(NoteFloatsAndHistograms)
		}
	})
}

// sumOfHistograms adds up the sums of the buckets [lo, hi) of histograms as Prometheus' sum_over_time does. sum is nil
// if the histograms can't be added. known is false if the sum of a bucket is unknown, or the result depends on the
// order of addition.
func (e *Evaluator) sumOfHistograms(b *rollup.Buckets, lo, hi int,
	out *Result) (sum *histogram.FloatHistogram, known bool) {
	list := b.Histograms[lo:hi]
	if slices.ContainsFunc(list, func(h *rollup.Histograms) bool { return h.SumDropped }) {
		return nil, false
	}
	if slices.ContainsFunc(list, func(h *rollup.Histograms) bool { return h.Sum == nil }) {
		out.addNote(NoteMixedKinds)
		return nil, true
	}
	if e.hasOrderedSum(list) {
		return nil, false
	}
	sum = list[0].Sum.Copy()
	var low *histogram.FloatHistogram
	reconciled, differ, err := list[0].Reconciled&rollup.ReconciledSum != 0, false, error(nil)
	for _, h := range list[1:] {
		if low, _, differ, err = sum.KahanAdd(h.Sum, low); err != nil {
			break
		}
		reconciled = reconciled || differ || h.Reconciled&rollup.ReconciledSum != 0
	}
	if err == nil && low != nil {
		_, _, _, err = sum.Add(low)
	}
	if err != nil {
		out.addNote(NoteMixedKinds)
		return nil, true
	}
	if reconciled {
		out.addNote(NoteBoundsReconciledSum)
	}
	return sum, true
}

// runningSum is a sum of whole numbers over a moving window. It may subtract, because whole numbers aren't rounded.
type runningSum struct {
	columns [][]uint32 // columns to add up
	lo, hi  int
	sum     uint64
}

// sumOver returns the sum over the buckets [lo, hi). lo and hi must not decrease from call to call.
func (r *runningSum) sumOver(lo, hi int) uint64 {
	for _, column := range r.columns {
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
