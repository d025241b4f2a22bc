// Package layouts describes the layouts of native histograms by traits, which show whether a sum of histograms depends
// on the order of addition. Package rollup stores the traits of each bucket's histograms. Package promql/bucketfn adds
// up the sums of buckets only if the traits show that Prometheus, which adds all histograms one by one, would have the
// same result.
//
// Prometheus adds two histograms with different zero thresholds by moving the observations below the larger threshold
// into the zero bucket, and two histograms with different schemas by merging buckets of the finer one. Each of these
// alone gives the same sum in any order, but both together may count observations twice. If a histogram has
// observations in a bucket inside its own zero bucket, these observations are moved, kept or dropped, depending on the
// histogram that it is added to. Custom bounds are reconciled in any order.
package layouts

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
)

// Traits is a set of properties of native histograms.
type Traits uint8

// The elements of a set. Values are stored and must never be reused.
const (
	// SchemasDiffer means that the schemas of the histograms differ. ThresholdsDiffer means that their zero thresholds
	// differ.
	SchemasDiffer Traits = 1 << iota
	ThresholdsDiffer
	// HasMoved means that zero thresholds differ, and that adding the histograms moves observations into the zero
	// bucket. If schemas also differ, it may mean only that another order of addition may move observations.
	HasMoved
	// ZeroOverlaps means that a histogram has observations in a bucket inside its zero bucket.
	ZeroOverlaps
	// Large means that a finite value of a histogram is so large that a sum with it may overflow.
	Large
	// CorrectionsAdded means that the correction of a bucket is the sum of multiple histograms, and
	// StartCorrectionsAdded that the correction for resets that only start timestamps show is.
	CorrectionsAdded
	StartCorrectionsAdded

	// All has all elements.
	All Traits = 1<<iota - 1
)

// Of returns the properties of one histogram. Values above largest, in absolute value, are large.
func Of(h *histogram.FloatHistogram, largest float64) (t Traits) {
	isLarge := func(v float64) bool { return math.Abs(v) > largest && !math.IsInf(v, 0) }
	if isLarge(h.Sum) || isLarge(h.Count) || isLarge(h.ZeroCount) || slices.ContainsFunc(h.PositiveBuckets, isLarge) ||
		slices.ContainsFunc(h.NegativeBuckets, isLarge) {
		t |= Large
	}
	if hasZeroOverlap(h) {
		t |= ZeroOverlaps
	}
	return t
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

// MovedBetween returns HasMoved if adding a and b moves observations into the zero bucket, and otherwise 0. Histograms
// with custom bounds have no zero bucket.
func MovedBetween(a, b *histogram.FloatHistogram) Traits {
	if a.UsesCustomBuckets() || b.UsesCustomBuckets() {
		return 0
	}
	if a.ZeroThreshold > b.ZeroThreshold {
		a, b = b, a
	}
	if a.ZeroThreshold < b.ZeroThreshold && hasBelow(a, b.ZeroThreshold) {
		return HasMoved
	}
	return 0
}

// Differences returns the properties in which two histograms differ.
func Differences(a, b *histogram.FloatHistogram) (t Traits) {
	if a.UsesCustomBuckets() || b.UsesCustomBuckets() {
		return 0
	}
	if a.Schema != b.Schema {
		t |= SchemasDiffer
	}
	if a.ZeroThreshold != b.ZeroThreshold {
		t |= ThresholdsDiffer
	}
	return t
}

// WithSum completes the properties of a bucket, given the sum of its histograms. known is false if the sum is unknown.
func (t Traits) WithSum(sum *histogram.FloatHistogram, known bool) Traits {
	if t&ThresholdsDiffer != 0 && (!known || t&SchemasDiffer != 0 && hasBelow(sum, sum.ZeroThreshold)) {
		t |= HasMoved
	}
	return t
}

// Joined describes the layouts of the native histograms in multiple rollup buckets.
type Joined struct {
	Traits
	// last is the last added histogram with exponential buckets. least is the min schema of all added histograms with
	// exponential buckets, and threshold is their max zero threshold.
	last      *histogram.FloatHistogram
	least     int32
	threshold float64
}

// Add adds the histogram h of a rollup bucket. t contains the properties of the bucket. schema is used instead of h's
// schema.
func (j *Joined) Add(t Traits, h *histogram.FloatHistogram, schema int32) {
	j.Traits |= t
	switch {
	case h.UsesCustomBuckets():
		return
	case j.last == nil:
		j.least = schema
	default:
		j.Traits |= Differences(j.last, h)
	}
	j.last, j.least, j.threshold = h, min(j.least, schema), max(j.threshold, h.ZeroThreshold)
}

// Differ reports whether the schemas or the zero thresholds of the histograms differ.
func (j *Joined) Differ() bool { return j.Traits&(SchemasDiffer|ThresholdsDiffer) != 0 }

// MayMove reports whether the order of addition may determine which observations are moved into the zero bucket.
func (j *Joined) MayMove() bool { return j.Traits&SchemasDiffer != 0 && j.Traits&ThresholdsDiffer != 0 }

// Moves reports whether observations of h, which may be nil, may be moved into the zero bucket.
func (j *Joined) Moves(h *histogram.FloatHistogram) bool {
	return h != nil && !h.UsesCustomBuckets() && hasBelow(h.CopyToSchema(min(j.least, h.Schema)), j.threshold)
}
