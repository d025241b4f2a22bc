package bucketfn

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup"
)

func overRate(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overSlope(b, w, out, Slope{Counter: true, PerSecond: secondsOf(w.Span)})
}

func overIncrease(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overSlope(b, w, out, Slope{Counter: true, Scale: w.scale()})
}

func overDelta(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.overSlope(b, w, out, Slope{Scale: w.scale()})
}

// overSlope computes rate, increase or delta as extrapolatedRate of promql/functions.go of Prometheus does when
// start timestamps aren't used.
func (f *Evaluator) overSlope(b *rollup.Buckets, w Windows, out *Result, s Slope) {
	most := ofFloats
	if s.Counter && !f.kinds.plain {
		most = ofHistograms
		f.joints.of(b, &f.kinds)
	}
	resets := s.Counter && f.corrections(b)
	f.fold.Start(func(earlier, later float64) float64 { return earlier + later })
	n, width := running{of: [][]uint32{b.Count}}, w.Span
	f.overEach(b, w, out, most, func(step, lo, hi int) {
		count := n.in(lo, hi)
		if count < 2 {
			return
		}
		from, to := w.Window(step)
		if s.PerSecond != 0 && to-from != width { // The windows that end after Windows.SnapUntil are longer.
			width = to - from
			s = Slope{Counter: true, PerSecond: secondsOf(width)}
		}
		spacing := Spacing{BeforeFirst: b.FirstT[lo] - from, AfterLast: to - b.LastT[hi-1], Sampled: b.LastT[hi-1] - b.FirstT[lo], Count: count}
		if most == ofHistograms && b.Flags[lo]&rollup.HasHistograms != 0 {
			h := f.riseOfHistograms(b, lo, hi)
			if h == nil {
				out.needsSamples(step)
				return
			}
			out.addHistogram(step, h.Mul(s.Factor(spacing, b.Histograms[lo].First.Count, h.Count)))
			return
		}
		rise := b.Last[hi-1] - b.First[lo]
		if resets {
			rise += b.Correction[lo]
			if hi-lo > 1 {
				rise += f.fold.Of(f.leaves, lo+1, hi)
			}
		}
		out.add(step, rise*s.Factor(spacing, b.First[lo], rise))
	})
}

// corrections fills leaves with the corrections for counter resets from the end of the bucket before to the
// end of each, and reports whether there is any.
func (f *Evaluator) corrections(b *rollup.Buckets) (any bool) {
	f.leaves = append(f.leaves[:0], b.Correction...)
	for i := range f.leaves {
		if i > 0 && b.First[i] < b.Last[i-1] {
			f.leaves[i] += b.Last[i-1]
		}
		any = any || f.leaves[i] != 0
	}
	return any
}

// joints are the places where buckets of histograms meet.
type joints struct {
	// reset[i]: bucket i begins with a counter reset.
	reset []bool
	// unlike[i] is how many of the first i buckets have other bounds than the one before; corrected[i] how many
	// have something to correct, inside or at their begin.
	unlike, corrected []int32
}

func (j *joints) of(b *rollup.Buckets, k *kinds) {
	j.reset, j.unlike, j.corrected = j.reset[:0], append(j.unlike[:0], 0), append(j.corrected[:0], 0)
	for i := range b.End {
		reset, unlike, corrected := false, int32(0), int32(0)
		if k.in(i, i+1) == ofHistograms {
			if b.Histograms[i].Correction != nil {
				corrected = 1
			}
			if i > 0 && k.in(i-1, i) == ofHistograms {
				before, first := b.Histograms[i-1].Last, b.Histograms[i].First
				if !sameBounds(before, first) {
					unlike = 1
				} else if first.DetectReset(before) {
					reset, corrected = true, 1
				}
			}
		}
		j.reset = append(j.reset, reset)
		j.unlike, j.corrected = append(j.unlike, j.unlike[i]+unlike), append(j.corrected, j.corrected[i]+corrected)
	}
}

// sameBounds reports whether the buckets of two histograms are the same, so that nothing has to be reconciled.
func sameBounds(a, b *histogram.FloatHistogram) bool {
	return a.Schema == b.Schema && a.ZeroThreshold == b.ZeroThreshold &&
		(!a.UsesCustomBuckets() || histogram.CustomBucketBoundsMatch(a.CustomValues, b.CustomValues))
}

// riseOfHistograms is how buckets lo to before hi of histograms rise, as histogramRate of Prometheus computes it; nil
// where only the samples have the answer: with other bounds, and where a sum that isn't finite may be that of a first
// sample that Prometheus leaves out, since a reset follows it.
func (f *Evaluator) riseOfHistograms(b *rollup.Buckets, lo, hi int) *histogram.FloatHistogram {
	j := &f.joints
	if j.unlike[hi] > j.unlike[lo+1] {
		return nil
	}
	rise := b.Histograms[hi-1].Last.Copy()
	rise.CounterResetHint = histogram.GaugeType
	ok := added(rise.Sub(b.Histograms[lo].First))
	if ok && j.corrected[hi] > j.corrected[lo] {
		ok = f.correctHistograms(rise, b, lo, hi)
	}
	if !ok || math.IsNaN(rise.Sum) {
		return nil
	}
	rise.CounterResetHint = histogram.GaugeType
	return rise.Compact(0)
}

// correctHistograms adds what stood before each reset in buckets lo to before hi.
func (f *Evaluator) correctHistograms(rise *histogram.FloatHistogram, b *rollup.Buckets, lo, hi int) bool {
	for i := lo; i < hi; i++ {
		if i > lo && f.joints.reset[i] && !added(rise.Add(b.Histograms[i-1].Last)) {
			return false
		}
		if c := b.Histograms[i].Correction; c != nil && !added(rise.Add(c)) {
			return false
		}
	}
	return true
}

// added reports whether FloatHistogram's Add or Sub, whose results it takes, succeeded.
func added(_ *histogram.FloatHistogram, _, _ bool, err error) bool { return err == nil }
