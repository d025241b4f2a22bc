package rollup

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup/layouts"
)

// fillHistograms fills bucket i, which has no floats, with histograms that aren't stale markers.
func (b *builder) fillHistograms(i int, alive []chunk.Histogram) {
	into := b.into
	if slices.ContainsFunc(alive, func(h chunk.Histogram) bool { return h.CheckComputable() != nil }) {
		into.Flags[i] |= NotSimple
		return
	}
	var all histogramRun
	var starts startRun
	for k, h := range alive {
		f := asFloat(h)
		isStartReset := k > 0 && starts.countStep(alive[k-1].ST, alive[k-1].T, h.ST, h.T) && !f.DetectReset(all.h.Last)
		if isStartReset {
			starts.resets++
		}
		all.add(&Histograms{Count: 1, First: f, Last: f, Sum: f, Layouts: layouts.Of(f, largestSummable)}, isStartReset)
	}
	first, last := &alive[0], &alive[len(alive)-1]
	into.Count[i] = all.h.Count
	into.FirstT[i], into.LastT[i] = first.T, last.T
	starts.first, starts.last = first.ST, last.ST
	into.setStarts(i, starts)
	into.Resets[i], into.Changes[i] = all.resets, all.changes
	into.Flags[i] |= ofHistograms
	into.setHistograms(i, all.finish())
}

func asCount(is bool) uint32 {
	if is {
		return 1
	}
	return 0
}

// histogramRun merges consecutive histograms as Prometheus' rate, resets, changes and sum_over_time do.
type histogramRun struct {
	h Histograms
	// resets and changes are the numbers of resets and changes between the added histograms.
	resets, changes uint32

	sum, low   *histogram.FloatHistogram // sum by Kahan's summation, as in Prometheus
	unsummable bool
	// second is the second histogram, or one with the same bounds; nil unless the second histogram is a reset.
	second      *histogram.FloatHistogram
	least       int32 // min schema of the exponential histograms after the first
	exponential bool  // histograms after the first include exponential ones
	custom      bool  // histograms after the first include custom bounds
}

// add appends the histograms of a bucket. isStartReset is set if only start timestamps show that the first of them is a
// reset.
func (r *histogramRun) add(next *Histograms, isStartReset bool) {
	r.addSum(next.Sum)
	r.h.Layouts |= next.Layouts
	r.h.SumDropped = r.h.SumDropped || next.SumDropped
	r.h.Reconciled |= next.Reconciled
	r.h.HasGauges = r.h.HasGauges || next.HasGauges || next.First.CounterResetHint == histogram.GaugeType
	if r.h.Count == 0 {
		r.h.First, r.h.FirstReset, r.h.FirstStartReset, r.least = next.First, next.FirstReset, next.FirstStartReset,
			math.MaxInt32
		if r.second = next.Second; (next.FirstReset || next.FirstStartReset) && next.Second == nil {
			r.second = next.Last
		}
	} else {
		before := r.h.Last
		r.changes += asCount(!next.First.Equals(before))
		r.h.Layouts |= layouts.Differences(before, next.First)
		if !histogram.CustomBucketBoundsMatch(next.First.CustomValues, before.CustomValues) {
			r.h.Reconciled |= ReconciledSum
		}
		isReset := next.First.DetectReset(before)
		r.resets += asCount(isReset)
		switch {
		case !isReset && !isStartReset:
		case r.h.Count == 1:
			r.h.FirstReset, r.h.FirstStartReset, r.second = isReset, !isReset, next.First
		case isReset:
			r.addTo(&r.h.Correction, before, layouts.CorrectionsAdded, reconciledCorrection)
		default:
			r.addTo(&r.h.StartCorrection, before, layouts.StartCorrectionsAdded, ReconciledStartCorrection)
		}
		r.recordLayout(next.First, 0)
		switch {
		case next.FirstReset:
			r.addTo(&r.h.Correction, next.First, layouts.CorrectionsAdded, reconciledCorrection)
		case next.FirstStartReset:
			r.addTo(&r.h.StartCorrection, next.First, layouts.StartCorrectionsAdded, ReconciledStartCorrection)
		}
	}
	r.addTo(&r.h.Correction, next.Correction, layouts.CorrectionsAdded, reconciledCorrection)
	r.addTo(&r.h.StartCorrection, next.StartCorrection, layouts.StartCorrectionsAdded, ReconciledStartCorrection)
	if next.Count > 1 {
		r.recordLayout(next.Last, next.Coarser)
		if next.MixedKinds {
			r.exponential, r.custom = true, true
		}
	}
	r.h.Last = next.Last
	r.h.Count += next.Count
}

// recordLayout records the layout of a histogram after the first.
func (r *histogramRun) recordLayout(h *histogram.FloatHistogram, coarser uint8) {
	if h.UsesCustomBuckets() {
		r.custom = true
		return
	}
	r.exponential = true
	r.least = min(r.least, h.Schema-int32(coarser))
}

