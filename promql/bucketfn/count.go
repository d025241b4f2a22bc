package bucketfn

import (
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup"
)

// bucketValue returns the first or the last value of a bucket, which is a float or a histogram.
type bucketValue func(b *rollup.Buckets, i int) (float64, *histogram.FloatHistogram)

func lastValue(b *rollup.Buckets, i int) (float64, *histogram.FloatHistogram) {
	if b.Flags[i]&rollup.LastIsHistogram != 0 {
		return 0, b.Histograms[i].Last
	}
	return b.Last[i], nil
}

func firstValue(b *rollup.Buckets, i int) (float64, *histogram.FloatHistogram) {
	if b.Flags[i]&rollup.FirstIsHistogram != 0 {
		return 0, b.Histograms[i].First
	}
	return b.First[i], nil
}

// evaluateNewest computes a function by applying value to the bucket with the newest sample of a window. Only the time
// of this sample determines whether it is in the window, so the bucket may be wider than the window.
func evaluateNewest(value bucketValue) evaluateFunc {
	return func(_ *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
		c := cursor{b: b}
		for k := range w.Steps {
			from, to := w.Window(k)
			lo, hi := c.moveTo(from, to)
			if lo == hi {
				continue
			}
			newest := hi - 1
			switch flags := b.Flags[newest]; {
			case flags&rollup.NotSimple != 0:
				out.needsSamples(k)
			case b.LastT[newest] > from:
				out.addFloatOrHistogram(k, b, newest, value)
			}
		}
	}
}

// evaluateSelector is evaluateNewest for an instant selector. A stale marker ends the series.
func evaluateSelector(_ *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	c := cursor{b: b}
	for k := range w.Steps {
		from, to := w.Window(k)
		lo, hi := c.moveTo(from, to)
		if lo == hi {
			continue
		}
		newest := hi - 1
		switch flags := b.Flags[newest]; {
		case flags&rollup.EndsStale != 0:
		case flags&rollup.NotSimple != 0:
			out.needsSamples(k)
		case b.LastT[newest] > from:
			out.addFloatOrHistogram(k, b, newest, lastValue)
		}
	}
}

// evaluateOldest computes a function by applying value to the bucket with the oldest sample of a window.
func evaluateOldest(value bucketValue) evaluateFunc {
	return func(_ *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
		c := cursor{b: b}
		for k := range w.Steps {
			lo, hi := c.moveTo(w.Window(k))
			switch {
			case lo == hi:
			case b.Flags[lo]&rollup.NotSimple != 0:
				out.needsSamples(k)
			default:
				out.addFloatOrHistogram(k, b, lo, value)
			}
		}
	}
}

func (r *Result) addFloatOrHistogram(step int, b *rollup.Buckets, i int, value bucketValue) {
	v, h := value(b, i)
	if h != nil {
		r.addHistogram(step, h)
		return
	}
	r.add(step, v)
}

// firstTime returns the time of the first sample of bucket i, in seconds.
func firstTime(b *rollup.Buckets, i int) (float64, *histogram.FloatHistogram) {
	return float64(b.FirstT[i]) / 1000, nil
}

func presentValue(*rollup.Buckets, int) (float64, *histogram.FloatHistogram) { return 1, nil }

// evaluateLastTime computes the time of the last sample, in seconds. Prometheus returns the later of the last float's
// time and the last histogram's time, and uses 0 if there are no floats or no histograms. So if there are samples of
// only one kind, the result is at least 0.
func evaluateLastTime(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.eachWindow(b, w, out, func(step, lo, hi int) {
		last := b.LastT[hi-1]
		if f.kinds.kindOf(lo, hi) != kindBoth {
			last = max(last, 0)
		}
		out.add(step, float64(last)/1000)
	})
}

func evaluateCount(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	n := runningSum{columns: [][]uint32{b.Count}}
	f.eachWindow(b, w, out, func(step, lo, hi int) {
		out.add(step, float64(n.sumOver(lo, hi))*w.scaleFactor())
	})
}

func evaluateResets(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.starts.setBuckets(b, f.UsesStarts)
	inside := [][]uint32{b.Resets}
	if f.starts.b != nil {
		inside = append(inside, b.StartResets)
	}
	f.evaluateSteps(inside, f.resetFunc(b), b, w, out)
}

// resetFunc returns a function that reports whether bucket i starts with a counter reset after bucket before.
func (e *Evaluator) resetFunc(b *rollup.Buckets) func(before, i int) bool {
	return func(before, i int) bool { return b.IsReset(before, i) || e.starts.isReset(i) }
}

func evaluateChanges(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateSteps([][]uint32{b.Changes}, b.IsChange, b, w, out)
}

// evaluateSteps counts resets or changes, which are steps from one sample to the next. inside holds the numbers of
// steps within buckets. between reports whether there is a step from the last sample of a bucket to the first sample of
// the next.
func (e *Evaluator) evaluateSteps(
	inside [][]uint32, between func(before, i int) bool, b *rollup.Buckets, w Windows, out *Result,
) {
	e.setSteps(b, between)
	n := runningSum{columns: append(inside, e.steps)}
	e.eachWindow(b, w, out, func(step, lo, hi int) {
		count := n.sumOver(lo, hi) - uint64(e.steps[lo]) // the step into the first bucket starts outside
		out.add(step, float64(count)*w.scaleFactor())
	})
}

// setSteps fills e.steps: 1 for a bucket with a step between the previous bucket and it, 0 for all other buckets.
func (e *Evaluator) setSteps(b *rollup.Buckets, between func(before, i int) bool) {
	e.steps = e.steps[:0]
	for i := range b.End {
		e.steps = append(e.steps, 0)
		if i > 0 && e.kinds.kindOf(i-1, i+1) != kindUnknown && between(i-1, i) {
			e.steps[i] = 1
		}
	}
}
