package bucketfn

import (
	"cmp"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/rollup"
)

func evaluateRate(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateSlope(b, w, out, Slope{Counter: true, PerSecond: windowSeconds(w.Span)})
}

func evaluateIncrease(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateSlope(b, w, out, Slope{Counter: true, Scale: w.scaleFactor()})
}

func evaluateDelta(f *Evaluator, b *rollup.Buckets, w Windows, out *Result) {
	f.evaluateSlope(b, w, out, Slope{Scale: w.scaleFactor()})
}

// evaluateSlope computes rate, increase or delta in the same way as extrapolatedRate in promql/functions.go of
// Prometheus.
func (e *Evaluator) evaluateSlope(b *rollup.Buckets, w Windows, out *Result, s Slope) {
	e.starts.setBuckets(b, e.UsesStarts && s.Counter)
	if !e.kinds.onlyFloats {
		e.joints.setBuckets(b, &e.kinds, &e.starts)
	}
	resets := s.Counter && e.setCorrections(b)
	e.larges.setBuckets(b)
	e.fold.Start(func(earlier, later float64) float64 { return earlier + later })
	n, width := runningSum{columns: [][]uint32{b.Count}}, w.Span
	e.eachWindow(b, w, out, func(step, lo, hi int) {
		count := n.sumOver(lo, hi)
		kind := e.kinds.kindOf(lo, hi)
		if kind == kindBoth {
			out.addNote(NoteFloatsAndHistograms)
			return
		}
		from, to := w.Window(step)
		sinceStart := e.starts.sinceStart(lo, from)
		if count < 2 && sinceStart == 0 {
			return
		}
		if s.PerSecond != 0 && to-from != width { // Windows that end after Windows.SnapUntil are longer.
			width = to - from
			s = Slope{Counter: true, PerSecond: windowSeconds(width)}
		}
		spacing := Spacing{BeforeFirst: b.FirstT[lo] - from, AfterLast: to - b.LastT[hi-1],
			Sampled: b.LastT[hi-1] - b.FirstT[lo], Count: count}
		if kind == kindHistograms {
			h, needsSamples := e.riseOfHistograms(b, lo, hi, count, sinceStart, s.Counter, out)
			switch {
			case needsSamples:
				out.needsSamples(step)
			case h != nil:
				out.addHistogram(step, h.Mul(s.Factor(spacing, sinceStart, b.Histograms[lo].First.Count, h.Count)))
			}
			return
		}
		rise := b.Last[hi-1] - b.First[lo]
		if resets {
			first, others := b.Correction[lo]+e.starts.correction(lo), 0.
			if hi-lo > 1 {
				others = e.fold.Join(e.leaves, lo+1, hi)
			}
			if e.larges.isRiseUnknown(lo, hi, rise, first+others, first, e.leaves[lo+1:hi]) {
				out.needsSamples(step)
				return
			}
			rise += first
			rise += others
		}
		if sinceStart > 0 {
			rise += b.First[lo]
		}
		if e.starts.hasOverlap(lo, hi) {
			out.Overlaps++
		}
		out.add(step, rise*s.Factor(spacing, sinceStart, b.First[lo], rise))
	})
}

// setCorrections sets e.leaves[i] to the correction for the counter resets from the end of bucket i-1 to the end of
// bucket i. It reports whether any correction isn't 0.
func (e *Evaluator) setCorrections(b *rollup.Buckets) (any bool) {
	e.leaves = append(e.leaves[:0], b.Correction...)
	for i := range e.leaves {
		e.leaves[i] += e.starts.correction(i)
		if i > 0 && (b.First[i] < b.Last[i-1] || e.starts.isReset(i)) {
			e.leaves[i] += b.Last[i-1]
		}
		any = any || e.leaves[i] != 0
	}
	return any
}

// joints records resets and changes of layout within and between consecutive buckets of histograms.
type joints struct {
	// reset[i] is true if bucket i starts with a counter reset.
	reset []bool
	// odd[i] is the number of the first i buckets whose layout changes inside the bucket or differs from the previous
	// bucket's. corrected[i] is the number of the first i buckets with something to correct, inside the bucket or at
	// its start.
	odd, corrected []int32
}

