package chunk

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// errBucketIndex means that the spans of a histogram exceed the range of bucket indexes.
var errBucketIndex = errors.New("chunk: the spans of the histogram exceed the range of bucket indices")

// CanonicalHistogram returns a copy of h in the form in which histograms are stored, or an error if h isn't a valid
// histogram. Spans and buckets, even empty ones, aren't changed: the existing buckets affect quantiles within the zero
// bucket, and remote read returns them. Otherwise:
//
//   - Empty slices become nil.
//   - A finer resolution than Prometheus supports is reduced to the finest supported one.
//   - The reset hints GaugeType and CounterReset are kept, and NotCounterReset becomes UnknownCounterReset.
//   - Of a stale marker, which is a histogram whose sum is a stale marker, only the sum is kept.
//   - A zero threshold and bounds of -0 become 0.
func CanonicalHistogram(h Histogram) (Histogram, error) {
	switch {
	case (h.Int == nil) == (h.Float == nil):
		return Histogram{}, errors.New("chunk: a sample must be either an integer or a float histogram")
	case h.isStale() && h.Int != nil:
		h.Int = &histogram.Histogram{Sum: h.Int.Sum}
		return h, nil
	case h.isStale():
		h.Float = &histogram.FloatHistogram{Sum: h.Float.Sum}
		return h, nil
	case h.Int != nil:
		return canonicalInt(h)
	default:
		return canonicalFloat(h)
	}
}

func canonicalInt(h Histogram) (Histogram, error) {
	if err := checkIndices(h.Int.PositiveSpans, h.Int.NegativeSpans); err != nil {
		return Histogram{}, err
	}
	c := *h.Int // not Copy, which would hide fields that custom buckets don't allow
	c.PositiveSpans, c.NegativeSpans = slices.Clone(c.PositiveSpans), slices.Clone(c.NegativeSpans)
	c.PositiveBuckets, c.NegativeBuckets = slices.Clone(c.PositiveBuckets), slices.Clone(c.NegativeBuckets)
	if isTooFine(c.Schema) {
		if err := c.ReduceResolution(histogram.ExponentialSchemaMax); err != nil {
			return Histogram{}, err
		}
	}
	if err := c.Validate(); err != nil {
		return Histogram{}, err
	}
	if err := checkComputable(c.ZeroThreshold, c.PositiveSpans, c.NegativeSpans); err != nil {
		return Histogram{}, err
	}
	c.CounterResetHint = storedHint(c.CounterResetHint, c.CounterResetHint == histogram.CounterReset)
	c.ZeroThreshold = positiveZero(c.ZeroThreshold)
	c.CustomValues = canonicalBounds(c.CustomValues)
	c.PositiveSpans, c.NegativeSpans = nilIfEmpty(c.PositiveSpans), nilIfEmpty(c.NegativeSpans)
	c.PositiveBuckets, c.NegativeBuckets = nilIfEmpty(c.PositiveBuckets), nilIfEmpty(c.NegativeBuckets)
	h.Int = &c
	return h, nil
}

func canonicalFloat(h Histogram) (Histogram, error) {
	if err := checkIndices(h.Float.PositiveSpans, h.Float.NegativeSpans); err != nil {
		return Histogram{}, err
	}
	c := *h.Float
	c.PositiveSpans, c.NegativeSpans = slices.Clone(c.PositiveSpans), slices.Clone(c.NegativeSpans)
	c.PositiveBuckets, c.NegativeBuckets = slices.Clone(c.PositiveBuckets), slices.Clone(c.NegativeBuckets)
	if isTooFine(c.Schema) {
		if err := c.ReduceResolution(histogram.ExponentialSchemaMax); err != nil {
			return Histogram{}, err
		}
	}
	if err := c.Validate(); err != nil {
		return Histogram{}, err
	}
	if err := checkComputable(c.ZeroThreshold, c.PositiveSpans, c.NegativeSpans); err != nil {
		return Histogram{}, err
	}
	c.CounterResetHint = storedHint(c.CounterResetHint, c.CounterResetHint == histogram.CounterReset)
	c.ZeroThreshold = positiveZero(c.ZeroThreshold)
	c.CustomValues = canonicalBounds(c.CustomValues)
	c.PositiveSpans, c.NegativeSpans = nilIfEmpty(c.PositiveSpans), nilIfEmpty(c.NegativeSpans)
	c.PositiveBuckets, c.NegativeBuckets = nilIfEmpty(c.PositiveBuckets), nilIfEmpty(c.NegativeBuckets)
	h.Float = &c
	return h, nil
}

// maxIndex bounds the indexes of buckets: the difference of any two indexes fits an int32, as Prometheus requires.
// Observations have indexes in [-275_000, 263_000] in the finest schema.
const maxIndex = 1 << 30

// CheckComputable returns an error if queries can't compute with a histogram: Prometheus' evaluator would loop forever
// or fail. CanonicalHistogram rejects these histograms now, but earlier releases stored them.
func (h Histogram) CheckComputable() error {
	switch {
	case h.isStale():
		return nil
	case h.Int != nil:
		return checkComputable(h.Int.ZeroThreshold, h.Int.PositiveSpans, h.Int.NegativeSpans)
	default:
		return checkComputable(h.Float.ZeroThreshold, h.Float.PositiveSpans, h.Float.NegativeSpans)
	}
}

