package promql

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/rollup"
)

// floatFunc computes a function over the windows of a series of floats. Samples in overlapping windows aren't read
// again for each window. The results equal those of Prometheus' implementation to the last bit.
type floatFunc func(r *rawReader, out *values)

// floatFuncs holds fast implementations of the functions that dashboards use most. All other functions are computed by
// Prometheus' implementation.
var floatFuncs = map[string]floatFunc{
	"rate": func(r *rawReader, out *values) {
		r.computeSlopes(out, bucketfn.Slope{Counter: true,
			PerSecond: (time.Duration(r.fragment.width) * time.Millisecond).Seconds()})
	},
	"increase": func(r *rawReader, out *values) {
		r.computeSlopes(out, bucketfn.Slope{Counter: true, Scale: 1})
	},
	"delta":              func(r *rawReader, out *values) { r.computeSlopes(out, bucketfn.Slope{Scale: 1}) },
	"min_over_time":      func(r *rawReader, out *values) { r.computeExtremes(out, bucketfn.JoinMin) },
	"max_over_time":      func(r *rawReader, out *values) { r.computeExtremes(out, bucketfn.JoinMax) },
	"quantile_over_time": func(r *rawReader, out *values) { r.computeQuantiles(out, r.fragment.scalars[0][0].F) },
}

// floatFuncOf returns the floatFunc of a fragment, or nil if there is none.
func floatFuncOf(p *fragment) floatFunc {
	if p.function == "quantile_over_time" && !(p.scalars[0][0].F >= 0 && p.scalars[0][0].F <= 1) {
		return nil // The result has a warning, which the evaluator must add.
	}
	return floatFuncs[p.function]
}

// liveSamples returns the floats of the series without stale markers, as columns.
func (r *rawReader) liveSamples() ([]int64, []float64) {
	t, v := r.it.samples.T[r.it.floats:], r.it.samples.V[r.it.floats:]
	stale := 0
	for stale < len(v) && !value.IsStaleNaN(v[stale]) {
		stale++
	}
	if stale == len(v) {
		return t, v
	}
	r.times, r.values = append(r.times[:0], t[:stale]...), append(r.values[:0], v[:stale]...)
	for i := stale; i < len(v); i++ {
		if !value.IsStaleNaN(v[i]) {
			r.times, r.values = append(r.times, t[i]), append(r.values, v[i])
		}
	}
	return r.times, r.values
}

// liveSamplesWithResets is liveSamples, and also records the counter resets. If there are no stale markers, as in most
// counters, it needs only one pass.
func (r *rawReader) liveSamplesWithResets() ([]int64, []float64) {
	t, v := r.it.samples.T[r.it.floats:], r.it.samples.V[r.it.floats:]
	r.resets = r.resets[:0]
	before, numbers := math.Inf(-1), true
	for i, f := range v {
		if !(f >= before) {
			if numbers = f < before; !numbers { // f is NaN, and may be a stale marker.
				break
			}
			r.resets = append(r.resets, i)
		}
		before = f
	}
	if numbers {
		return t, v
	}
	t, v = r.liveSamples()
	r.resets = r.resets[:0]
	for i := 1; i < len(v); i++ {
		if v[i] < v[i-1] {
			r.resets = append(r.resets, i)
		}
	}
	return t, v
}

// computeSlopesWithStarts computes rate or increase with start timestamps. It returns the number of windows in which
// start timestamps overlap (see rollup.IsStartOverlap).
func (r *rawReader) computeSlopesWithStarts(out *values) (overlapping int) {
	t, v, st := r.liveSamplesWithStarts()
	r.resets, r.overlaps = r.resets[:0], r.overlaps[:0]
	for i := 1; i < len(v); i++ {
		switch {
		case v[i] < v[i-1]:
			r.resets = append(r.resets, i)
		case st[i] != st[i-1] && rollup.IsStartReset(st[i-1], t[i-1], st[i], t[i]):
			r.resets = append(r.resets, i)
		}
		if st[i] != st[i-1] && rollup.IsStartOverlap(st[i-1], t[i-1], st[i]) {
			r.overlaps = append(r.overlaps, i)
		}
	}
	s := bucketfn.Slope{Counter: true, Scale: 1}
	if r.fragment.function == "rate" {
		s = bucketfn.Slope{Counter: true, PerSecond: (time.Duration(r.fragment.width) * time.Millisecond).Seconds()}
	}
	r.computeSlopesFrom(t, v, st, s, out)
	return r.overlappingWindows(t)
}