func (j *joints) setBuckets(b *rollup.Buckets, k *kinds, s *starts) {
	j.reset, j.odd, j.corrected = j.reset[:0], append(j.odd[:0], 0), append(j.corrected[:0], 0)
	for i := range b.End {
		reset, odd, corrected := false, int32(0), int32(0)
		if k.kindOf(i, i+1) == kindHistograms {
			h := b.Histograms[i]
			if s.corrections(h) != [2]*histogram.FloatHistogram{} {
				corrected = 1
			}
			if s.startsWithReset(h) || h.MixedKinds || h.Coarser > 0 || !sameLayout(h.First, h.Last) {
				odd, corrected = 1, 1
			}
			if i > 0 && k.kindOf(i-1, i) == kindHistograms {
				before := b.Histograms[i-1].Last
				if !sameLayout(before, h.First) {
					odd = 1
				}
				if h.First.DetectReset(before) || s.isReset(i) {
					reset, corrected = true, 1
				}
			}
		}
		j.reset = append(j.reset, reset)
		j.odd, j.corrected = append(j.odd, j.odd[i]+odd), append(j.corrected, j.corrected[i]+corrected)
	}
}

// sameLayout reports whether two histograms have the same bucket bounds, so that they need no reconciliation.
func sameLayout(a, b *histogram.FloatHistogram) bool {
	return a.Schema == b.Schema && a.ZeroThreshold == b.ZeroThreshold &&
		(!a.UsesCustomBuckets() || histogram.CustomBucketBoundsMatch(a.CustomValues, b.CustomValues))
}

// riseOfHistograms returns the increase over the buckets [lo, hi) of count histograms. If the histograms start inside
// the window (see Slope.Factor for sinceStart), it is the increase from zero. It returns nil if the histograms can't be
// added. needsSamples is set if the increase can be computed only from samples, because it depends on the order in which
// corrections are added or on the counts of gauges.
func (e *Evaluator) riseOfHistograms(b *rollup.Buckets, lo, hi int, count uint64, sinceStart int64, counter bool,
	out *Result) (rise *histogram.FloatHistogram, needsSamples bool) {
	first := b.Histograms[lo].First
	switch {
	case sinceStart == 0:
		return e.riseBetween(b, lo, hi, counter, out)
	case count == 1:
		return first.Copy(), false
	}
	rise, needsSamples = e.riseBetween(b, lo, hi, counter, out)
	return addOrSubtract(rise, first, 1, out), needsSamples
}

// riseBetween returns the increase from the first to the last histogram of the buckets [lo, hi), computed in the same
// way as in histogramRate of Prometheus. Its results have the same meaning as the results of riseOfHistograms.
func (e *Evaluator) riseBetween(b *rollup.Buckets, lo, hi int, counter bool,
	out *Result) (rise *histogram.FloatHistogram, needsSamples bool) {
	first, last := b.Histograms[lo].First, b.Histograms[hi-1].Last
	if !counter {
		if first.UsesCustomBuckets() != last.UsesCustomBuckets() {
			out.addNote(NoteMixedKinds)
			return nil, false
		}
		if first.CounterResetHint != histogram.GaugeType || last.CounterResetHint != histogram.GaugeType {
			out.addNote(NoteNotGauge)
		}
		return finishRise(addOrSubtract(copyToSchema(last, min(first.Schema, last.Schema)), first, -1, out)), false
	}
	// If a reset follows the first sample, the layout of that sample is ignored.
	leftOut := e.starts.startsWithReset(b.Histograms[lo]) || b.Histograms[lo].Count == 1 && e.joints.reset[lo+1]
	least, alike := last.Schema, true
	if e.joints.odd[hi] > e.joints.odd[lo] || leftOut {
		least, alike = minSchema(b, lo, hi, leftOut)
	}
	if !alike {
		if !leftOut && first.UsesCustomBuckets() != last.UsesCustomBuckets() &&
			(first.CounterResetHint == histogram.GaugeType || last.CounterResetHint == histogram.GaugeType) {
			out.addNote(NoteNotCounter)
		}
		out.addNote(NoteMixedKinds)
		return nil, false
	}
	hasGauges := slices.ContainsFunc(b.Histograms[lo:hi], func(h *rollup.Histograms) bool { return h.HasGauges })
	if e.OnlyCounts && hasGauges || e.hasOrderedCorrections(b.Histograms[lo:hi]) {
		return nil, true
	}
	if hasGauges {
		out.addNote(NoteNotCounter)
	}
	if e.starts.hasOverlap(lo, hi) {
		out.Overlaps++
	}
	rise = copyToSchema(last, least)
	if leftOut {
		second := b.Histograms[min(lo+1, hi-1)].First
		if b.Histograms[lo].Count > 1 {
			second = cmp.Or(b.Histograms[lo].Second, b.Histograms[lo].Last)
		}
		first = &histogram.FloatHistogram{Schema: least, CustomValues: second.CustomValues}
	}
	rise = addOrSubtract(rise, first, -1, out)
	return finishRise(e.addCorrections(rise, b, lo, hi, leftOut, out)), false
}

