package bucketfn

import (
	"math"

	"github.com/cassia-db/cassia/storage/rollup"
)

// Prediction holds the time for which predict_linear predicts, relative to each step.
type Prediction struct {
	// First is the evaluation time of step 0, and Step the interval between steps, in milliseconds. They differ from
	// First and Step of the windows if offset or @ moves the windows.
	First, Step int64
	Seconds     float64
}

// SetPrediction sets the time for which predict_linear predicts.
func (e *Evaluator) SetPrediction(p Prediction) { e.prediction = p }

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
	both := regression{n: a.n + b.n, sum: addCompensated(a.sum, b.sum), min: JoinMin(a.min, b.min),
		max: JoinMax(a.max, b.max), unknown: a.unknown || b.unknown, large: a.large || b.large}
	apart := float64(b.base-a.base) + (b.rest - a.rest)
	values := rollup.MeansApart(a.n, a.sum.high, a.sum.low, b.n, b.sum.high, b.sum.low)
	weight := a.n * b.n / both.n
	both.squares = addCompensated(addCompensated(a.squares, b.squares), compensated{float64(apart*apart) * weight, 0})
	both.comoment = addCompensated(addCompensated(a.comoment, b.comoment),
		compensated{float64(apart*values) * weight, 0})
	both.base, both.rest = a.base, a.rest
	both.shiftTimes(apart * (b.n / both.n))
	return both
}

// shiftTimes increases the mean of the times by a number of milliseconds.
func (r *regression) shiftTimes(by float64) {
	by += r.rest
	whole := math.Floor(by)
	r.base, r.rest = r.base+int64(whole), by-whole
}

// solve returns the slope of the line per second, and the line's value at the time at, in milliseconds. Both are NaN
// if any value isn't finite.
func (r *regression) solve(at int64) (slope, value float64) {
	sum := r.sum.high + r.sum.low
	switch {
	case isFlat(r.min, r.max, sum):
		return 0, r.min
	case sum-sum != 0:
		return math.NaN(), math.NaN()
	}
	slope = (r.comoment.high + r.comoment.low) / (r.squares.high + r.squares.low) * 1000
	mean := r.sum.high/r.n + r.sum.low/r.n
	return slope, mean + slope*((float64(at-r.base)-r.rest)/1000)
}

// isKnown reports whether solve has a result.
func (r *regression) isKnown() bool {
	switch sum := r.sum.high + r.sum.low; {
	case isFlat(r.min, r.max, sum):
		return true
	case sum-sum != 0:
		return !(r.large && hasOverflowed(r.min, r.max, sum))
	default:
		return !r.unknown && !r.large // Products with large values overflow.
	}
}

// dependsOnSides reports whether the value that Prometheus computes for the time at depends on whether the infinite
// values are before or after it. Prometheus multiplies values by their times relative to at. With infinite values, the
// result is NaN if the whole window (from, to] is on one side of at. Only a negative offset or @ moves a window so that it
// is on both sides.
func (r *regression) dependsOnSides(at, from, to int64) bool {
	return (math.IsInf(r.min, 0) || math.IsInf(r.max, 0)) && from+1 < at && at < to
}

func evaluateDeriv(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateLines(b, w, out, func(l *regression, _ int) (float64, bool) {
		slope, _ := l.solve(l.base)
		return slope, true
	})
}

func evaluatePredictLinear(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateLines(b, w, out, func(l *regression, step int) (float64, bool) {
		at := f.prediction.First + int64(step)*f.prediction.Step
		if from, to := w.Window(step); l.dependsOnSides(at, from, to) {
			return 0, false
		}
		slope, value := l.solve(at)
		return slope*f.prediction.Seconds + value, true
	})
}

// evaluateLines computes the lines through the windows' samples. value returns the result for a line, or false if
// samples are needed for it.
func (e *Evaluator) evaluateLines(b *rollup.Buckets, w Windows, out *Result,
	value func(l *regression, step int) (float64, bool)) {
	e.lines = e.lines[:0]
	for i := range b.End {
		e.lines = append(e.lines, newRegression(b, i))
	}
	e.mergedLines.Start(mergeLines)
	cut := cutBuckets{list: b.Wholes}
	e.missing = e.missing[:0]
	for _, whole := range b.Wholes {
		e.missing = append(e.missing, newMissingSums(&whole, b.Wholes[0].First))
	}
	e.missed.Start(addMissingSums)
	e.eachWindow(b, w, out, func(step, lo, hi int) {
		var l regression
		kind := e.kinds.kindOf(lo, hi)
		switch kind {
		case kindFloats:
			l = e.mergedLines.Join(e.lines, lo, hi)
		case kindBoth:
			l = joinFloats(mergeLines, e.lines, b, lo, hi)
		default: // only histograms: no line
			return
		}
		if kind == kindBoth && (l.n < 2 || l.isKnown()) {
			out.addNote(NoteHistogramsIgnored)
		}
		if l.n < 2 {
			return
		}
		if lo, hi := cut.bucketsInside(w, step); lo < hi {
			l.add(e.missed.Join(e.missing, lo, hi), b.Wholes[0].First)
		}
		if l.isKnown() {
			if v, ok := value(&l, step); ok {
				out.add(step, v)
				return
			}
		}
		out.needsSamples(step)
	})
}

func newRegression(b *rollup.Buckets, i int) regression {
	n := b.FloatCount(i)
	l := regression{n: float64(n), sum: compensated{b.Sum[i], b.SumLow[i]}, min: b.Min[i], max: b.Max[i],
		unknown: b.TimeSquares[i] < 0, large: b.Flags[i]&rollup.Large != 0}
	if n == 0 || l.unknown {
		return l
	}
	l.base, l.squares, l.comoment = b.FirstT[i], compensated{b.TimeMoment(i), 0}, compensated{b.Comoment[i], 0}
	l.shiftTimes(float64(b.TimeSum[i]) / float64(n))
	return l
}

// missingSums holds the difference between sums over all samples of cut buckets and the same sums over the pieces of
// these buckets. There are three sums: of the times after an origin, of the squares of these times, and of the products
// of the times and the values.
type missingSums struct{ times, squares, products float64 }

func newMissingSums(w *rollup.Whole, origin int64) missingSums {
	return missingSums{
		times: w.TimeSum, squares: w.TimeSquares + 2*float64(w.First-origin)*w.TimeSum,
		products: w.Comoment + w.TimeSum*w.Mean,
	}
}

func addMissingSums(a, b missingSums) missingSums {
	return missingSums{a.times + b.times, a.squares + b.squares, a.products + b.products}
}

// add adds the missing sums, whose times are relative to origin.
func (r *regression) add(m missingSums, origin int64) {
	mean, after := r.sum.high/r.n+r.sum.low/r.n, float64(r.base-origin)+r.rest
	r.squares.high += m.squares - 2*after*m.times - m.times*m.times/r.n
	r.comoment.high += m.products - mean*m.times
	r.shiftTimes(m.times / r.n)
}