// overlappingWindows returns the number of windows that contain a sample of r.overlaps after their first sample.
func (r *rawReader) overlappingWindows(t []int64) (n int) {
	from, to, next := 0, 0, 0
	for i := r.from; i < r.to && len(r.overlaps) > 0 && !r.hasEnded(i); i++ {
		right := r.fragment.edges.timeAt(i)
		from, to = slideTimes(t, from, to, right-r.fragment.width, right)
		for next < len(r.overlaps) && r.overlaps[next] <= from {
			next++
		}
		if next < len(r.overlaps) && r.overlaps[next] < to {
			n++
		}
	}
	return n
}

// liveSamplesWithStarts is liveSamples, and also returns the start timestamps of the samples.
func (r *rawReader) liveSamplesWithStarts() (t []int64, v []float64, st []int64) {
	st = r.it.samples.ST[r.it.floats:]
	all := r.it.samples.V[r.it.floats:]
	if t, v = r.liveSamples(); len(v) == len(all) {
		return t, v, st
	}
	r.begins = r.begins[:0]
	for i, f := range all {
		if !value.IsStaleNaN(f) {
			r.begins = append(r.begins, st[i])
		}
	}
	return t, v, r.begins
}

// computeSlopes computes rate, increase or delta.
func (r *rawReader) computeSlopes(out *values, s bucketfn.Slope) {
	var t []int64
	var v []float64
	if s.Counter {
		t, v = r.liveSamplesWithResets()
	} else {
		t, v = r.liveSamples()
		r.resets = r.resets[:0]
	}
	r.computeSlopesFrom(t, v, nil, s, out)
}

// computeSlopesFrom computes rate, increase or delta of samples with given counter resets. st are their start
// timestamps, or nil if start timestamps aren't used.
func (r *rawReader) computeSlopesFrom(t []int64, v []float64, st []int64, s bucketfn.Slope, out *values) {
	p, resets := r.fragment, r.resets
	from, to, reset := 0, 0, 0
	for i := r.from; i < r.to && !r.hasEnded(i); i++ {
		right := p.edges.timeAt(i)
		left := right - p.width
		from, to = slideTimes(t, from, to, left, right)
		sinceStart := int64(0)
		if st != nil && from < to {
			sinceStart = rollup.SinceStart(st[from], t[from], left)
		}
		if to-from < 2 && sinceStart == 0 {
			continue
		}
		rise := v[to-1] - v[from]
		for reset < len(resets) && resets[reset] <= from {
			reset++
		}
		for k := reset; k < len(resets) && resets[k] < to; k++ {
			rise += v[resets[k]-1]
		}
		spacing := bucketfn.Spacing{BeforeFirst: t[from] - left, AfterLast: right - t[to-1], Sampled: t[to-1] - t[from],
			Count: uint64(to - from)}
		if sinceStart > 0 {
			rise += v[from]
		}
		out.v[i] = rise * s.Factor(spacing, sinceStart, v[from], rise)
		out.floats++
	}
	out.size = out.floats
}

// computeExtremes computes min_over_time or max_over_time.
func (r *rawReader) computeExtremes(out *values, join func(earlier, later float64) float64) {
	t, v := r.liveSamples()
	p := r.fragment
	r.fold.Start(join)
	from, to := 0, 0
	for i := r.from; i < r.to; i++ {
		right := p.edges.timeAt(i)
		from, to = slideTimes(t, from, to, right-p.width, right)
		if from == to {
			continue
		}
		out.v[i] = r.fold.Join(v, from, to)
		out.floats++
	}
	out.size = out.floats
}

// computeQuantiles computes quantile_over_time for q from 0 to 1.
func (r *rawReader) computeQuantiles(out *values, q float64) {
	t, v := r.liveSamples()
	p := r.fragment
	r.sorted.reset()
	signed := hasNegativeZero(v)
	from, to := 0, 0
	for i := r.from; i < r.to && !r.hasEnded(i); i++ {
		right := p.edges.timeAt(i)
		from, to = slideTimes(t, from, to, right-p.width, right)
		if from == to {
			continue
		}
		r.sorted.moveTo(v, from, to)
		if out.v[i] = r.sorted.quantile(q); out.v[i] == 0 && signed {
			r.zeros = append(r.zeros[:0], v[from:to]...)
			out.v[i] = sortedQuantile(q, r.zeros)
		}
		out.floats++
	}
	out.size = out.floats
}

// slideTimes moves [from, to), a range of indices of t, forward to the times with after < t <= until.
func slideTimes(t []int64, from, to int, after, until int64) (int, int) {
	for to < len(t) && t[to] <= until {
		to++
	}
	for from < to && t[from] <= after {
		from++
	}
	return from, to
}