func checkComputable(threshold float64, sides ...[]histogram.Span) error {
	if !(threshold >= 0 && threshold <= math.MaxFloat64) {
		return fmt.Errorf("the zero threshold is %v; it must be finite and not negative", threshold)
	}
	for _, spans := range sides {
		index := int64(0)
		for _, s := range spans {
			index += int64(s.Offset)
			if index < -maxIndex || index+int64(s.Length) > maxIndex {
				return fmt.Errorf("a span of %d buckets from index %d exceeds the maximum index of ±%d",
					s.Length, index, maxIndex)
			}
			index += int64(s.Length)
		}
	}
	return nil
}

// isTooFine reports whether a schema is finer than the schemas that Prometheus supports. Newer releases of Prometheus
// may send such a schema.
func isTooFine(schema int32) bool {
	return schema > histogram.ExponentialSchemaMax && schema <= histogram.ExponentialSchemaMaxReserved
}

func positiveZero(v float64) float64 {
	if v == 0 {
		return 0
	}
	return v
}

func nilIfEmpty[E any](s []E) []E {
	if len(s) == 0 {
		return nil
	}
	return s
}

func canonicalBounds(bounds []float64) []float64 {
	for i, b := range bounds {
		if b == 0 && math.Signbit(b) { // the bounds ascend, so only one is 0
			bounds = slices.Clone(bounds)
			bounds[i] = 0
			break
		}
	}
	return nilIfEmpty(bounds)
}

// checkIndices returns an error unless the index of every bucket is an int32.
func checkIndices(sides ...[]histogram.Span) error {
	for _, spans := range sides {
		index := int64(0)
		for _, s := range spans {
			index += int64(s.Offset) + int64(s.Length)
			if index < math.MinInt32 || index > math.MaxInt32 {
				return errBucketIndex
			}
		}
	}
	return nil
}

// The encoding of a single histogram, for the staging log and for comparisons:
//
//	+---------+--------+----------------------------------------------+
//	| version | flags  | message io.prometheus.write.v2.Histogram     |
//	| 1 byte  | 1 byte | protobuf, fields in ascending order          |
//	+---------+--------+----------------------------------------------+
//	  flags bit 0: the sum is −0, which protobuf omits like 0
const (
	histogramVersion = 1

	histogramNegativeZeroSum = 0x01 // flag
)

// AppendHistogramBytes appends h. Two canonical histograms have the same bytes only if they are equal bit for bit.
func AppendHistogramBytes(dst []byte, h Histogram) []byte {
	var message writev2.Histogram
	var sum float64
	if h.Int != nil {
		message, sum = writev2.FromIntHistogram(h.ST, h.T, h.Int), h.Int.Sum
	} else {
		message, sum = writev2.FromFloatHistogram(h.ST, h.T, h.Float), h.Float.Sum
	}
	var flags byte
	if sum == 0 && math.Signbit(sum) {
		flags |= histogramNegativeZeroSum
	}
	dst = append(dst, histogramVersion, flags)
	size := message.Size()
	dst = slices.Grow(dst, size)
	n, err := message.MarshalToSizedBuffer(dst[len(dst) : len(dst)+size])
	if err != nil || n != size {
		panic(fmt.Sprintf("chunk: a histogram of %d bytes took %d: %v", size, n, err)) // the message is our own
	}
	return dst[:len(dst)+size]
}

// ParseHistogram is the inverse of AppendHistogramBytes. It returns ErrCorrupt for bytes that aren't a valid histogram.
func ParseHistogram(b []byte) (Histogram, error) {
	if len(b) < 2 || b[0] != histogramVersion {
		return Histogram{}, fmt.Errorf("%w: histogram of unknown version", ErrCorrupt)
	}
	flags := b[1]
	var message writev2.Histogram
	if err := message.Unmarshal(b[2:]); err != nil {
		return Histogram{}, fmt.Errorf("%w: histogram: %w", ErrCorrupt, err)
	}
	h := Histogram{T: message.Timestamp, ST: message.StartTimestamp}
	var err error
	if message.IsFloatHistogram() {
		f := message.ToFloatHistogram()
		f.PositiveSpans, f.NegativeSpans = nilIfEmpty(f.PositiveSpans), nilIfEmpty(f.NegativeSpans)
		if flags&histogramNegativeZeroSum != 0 {
			f.Sum = math.Copysign(0, -1)
		}
		h.Float = f
		err = checkParsed(h, f.Validate, f.CounterResetHint, f.PositiveSpans, f.NegativeSpans)
	} else {
		i := message.ToIntHistogram()
		i.PositiveSpans, i.NegativeSpans = nilIfEmpty(i.PositiveSpans), nilIfEmpty(i.NegativeSpans)
		if flags&histogramNegativeZeroSum != 0 {
			i.Sum = math.Copysign(0, -1)
		}
		h.Int = i
		err = checkParsed(h, i.Validate, i.CounterResetHint, i.PositiveSpans, i.NegativeSpans)
	}
	if err != nil {
		return Histogram{}, fmt.Errorf("%w: histogram: %w", ErrCorrupt, err)
	}
	return h, nil
}

func checkParsed(h Histogram, validate func() error, hint histogram.CounterResetHint, spans ...[]histogram.Span) error {
	if hint > histogram.GaugeType {
		return fmt.Errorf("unknown reset hint %d", hint)
	}
	if err := checkIndices(spans...); err != nil {
		return err
	}
	if h.isStale() {
		return nil
	}
	return validate()
}