// addTo adds by, which may be nil, to a correction. added and reconciled are the elements of Traits and Reconciled for
// this correction.
func (r *histogramRun) addTo(correction **histogram.FloatHistogram, by *histogram.FloatHistogram, added layouts.Traits,
	reconciled Reconciled) {
	switch {
	case by == nil:
		return
	case *correction == nil:
		*correction = by.Copy()
	default:
		r.h.Layouts |= added
		_, _, differ, err := (*correction).Add(by)
		if err != nil {
			r.exponential, r.custom = true, true
		}
		if differ {
			r.h.Reconciled |= reconciled
		}
	}
	(*correction).CounterResetHint = histogram.UnknownCounterReset
}

// addSum adds by to the sum; nil makes the sum unknown.
func (r *histogramRun) addSum(by *histogram.FloatHistogram) {
	switch {
	case by == nil:
		r.unsummable = true
	case r.unsummable:
	case r.sum == nil:
		r.sum = by.Copy()
	default:
		r.h.Layouts |= layouts.MovedBetween(r.sum, by)
		low, _, _, err := r.sum.KahanAdd(by, r.low)
		r.low, r.unsummable = low, err != nil
	}
}

// finish returns the result. The run must not be used afterwards.
func (r *histogramRun) finish() *Histograms {
	h := &r.h
	h.Layouts = h.Layouts.WithSum(r.sum, !r.unsummable)
	if h.MixedKinds = r.exponential && r.custom; h.MixedKinds {
		h.Correction, h.StartCorrection = nil, nil
		h.Reconciled &^= reconciledCorrection | ReconciledStartCorrection
		h.Layouts &^= layouts.CorrectionsAdded | layouts.StartCorrectionsAdded
	} else if r.exponential {
		h.Coarser = uint8(h.Last.Schema - r.least)
	} else if (h.FirstReset || h.FirstStartReset) &&
		!histogram.CustomBucketBoundsMatch(r.second.CustomValues, h.Last.CustomValues) {
		h.Second = &histogram.FloatHistogram{Schema: r.second.Schema, CustomValues: r.second.CustomValues}
	}
	if r.unsummable {
		return h
	}
	if r.low != nil {
		_, _, _, err := r.sum.Add(r.low)
		if err != nil {
			return h
		}
	}
	h.Sum = r.sum
	if h.Sum.CounterResetHint != histogram.GaugeType {
		h.Sum.CounterResetHint = histogram.UnknownCounterReset
	}
	return h
}

// amongFloats returns the result for a bucket that also has floats, without sums, because no function adds its
// histograms. The run must not be used afterwards.
func (r *histogramRun) amongFloats() *Histograms {
	return &Histograms{Count: r.h.Count, First: r.h.First, Last: r.h.Last, HasGauges: r.h.HasGauges}
}

// DropHistogramSums removes the sums of histograms. Queries that need these sums then read the samples instead.
func (b *Buckets) DropHistogramSums() {
	for i, h := range b.Histograms {
		if h != nil && h.Sum != nil {
			dropped := *h
			dropped.Sum, dropped.SumDropped = nil, true
			b.Histograms[i] = &dropped
		}
	}
}

// DropHistograms removes the histograms. Buckets that had histograms get the flag NotSimple.
func (b *Buckets) DropHistograms() {
	for i, flags := range b.Flags {
		if flags&HasHistograms == 0 {
			continue
		}
		b.Flags[i] = flags&(EndsStale|HasDeleted|Large|LargePositive|LargeNegative|Vague) | NotSimple
		b.Count[i] = b.Count[i] - b.Histograms[i].Count
		b.Resets[i], b.Changes[i] = 0, 0
		if b.Count[i] > 0 {
			continue
		}
		b.FirstT[i], b.LastT[i] = 0, 0
		if b.FirstST != nil {
			b.FirstST[i], b.LastST[i], b.StartResets[i] = 0, 0, 0
		}
	}
	b.Histograms = nil
}

// asFloat returns the histogram as queries see it. It omits a reset reported by the sender: queries detect resets from
// the previous histogram, as they do with Prometheus' own storage.
func asFloat(h chunk.Histogram) *histogram.FloatHistogram {
	f := h.Float
	if h.Int != nil {
		f = h.Int.ToFloat(nil)
	}
	if f.CounterResetHint != histogram.GaugeType && f.CounterResetHint != histogram.UnknownCounterReset {
		unhinted := *f // the rest is shared and immutable
		unhinted.CounterResetHint = histogram.UnknownCounterReset
		return &unhinted
	}
	return f
}

func isStale(h chunk.Histogram) bool {
	if h.Int != nil {
		return value.IsStaleNaN(h.Int.Sum)
	}
	return value.IsStaleNaN(h.Float.Sum)
}

func isStaleFloat(v float64) bool { return v != v && value.IsStaleNaN(v) }
