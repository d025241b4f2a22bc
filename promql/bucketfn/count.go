package bucketfn

import (
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup"
)

// valueIn returns the first or the last value of a bucket, which is a float or a histogram.
type valueIn func(b *rollup.Buckets, i int) (float64, *histogram.FloatHistogram)

func lastIn(b *rollup.Buckets, i int) (float64, *histogram.FloatHistogram) {
	if b.Flags[i]&rollup.LastIsHistogram != 0 {
		return 0, b.Histograms[i].Last
	}
	return b.Last[i], nil
}

func firstIn(b *rollup.Buckets, i int) (float64, *histogram.FloatHistogram) {
	if b.Flags[i]&rollup.FirstIsHistogram != 0 {
		return 0, b.Histograms[i].First
	}
	return b.First[i], nil
}

// overNewest computes a function by applying value to the bucket with the newest sample of a window. Only the time of
// this sample determines whether it is in the window, so the bucket may be wider than the window.
func overNewest(value valueIn) evaluateFunc {
	return func(_ *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
		c := cursor{b: b}
		for k := range w.Steps {
			from, to := w.Window(k)
			lo, hi := c.move(from, to)
			if lo == hi {
				continue
			}
			newest := hi - 1
			switch flags := b.Flags[newest]; {
			case flags&rollup.NotSimple != 0:
				out.needsSamples(k)
			case b.LastT[newest] > from:
				out.addEither(k, b, newest, value)
			}
		}
	}
}

// overSelector is overNewest for an instant selector. A stale marker ends the series.
func overSelector(_ *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	c := cursor{b: b}
	for k := range w.Steps {
		from, to := w.Window(k)
		lo, hi := c.move(from, to)
		if lo == hi {
			continue
		}
		newest := hi - 1
		switch flags := b.Flags[newest]; {
		case flags&rollup.EndsStale != 0:
		case flags&rollup.NotSimple != 0:
			out.needsSamples(k)
		case b.LastT[newest] > from:
			out.addEither(k, b, newest, lastIn)
		}
	}
}

// overOldest computes a function by applying value to the bucket with the oldest sample of a window.
func overOldest(value valueIn) evaluateFunc {
	return func(_ *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
		c := cursor{b: b}
		for k := range w.Steps {
			lo, hi := c.move(w.Window(k))
			switch {
			case lo == hi:
			case b.Flags[lo]&rollup.NotSimple != 0:
				out.needsSamples(k)
			default:
				out.addEither(k, b, lo, value)
			}
		}
	}
}

func (r *Result) addEither(step int, b *rollup.Buckets, i int, value valueIn) {
	v, h := value(b, i)
	if h != nil {
		r.addHistogram(step, h)
		return
	}
	r.add(step, v)
}

// firstTimeIn returns the time of the first sample of bucket i, in seconds.
func firstTimeIn(b *rollup.Buckets, i int) (float64, *histogram.FloatHistogram) {
	return float64(b.FirstT[i]) / 1000, nil
}

func presentIn(*rollup.Buckets, int) (float64, *histogram.FloatHistogram) { return 1, nil }

// overLastTime computes the time of the last sample, in seconds. Prometheus returns the later of the last float's time
// and the last histogram's time, and uses 0 if there are no floats or no histograms. So if there are samples of only
// one kind, the result is at least 0.
func overLastTime(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overEach(b, w, out, func(step, lo, hi int) {
		last := b.LastT[hi-1]
		if f.kinds.in(lo, hi) != ofBoth {
			last = max(last, 0)
		}
		out.add(step, float64(last)/1000)
	})
}

func overCount(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	n := running{of: [][]uint32{b.Count}}
	f.overEach(b, w, out, func(step, lo, hi int) {
		out.add(step, float64(n.in(lo, hi))*w.scale())
	})
}

func overResets(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.starts.setBuckets(b, f.UsesStarts)
	inside := [][]uint32{b.Resets}
	if f.starts.b != nil {
		inside = append(inside, b.StartResets)
	}
	f.overSteps(inside, f.isReset(b), b, w, out)
}

// isReset returns a function that reports whether bucket i starts with a counter reset after bucket before.
func (f *Evaluator) isReset(b *rollup.Buckets) func(before, i int) bool {
	return func(before, i int) bool { return b.IsReset(before, i) || f.starts.isReset(i) }
}

func overChanges(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overSteps([][]uint32{b.Changes}, b.IsChange, b, w, out)
}

// overSteps counts resets or changes, which are steps from one sample to the next. inside holds the numbers of steps
// within buckets. between reports whether there is a step from the last sample of a bucket to the first sample of the
// next.
func (f *Evaluator) overSteps(
	inside [][]uint32, between func(before, i int) bool, b *rollup.Buckets, w Windows, out *Result,
) {
	f.stepsBetween(b, between)
	n := running{of: append(inside, f.steps)}
	f.overEach(b, w, out, func(step, lo, hi int) {
		count := n.in(lo, hi) - uint64(f.steps[lo]) // the step into the first bucket starts outside
		out.add(step, float64(count)*w.scale())
	})
}

// stepsBetween fills f.steps: 1 for a bucket with a step between the previous bucket and it, 0 for all other buckets.
func (f *Evaluator) stepsBetween(b *rollup.Buckets, between func(before, i int) bool) {
	f.steps = f.steps[:0]
	for i := range b.End {
		f.steps = append(f.steps, 0)
		if i > 0 && f.kinds.in(i-1, i+1) != ofUnknown && between(i-1, i) {
			f.steps[i] = 1
		}
	}
}
