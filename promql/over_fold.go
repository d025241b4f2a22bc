package promql

import (
	"slices"

	"github.com/prometheus/prometheus/util/kahansum"

	"github.com/cassia-db/cassia/storage/rollup"
)

// fold joins what stands in a window that moves on, in a constant number of steps a leaf and a window, however
// many leaves a window has. Nothing is ever subtracted, so nothing gets lost in rounding, and what can't be
// undone, such as a maximum, works, too. It is the queue of two stacks of which the one holds what is joined
// from the right:
//
//	leaves   0 1 2 3 4 5 6 7 8 9
//	          [lo   |pivot  ]hi
//	suffix    1-3 2-3 3             joined once, when lo passed the last pivot
//	recent          4-7             joined as hi moves
type fold[T any] struct {
	join   func(earlier, later T) T
	suffix []T // suffix[i] joins leaves base+i to before pivot
	recent T   // joins leaves pivot to before done

	base, pivot, done int
}

// start begins with a new series.
func (f *fold[T]) start(join func(earlier, later T) T) {
	f.join, f.base, f.pivot, f.done = join, 0, 0, 0
}

// of joins leaves[lo:hi], which isn't empty. Neither lo nor hi is less than at the call before.
func (f *fold[T]) of(leaves []T, lo, hi int) T {
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

// turn puts the pivot at hi.
func (f *fold[T]) turn(leaves []T, lo, hi int) {
	f.suffix = slices.Grow(f.suffix[:0], hi-lo)[:hi-lo]
	joined := leaves[hi-1]
	f.suffix[hi-1-lo] = joined
	for i := hi - 2; i >= lo; i-- {
		joined = f.join(leaves[i], joined)
		f.suffix[i-lo] = joined
	}
	f.base, f.pivot, f.done = lo, hi, hi
}

// lesser and greater join as min_over_time and max_over_time do: a NaN stands only where there is nothing else,
// and of equal values the first stands.
func lesser(earlier, later float64) float64 {
	if later < earlier || earlier != earlier {
		return later
	}
	return earlier
}

func greater(earlier, later float64) float64 {
	if later > earlier || earlier != earlier {
		return later
	}
	return earlier
}

func overMin(f *bucketFunc, b *rollup.Buckets, w windows, out *answers) {
	f.overFold(lesser, b.Min, b, w, out)
}

func overMax(f *bucketFunc, b *rollup.Buckets, w windows, out *answers) {
	f.overFold(greater, b.Max, b, w, out)
}

func (f *bucketFunc) overFold(join func(earlier, later float64) float64, leaves []float64,
	b *rollup.Buckets, w windows, out *answers,
) {
	f.fold.start(join)
	f.overEach(b, w, out, ofHistograms, func(step, lo, hi int) {
		if f.kinds.in(lo, hi) == ofFloats { // histograms alone have no least nor greatest value
			out.add(step, f.fold.of(leaves, lo, hi))
		}
	})
}

// compensated is a sum in two parts, as Neumaier's summation keeps it.
type compensated struct{ high, low float64 }

func addCompensated(a, b compensated) compensated {
	high, low := kahansum.Inc(b.high, a.high, a.low)
	return compensated{high, low + b.low}
}

func overSum(f *bucketFunc, b *rollup.Buckets, w windows, out *answers) {
	f.overSums(b, w, out, func(sum compensated, _, _ int) float64 {
		return (sum.high + sum.low) * w.scale()
	})
}

func overAvg(f *bucketFunc, b *rollup.Buckets, w windows, out *answers) {
	n := running{of: [][]uint32{b.Count}}
	f.overSums(b, w, out, func(sum compensated, lo, hi int) float64 {
		count := float64(n.in(lo, hi))
		return sum.high/count + sum.low/count
	})
}

func (f *bucketFunc) overSums(b *rollup.Buckets, w windows, out *answers,
	value func(sum compensated, lo, hi int) float64,
) {
	f.pairs = f.pairs[:0]
	for i, high := range b.Sum {
		f.pairs = append(f.pairs, compensated{high, b.SumLow[i]})
	}
	f.sums.start(addCompensated)
	f.overEach(b, w, out, ofFloats, func(step, lo, hi int) {
		out.add(step, value(f.sums.of(f.pairs, lo, hi), lo, hi))
	})
}

// running is a sum of whole numbers over a window that moves on. They don't round, so it may subtract.
type running struct {
	of     [][]uint32 // columns, which are added up
	lo, hi int
	sum    uint64
}

// in returns the sum over buckets lo to before hi. Neither is less than at the call before.
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