// addCorrections adds the corrections for resets in the buckets [lo, hi) to a rise. leftOut is set if a reset follows
// the first sample.
func (e *Evaluator) addCorrections(rise *histogram.FloatHistogram, b *rollup.Buckets, lo, hi int, leftOut bool,
	out *Result) *histogram.FloatHistogram {
	j := &e.joints
	if j.corrected[hi] == j.corrected[lo] {
		return rise
	}
	for i := lo; i < hi; i++ {
		h := b.Histograms[i]
		switch {
		case i == lo, i == lo+1 && leftOut && b.Histograms[lo].Count == 1:
		case j.reset[i]:
			rise = addOrSubtract(rise, b.Histograms[i-1].Last, 1, out)
		}
		if e.starts.startsWithReset(h) && i > lo {
			rise = addOrSubtract(rise, h.First, 1, out)
		}
		for _, correction := range e.starts.corrections(h) {
			if correction != nil {
				rise = addOrSubtract(rise, correction, 1, out)
			}
		}
		if e.starts.areCorrectionsReconciled(h) {
			out.addNote(NoteBoundsReconciledAdd)
		}
	}
	return rise
}

// copyToSchema returns a copy of a histogram in the given schema, which must not be finer than its own.
func copyToSchema(h *histogram.FloatHistogram, schema int32) *histogram.FloatHistogram {
	h = h.CopyToSchema(schema)
	h.CounterResetHint = histogram.GaugeType
	return h
}

// finishRise converts a rise to the form of Prometheus' result. It returns nil for nil.
func finishRise(h *histogram.FloatHistogram) *histogram.FloatHistogram {
	if h == nil {
		return nil
	}
	h.CounterResetHint = histogram.GaugeType
	return h.Compact(0)
}

// minSchema returns the smallest schema of the histograms in the buckets [lo, hi), without the first histogram if
// leftOut is set. It also reports whether all histograms have the same kind of bounds.
func minSchema(b *rollup.Buckets, lo, hi int, leftOut bool) (int32, bool) {
	custom := b.Histograms[hi-1].Last.UsesCustomBuckets()
	least := b.Histograms[hi-1].Last.Schema
	for i := lo; i < hi; i++ {
		h := b.Histograms[i]
		if h.MixedKinds {
			return 0, false
		}
		if i > lo || !leftOut {
			if h.First.UsesCustomBuckets() != custom {
				return 0, false
			}
			least = min(least, h.First.Schema)
		}
		if h.Count > 1 {
			if h.Last.UsesCustomBuckets() != custom {
				return 0, false
			}
			least = min(least, h.Last.Schema-int32(h.Coarser))
		}
	}
	return least, true
}

// addOrSubtract returns the sum of h and another histogram or, if sign is negative, their difference. It returns nil if
// h is nil or the histograms are of different kinds.
func addOrSubtract(h, other *histogram.FloatHistogram, sign int, out *Result) *histogram.FloatHistogram {
	if h == nil {
		return nil
	}
	var reconciled bool
	var err error
	note := NoteBoundsReconciledAdd
	if sign < 0 {
		_, _, reconciled, err = h.Sub(other)
		note = NoteBoundsReconciledSub
	} else {
		_, _, reconciled, err = h.Add(other)
	}
	if err != nil {
		out.addNote(NoteMixedKinds)
		return nil
	}
	if reconciled {
		out.addNote(note)
	}
	return h
}
