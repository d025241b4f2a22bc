package bucketfn

import (
	"math"

	"github.com/cassia-db/cassia/storage/rollup"
)

// Prediction holds the time for which predict_linear predicts, relative to each step.
type Prediction struct {
	// First is the evaluation time of step 0, and Step the interval between steps, in milliseconds. They differ from
	// those of the windows if offset or @ moves the windows.
	First, Step int64
	Seconds     float64
}

// SetPrediction sets the time for which predict_linear predicts.
func (f *Evaluator) SetPrediction(p Prediction) { f.prediction = p }

// regression holds the sums from which the least squares line through samples is computed. Two regressions are merged
// in the same way as moments.
type regression struct {
	n   float64
	sum compensated
	// base plus rest is the mean of the times, in milliseconds. rest is less than a millisecond.
	base int64
	rest float64
	// squares is Σ(t − t̄)², and comoment Σ(t − t̄)(v − v̄).
	squares, comoment compensated
	min, max          float64
	// unknown is set if the line of a bucket is unknown. large is set if some value is large.
	unknown, large bool
}

func mergeLines(a, b regression) regression {
	both := regression{n: a.n + b.n, sum: addCompensated(a.sum, b.sum), min: Min(a.min, b.min), max: Max(a.max, b.max),
		unknown: a.unknown || b.unknown, large: a.large || b.large}
	apart := float64(b.base-a.base) + (b.rest - a.rest)
	values := rollup.MeansApart(a.n, a.sum.high, a.sum.low, b.n, b.sum.high, b.sum.low)
	weight := a.n * b.n / both.n
	both.squares = addCompensated(addCompensated(a.squares, b.squares), compensated{float64(apart*apart) * weight, 0})
	both.comoment = addCompensated(addCompensated(a.comoment, b.comoment),
		compensated{float64(apart*values) * weight, 0})
	both.base, both.rest = a.base, a.rest
	both.later(apart * (b.n / both.n))
	return both
}

// later increases the mean of the times by a number of milliseconds.
func (l *regression) later(by float64) {
	by += l.rest
	whole := math.Floor(by)
	l.base, l.rest = l.base+int64(whole), by-whole
}

// solve returns the slope of the line per second, and the line's value at the time at, in milliseconds. Both are NaN
// unless all values are finite.
func (l *regression) solve(at int64) (slope, value float64) {
	sum := l.sum.high + l.sum.low
	switch {
	case isFlat(l.min, l.max, sum):
		return 0, l.min
	case sum-sum != 0:
		return math.NaN(), math.NaN()
	}
	slope = (l.comoment.high + l.comoment.low) / (l.squares.high + l.squares.low) * 1000
	mean := l.sum.high/l.n + l.sum.low/l.n
	return slope, mean + slope*((float64(at-l.base)-l.rest)/1000)
}

// known reports whether solve has a result.
func (l *regression) known() bool {
	switch sum := l.sum.high + l.sum.low; {
	case isFlat(l.min, l.max, sum):
		return true
	case sum-sum != 0:
		return !(l.large && hasOverflowed(l.min, l.max, sum))
	default:
		return !l.unknown && !l.large // Products with large values overflow.
	}
}

func overDeriv(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overLines(b, w, out, func(l *regression, _ int) float64 {
		slope, _ := l.solve(l.base)
		return slope
	})
}

func overPredictLinear(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overLines(b, w, out, func(l *regression, step int) float64 {
		slope, value := l.solve(f.prediction.First + int64(step)*f.prediction.Step)
		return slope*f.prediction.Seconds + value
	})
}

func (f *Evaluator) overLines(b *rollup.Buckets, w Windows, out *Result, value func(l *regression, step int) float64) {
	f.lines = f.lines[:0]
	for i := range b.End {
		f.lines = append(f.lines, lineOf(b, i))
	}
	f.mergedLines.Start(mergeLines)
	cut := wholes{list: b.Wholes}
	f.missing = f.missing[:0]
	for _, whole := range b.Wholes {
		f.missing = append(f.missing, missingOf(&whole, b.Wholes[0].First))
	}
	f.missed.Start(addMissing)
	f.overEach(b, w, out, func(step, lo, hi int) {
		var l regression
		kind := f.kinds.in(lo, hi)
		switch kind {
		case ofFloats:
			l = f.mergedLines.Of(f.lines, lo, hi)
		case ofBoth:
			l = foldFloats(mergeLines, f.lines, b, lo, hi)
		default: // only histograms: no line
			return
		}
		if kind == ofBoth && (l.n < 2 || l.known()) {
			out.note(NoteHistogramsIgnored)
		}
		if l.n < 2 {
			return
		}
		if lo, hi := cut.in(w, step); lo < hi {
			l.add(f.missed.Of(f.missing, lo, hi), b.Wholes[0].First)
		}
		if l.known() {
			out.add(step, value(&l, step))
		} else {
			out.needsSamples(step)
		}
	})
}

func lineOf(b *rollup.Buckets, i int) regression {
	n := b.FloatCount(i)
	l := regression{n: float64(n), sum: compensated{b.Sum[i], b.SumLow[i]}, min: b.Min[i], max: b.Max[i],
		unknown: b.TimeSquares[i] < 0, large: b.Flags[i]&rollup.Large != 0}
	if n == 0 || l.unknown {
		return l
	}
	l.base, l.squares, l.comoment = b.FirstT[i], compensated{b.TimeMoment(i), 0}, compensated{b.Comoment[i], 0}
	l.later(float64(b.TimeSum[i]) / float64(n))
	return l
}

// missing holds the difference between sums over all samples of cut buckets and the same sums over the pieces of these
// buckets. There are three sums: of the times after an origin, of the squares of these times, and of the products of
// the times and the values.
type missing struct{ times, squares, products float64 }

func missingOf(w *rollup.Whole, origin int64) missing {
	return missing{
		times: w.TimeSum, squares: w.TimeSquares + 2*float64(w.First-origin)*w.TimeSum,
		products: w.Comoment + w.TimeSum*w.Mean,
	}
}

func addMissing(a, b missing) missing {
	return missing{a.times + b.times, a.squares + b.squares, a.products + b.products}
}

// add adds the missing sums, whose times are relative to origin.
func (l *regression) add(m missing, origin int64) {
	mean, after := l.sum.high/l.n+l.sum.low/l.n, float64(l.base-origin)+l.rest
	l.squares.high += m.squares - 2*after*m.times - m.times*m.times/l.n
	l.comoment.high += m.products - mean*m.times
	l.later(m.times / l.n)
}
