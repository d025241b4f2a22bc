package promql

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup"
)

func overRate(f *bucketFunc, b *rollup.Buckets, w windows, out *answers) {
	f.overSlope(b, w, out, slope{counter: true, perSecond: w.seconds()})
}

func overIncrease(f *bucketFunc, b *rollup.Buckets, w windows, out *answers) {
	f.overSlope(b, w, out, slope{counter: true, scale: w.scale()})
}

func overDelta(f *bucketFunc, b *rollup.Buckets, w windows, out *answers) {
	f.overSlope(b, w, out, slope{scale: w.scale()})
}

// slope is which of rate, increase and delta is asked for.
type slope struct {
	counter   bool
	perSecond float64 // what rate divides by, seconds; 0 for the others
	scale     float64 // of the others, for windows that were widened
}

// times returns what the rise between the first and the last sample of a window is multiplied by.
func (s slope) times(e extrapolation) float64 {
	if s.perSecond != 0 {
		return e.factor() / s.perSecond
	}
	return e.factor() * s.scale
}

// overSlope computes rate, increase or delta as extrapolatedRate of promql/functions.go of Prometheus does when
// start timestamps aren't used.
func (f *bucketFunc) overSlope(b *rollup.Buckets, w windows, out *answers, s slope) {
	most := ofFloats
	if s.counter && !f.kinds.plain {
		most = ofHistograms
		f.joints.of(b, &f.kinds)
	}
	resets := s.counter && f.corrections(b)
	f.fold.start(func(earlier, later float64) float64 { return earlier + later })
	n := running{of: [][]uint32{b.Count}}
	f.overEach(b, w, out, most, func(step, lo, hi int) {
		count := n.in(lo, hi)
		if count < 2 {
			return
		}
		from, to := w.window(step)
		e := extrapolation{
			beforeFirst: seconds(b.FirstT[lo] - from), afterLast: seconds(to - b.LastT[hi-1]),
			sampled: seconds(b.LastT[hi-1] - b.FirstT[lo]), count: count,
		}
		if most == ofHistograms && b.Flags[lo]&rollup.HasHistograms != 0 {
			h := f.riseOfHistograms(b, lo, hi)
			if h == nil {
				out.needsSamples(step)
				return
			}
			e.stopAtZero(b.Histograms[lo].First.Count, h.Count)
			out.addHistogram(step, h.Mul(s.times(e)))
			return
		}
		rise := b.Last[hi-1] - b.First[lo]
		if resets {
			rise += b.Correction[lo]
			if hi-lo > 1 {
				rise += f.fold.of(f.leaves, lo+1, hi)
			}
		}
		if s.counter {
			e.stopAtZero(b.First[lo], rise)
		}
		out.add(step, rise*s.times(e))
	})
}

// corrections fills leaves with what is to be added for counter resets from the end of the bucket before to the
// end of each, and says whether there is any.
func (f *bucketFunc) corrections(b *rollup.Buckets) (any bool) {
	f.leaves = append(f.leaves[:0], b.Correction...)
	for i := range f.leaves {
		if i > 0 && b.First[i] < b.Last[i-1] {
			f.leaves[i] += b.Last[i-1]
		}
		any = any || f.leaves[i] != 0
	}
	return any
}

// seconds turns milliseconds into seconds as Prometheus does.
func seconds(ms int64) float64 { return float64(ms) / 1000 }

// extrapolation is from the samples of a window to its edges. Times are seconds.
type extrapolation struct {
	beforeFirst, afterLast float64 // between the edges and the samples next to them
	sampled                float64 // between the first sample and the last
	count                  uint64

	zero   bool    // whether the counter was 0 at some time
	toZero float64 // how long that is before the first sample
}

// stopAtZero says that a counter began with first and rose by rise: extrapolated to the left, it must not become
// negative.
func (e *extrapolation) stopAtZero(first, rise float64) {
	if rise > 0 && first >= 0 {
		e.zero, e.toZero = true, e.sampled*(first/rise)
	}
}

// factor returns what to multiply the increase between the samples by. A window whose samples end more than
// about one interval from an edge is taken to have begun, or ended, half an interval from its last sample.
func (e extrapolation) factor() float64 {
	interval := e.sampled / float64(e.count-1)
	gap := interval * 1.1
	left, right := e.beforeFirst, e.afterLast
	if left >= gap {
		left = interval / 2
	}
	if e.zero && e.toZero < left {
		left = e.toZero
	}
	if right >= gap {
		right = interval / 2
	}
	if e.sampled == 0 {
		return 1
	}
	return (e.sampled + left + right) / e.sampled
}

// joints are the places where buckets of histograms meet.
type joints struct {
	// reset[i] says that bucket i begins with a counter reset.
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

// sameBounds says whether the buckets of two histograms are the same, so that nothing has to be reconciled.
func sameBounds(a, b *histogram.FloatHistogram) bool {
	return a.Schema == b.Schema && a.ZeroThreshold == b.ZeroThreshold &&
		(!a.UsesCustomBuckets() || histogram.CustomBucketBoundsMatch(a.CustomValues, b.CustomValues))
}

// riseOfHistograms is how buckets lo to before hi of histograms rise, as histogramRate of Prometheus computes it; nil
// where only the samples can tell: with other bounds, and where a sum that isn't finite may be that of a first
// sample that Prometheus leaves out, since a reset follows it.
func (f *bucketFunc) riseOfHistograms(b *rollup.Buckets, lo, hi int) *histogram.FloatHistogram {
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
func (f *bucketFunc) correctHistograms(rise *histogram.FloatHistogram, b *rollup.Buckets, lo, hi int) bool {
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

// added says of what FloatHistogram's Add and Sub return whether all went well.
func added(_ *histogram.FloatHistogram, _, _ bool, err error) bool { return err == nil }
