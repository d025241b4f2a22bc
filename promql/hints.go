package promql

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
)

// deriveHint returns the counter reset hint of a native histogram. before is the previous sample if it is a histogram,
// else nil.
//
// Prometheus' storage keeps one hint per chunk, and starts a new chunk if the counter was reset or can't be compared.
// Within a chunk it returns NotCounterReset. For the first histogram of a chunk it always returns UnknownCounterReset,
// even after a reset that it detected, because the previous chunk may be missing or changed when the chunk is read
// (prometheus issue 15346). The evaluator then compares the buckets. This package derives the same hints from the
// samples alone: Gauge for a gauge, NotCounterReset if Prometheus would have appended to the same chunk,
// UnknownCounterReset otherwise. There is one difference: Prometheus also starts a new chunk when a chunk reaches its
// maximum size. This doesn't depend on the values, so it is ignored here.
//
// The rules are the same as in appendable in tsdb/chunkenc/histogram.go and float_histogram.go of Prometheus.
func deriveHint(before, h *chunk.Histogram) histogram.CounterResetHint {
	hint, sum := hintAndSum(h)
	if hint == histogram.GaugeType {
		return histogram.GaugeType
	}
	if before == nil || hint == histogram.CounterReset || value.IsStaleNaN(sum) {
		return histogram.UnknownCounterReset
	}
	hintBefore, sumBefore := hintAndSum(before)
	if hintBefore == histogram.GaugeType || value.IsStaleNaN(sumBefore) {
		return histogram.UnknownCounterReset
	}
	if isContinuation(before, h) {
		return histogram.NotCounterReset
	}
	return histogram.UnknownCounterReset
}

func hintAndSum(h *chunk.Histogram) (histogram.CounterResetHint, float64) {
	if h.Int != nil {
		return h.Int.CounterResetHint, h.Int.Sum
	}
	return h.Float.CounterResetHint, h.Float.Sum
}

// isContinuation reports whether b is comparable with a and no count in b is lower than in a.
func isContinuation(a, b *chunk.Histogram) bool {
	if a.Int != nil && b.Int != nil {
		return continuesInt(a.Int, b.Int)
	}
	if a.Float != nil && b.Float != nil {
		return continuesFloat(a.Float, b.Float)
	}
	return false
}

func continuesInt(a, b *histogram.Histogram) bool {
	if b.Count < a.Count || b.Schema != a.Schema || b.ZeroThreshold != a.ZeroThreshold || b.ZeroCount < a.ZeroCount {
		return false
	}
	if histogram.IsCustomBucketsSchema(b.Schema) && !histogram.CustomBucketBoundsMatch(a.CustomValues, b.CustomValues) {
		return false
	}
	return hasNoLowerCount(newBuckets(a.PositiveSpans, a.PositiveBuckets, true),
		newBuckets(b.PositiveSpans, b.PositiveBuckets, true)) &&
		hasNoLowerCount(newBuckets(a.NegativeSpans, a.NegativeBuckets, true),
			newBuckets(b.NegativeSpans, b.NegativeBuckets, true))
}

func continuesFloat(a, b *histogram.FloatHistogram) bool {
	if b.Count < a.Count || b.Schema != a.Schema || b.ZeroThreshold != a.ZeroThreshold || b.ZeroCount < a.ZeroCount {
		return false
	}
	if histogram.IsCustomBucketsSchema(b.Schema) && !histogram.CustomBucketBoundsMatch(a.CustomValues, b.CustomValues) {
		return false
	}
	return hasNoLowerCount(newBuckets(a.PositiveSpans, a.PositiveBuckets, false),
		newBuckets(b.PositiveSpans, b.PositiveBuckets, false)) &&
		hasNoLowerCount(newBuckets(a.NegativeSpans, a.NegativeBuckets, false),
			newBuckets(b.NegativeSpans, b.NegativeBuckets, false))
}

// hasNoLowerCount reports whether every bucket of a that isn't empty exists in b with at least the same count.
func hasNoLowerCount[N int64 | float64](a, b bucketIterator[N]) bool {
	inA, inB := a.next(), b.next()
	for inA {
		switch {
		case inB && b.index < a.index:
			inB = b.next()
		case inB && b.index == a.index:
			if a.count > b.count {
				return false
			}
			inA, inB = a.next(), b.next()
		case a.count != 0:
			return false
		default:
			inA = a.next()
		}
	}
	return true
}

// bucketIterator iterates over the buckets on one side of a histogram.
type bucketIterator[N int64 | float64] struct {
	spans  []histogram.Span
	counts []N
	// deltas is true if each count is stored as the difference to the previous count, as in integer histograms.
	deltas bool

	left  uint32 // buckets left in the span before spans[0]
	index int64
	count N
}

func newBuckets[N int64 | float64](spans []histogram.Span, counts []N, deltas bool) bucketIterator[N] {
	return bucketIterator[N]{spans: spans, counts: counts, deltas: deltas, index: -1}
}

func (b *bucketIterator[N]) next() bool {
	b.index++
	for b.left == 0 {
		if len(b.spans) == 0 {
			return false
		}
		b.index += int64(b.spans[0].Offset)
		b.left = b.spans[0].Length
		b.spans = b.spans[1:]
	}
	if len(b.counts) == 0 {
		return false // The spans have more buckets than there are counts. Such a histogram isn't stored.
	}
	b.left--
	if b.deltas {
		b.count += b.counts[0]
	} else {
		b.count = b.counts[0]
	}
	b.counts = b.counts[1:]
	return true
}
