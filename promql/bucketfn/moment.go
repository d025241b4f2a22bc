package bucketfn

import (
	"math"

	"github.com/cassia-db/cassia/storage/rollup"
)

// moments are the number, the sum and the moment of values. They are merged as described at rollup.MomentBetween.
type moments struct {
	n           float64
	sum, moment compensated
	min, max    float64
	unknown     bool // some bucket has no moment
	large       bool // some value is large
}

func mergeMoments(a, b moments) moments {
	both := moments{
		n: a.n + b.n, sum: addCompensated(a.sum, b.sum), min: JoinMin(a.min, b.min), max: JoinMax(a.max, b.max),
		unknown: a.unknown || b.unknown, large: a.large || b.large,
	}
	if both.min == both.max { // Otherwise rounding would give constants a deviation.
		return both
	}
	both.moment = addCompensated(addCompensated(a.moment, b.moment),
		compensated{rollup.MomentBetween(a.n, a.sum.high, a.sum.low, b.n, b.sum.high, b.sum.low), 0})
	return both
}

// variance returns the variance of the values, and whether it is known. As in Prometheus, it is NaN unless all values
// are finite.
func (m *moments) variance() (v float64, known bool) {
	switch sum := m.sum.high + m.sum.low; {
	case isFlat(m.min, m.max, sum):
		return 0, true
	case sum-sum != 0:
		return math.NaN(), !(m.large && hasOverflowed(m.min, m.max, sum))
	}
	v = max(0, (m.moment.high+m.moment.low)/m.n)
	return v, !m.unknown && v <= math.MaxFloat64
}

func evaluateStdvar(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateMoments(b, w, out, func(variance float64) float64 { return variance })
}

func evaluateStddev(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateMoments(b, w, out, math.Sqrt)
}

func (e *Evaluator) evaluateMoments(b *rollup.Buckets, w Windows, out *Result, value func(variance float64) float64) {
	e.parts = e.parts[:0]
	for i, moment := range b.Moment {
		e.parts = append(e.parts, moments{
			n: float64(b.FloatCount(i)), sum: compensated{b.Sum[i], b.SumLow[i]},
			moment: compensated{max(0, moment), 0},
			min:    b.Min[i], max: b.Max[i], unknown: moment < 0,
			large: b.Flags[i]&rollup.Large != 0,
		})
	}
	e.merged.Start(mergeMoments)
	cut := cutBuckets{list: b.Wholes}
	e.leaves = e.leaves[:0]
	for _, whole := range b.Wholes {
		e.leaves = append(e.leaves, whole.Moment)
	}
	e.fold.Start(func(earlier, later float64) float64 { return earlier + later })
	e.eachWindow(b, w, out, func(step, lo, hi int) {
		var m moments
		switch e.kinds.kindOf(lo, hi) {
		case kindFloats:
			m = e.merged.Join(e.parts, lo, hi)
		case kindBoth:
			out.addNote(NoteHistogramsIgnored)
			m = joinFloats(mergeMoments, e.parts, b, lo, hi)
		default: // only histograms: no deviation
			return
		}
		if lo, hi := cut.bucketsInside(w, step); lo < hi {
			m.moment.high += e.fold.Join(e.leaves, lo, hi)
		}
		if v, known := m.variance(); known {
			out.add(step, value(v))
		} else {
			out.needsSamples(step)
		}
	})
}

// cutBuckets finds the buckets that were cut into pieces but are entirely inside a moving window.
type cutBuckets struct {
	list   []rollup.Whole
	lo, hi int
}

// bucketsInside returns the buckets [lo, hi) of list that are entirely inside the window of a step. There are none if
// hi <= lo.
func (c *cutBuckets) bucketsInside(w Windows, step int) (lo, hi int) {
	from, to := w.Window(step)
	for c.lo < len(c.list) && c.list[c.lo].Start < from {
		c.lo++
	}
	for c.hi < len(c.list) && c.list[c.hi].End <= to {
		c.hi++
	}
	return c.lo, c.hi
}
