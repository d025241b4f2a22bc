package rollup

import (
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
)

// Layouts is a set of properties of a bucket's native histograms. They determine whether a sum of the histograms
// depends on the order of addition, or on which of them are added up first.
//
// Prometheus adds two histograms with different zero thresholds by moving the observations below the larger threshold
// into the zero bucket, and two histograms with different schemas by merging buckets of the finer one. Each of these
// alone gives the same sum in any order, but both together may count observations twice. If a histogram has
// observations in a bucket inside its own zero bucket, these observations are moved, kept or dropped, depending on the
// histogram that it is added to.
type Layouts uint8

// The elements of a set. Values are stored and must never be reused.
const (
	// schemasDiffer means that the schemas of the histograms differ, and thresholdsDiffer that their zero thresholds
	// do.
	schemasDiffer Layouts = 1 << iota
	thresholdsDiffer
	// hasMoved means that zero thresholds differ, and that adding the histograms moves observations into the zero bucket
	// or, if schemas differ, may move some in another order of addition.
	hasMoved
	// zeroOverlaps means that a histogram has observations in a bucket inside its zero bucket.
	zeroOverlaps
	// LargeCounts means that a finite value of a histogram is so large that a sum with it may overflow, see isLarge.
	LargeCounts
	// correctionsAdded means that Correction is the sum of multiple histograms, and startCorrectionsAdded that
	// StartCorrection is.
	correctionsAdded
	startCorrectionsAdded

	allLayouts = 1<<iota - 1
)

// ownLayouts returns the properties of one histogram.
func ownLayouts(h *histogram.FloatHistogram) (l Layouts) {
	if isLarge(h.Sum) || isLarge(h.Count) || isLarge(h.ZeroCount) || slices.ContainsFunc(h.PositiveBuckets, isLarge) ||
		slices.ContainsFunc(h.NegativeBuckets, isLarge) {
		l |= LargeCounts
	}
	if hasZeroOverlap(h) {
		l |= zeroOverlaps
	}
	return l
}

// hasZeroOverlap reports whether h has observations in a bucket inside its zero bucket.
func hasZeroOverlap(h *histogram.FloatHistogram) bool {
	if h.UsesCustomBuckets() || h.ZeroThreshold <= 0 {
		return false
	}
	for it := h.PositiveBucketIterator(); it.Next(); {
		if b := it.At(); b.Upper > h.ZeroThreshold {
			break
		} else if b.Count != 0 {
			return true
		}
	}
	for it := h.NegativeBucketIterator(); it.Next(); {
		if b := it.At(); -b.Lower > h.ZeroThreshold {
			break
		} else if b.Count != 0 {
			return true
		}
	}
	return false
}

// hasBelow reports whether h has observations in a bucket that begins below threshold, except the zero bucket.
func hasBelow(h *histogram.FloatHistogram, threshold float64) bool {
	for it := h.PositiveBucketIterator(); it.Next(); {
		if b := it.At(); b.Lower >= threshold {
			break
		} else if b.Count != 0 {
			return true
		}
	}
	for it := h.NegativeBucketIterator(); it.Next(); {
		if b := it.At(); -b.Upper >= threshold {
			break
		} else if b.Count != 0 {
			return true
		}
	}
	return false
}

// movesObservations reports whether adding a and b, which have the same kind of bounds, moves observations into the
// zero bucket.
func movesObservations(a, b *histogram.FloatHistogram) bool {
	if a.ZeroThreshold > b.ZeroThreshold {
		a, b = b, a
	}
	return a.ZeroThreshold < b.ZeroThreshold && hasBelow(a, b.ZeroThreshold)
}

// differences returns the properties in which two histograms differ. Custom bounds are reconciled in any order.
func differences(a, b *histogram.FloatHistogram) (l Layouts) {
	if a.UsesCustomBuckets() || b.UsesCustomBuckets() {
		return 0
	}
	if a.Schema != b.Schema {
		l |= schemasDiffer
	}
	if a.ZeroThreshold != b.ZeroThreshold {
		l |= thresholdsDiffer
	}
	return l
}

// HasOrderedSum reports whether the sum of the histograms of consecutive buckets may differ from Prometheus' sum of the
// same histograms, because Prometheus adds them one by one. The buckets must have their sums.
func HasOrderedSum(list []*Histograms) bool {
	var all layoutRange
	for _, h := range list {
		all.add(h.Layouts, h.Sum, h.Sum.Schema)
	}
	switch {
	case all.Layouts&LargeCounts != 0, all.differ() && all.Layouts&zeroOverlaps != 0:
		return true
	case !all.mayMove():
		return false
	case all.Layouts&hasMoved != 0:
		return true
	}
	return slices.ContainsFunc(list, func(h *Histograms) bool { return all.moves(h.Sum) })
}

// HasOrderedCorrections reports whether an increase over consecutive buckets may differ from Prometheus' increase over
// the same histograms, because Prometheus adds the histograms before each reset one by one. The buckets must have their
// first and last histograms and their corrections. usesStarts is set if resets are also detected by start timestamps.
func HasOrderedCorrections(list []*Histograms, usesStarts bool) bool {
	isAny := false
	for _, h := range list {
		isAny = isAny || h.isCorrectionAdded(usesStarts)
	}
	if !isAny {
		return false
	}
	var all layoutRange
	for _, h := range list {
		all.add(h.Layouts, h.First, h.First.Schema)
		all.add(h.Layouts, h.Last, h.Last.Schema-int32(h.Coarser))
		for _, correction := range []*histogram.FloatHistogram{h.Correction, h.StartCorrection} {
			if correction != nil {
				all.add(h.Layouts, correction, correction.Schema)
			}
		}
	}
	for _, h := range list {
		switch {
		case !h.isCorrectionAdded(usesStarts):
		case h.Layouts&LargeCounts != 0, all.differ() && h.Layouts&zeroOverlaps != 0,
			h.Layouts&thresholdsDiffer != 0 && h.Layouts&hasMoved != 0,
			all.mayMove() && (all.moves(h.Correction) || all.moves(h.StartCorrection)):
			return true
		}
	}
	return false
}

// layoutRange describes the layouts of multiple buckets.
type layoutRange struct {
	Layouts
	// last is the last histogram with exponential buckets, least the min schema, and threshold the max zero threshold.
	last      *histogram.FloatHistogram
	least     int32
	threshold float64
}

// add adds a bucket's histogram, whose schema counts as the given one.
func (r *layoutRange) add(l Layouts, h *histogram.FloatHistogram, schema int32) {
	r.Layouts |= l
	switch {
	case h.UsesCustomBuckets():
		return
	case r.last == nil:
		r.least = schema
	default:
		r.Layouts |= differences(r.last, h)
	}
	r.last, r.least, r.threshold = h, min(r.least, schema), max(r.threshold, h.ZeroThreshold)
}

func (r *layoutRange) differ() bool { return r.Layouts&(schemasDiffer|thresholdsDiffer) != 0 }

// mayMove reports whether the order of addition may determine which observations are moved into the zero bucket.
func (r *layoutRange) mayMove() bool {
	return r.Layouts&schemasDiffer != 0 && r.Layouts&thresholdsDiffer != 0
}

// moves reports whether observations of h, which may be nil, may be moved into the zero bucket.
func (r *layoutRange) moves(h *histogram.FloatHistogram) bool {
	return h != nil && !h.UsesCustomBuckets() && hasBelow(h.CopyToSchema(min(r.least, h.Schema)), r.threshold)
}

// isCorrectionAdded reports whether the corrections of the bucket consist of multiple histograms.
func (h *Histograms) isCorrectionAdded(usesStarts bool) bool {
	if !usesStarts {
		return h.Layouts&correctionsAdded != 0
	}
	return h.Layouts&(correctionsAdded|startCorrectionsAdded) != 0 || h.Correction != nil && h.StartCorrection != nil
}

// addLayouts adds the properties of the next histograms.
func (r *histogramRun) addLayouts(next *Histograms) {
	r.h.Layouts |= next.Layouts
	if r.h.Count > 0 {
		r.h.Layouts |= differences(r.h.Last, next.First)
	}
}

// finishLayouts completes the properties after the last histogram.
func (r *histogramRun) finishLayouts() {
	switch {
	case r.h.Layouts&thresholdsDiffer == 0:
	case r.unsummable, r.h.Layouts&schemasDiffer != 0 && hasBelow(r.sum, r.sum.ZeroThreshold):
		r.h.Layouts |= hasMoved
	}
}
