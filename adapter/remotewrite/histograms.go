package remotewrite

import (
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/cassia-db/cassia/storage"
)

// maxHistogramBytes bounds a histogram on the wire. Two bytes may become a span of 40 in the generated types,
// so it is checked before they see it. Thousands of buckets fit; Prometheus' scrapes make at most some hundreds.
const maxHistogramBytes = 64 << 10

var errHistogramTooLarge = fmt.Errorf("more than %d bytes in one histogram", maxHistogramBytes)

// histogramV1 reads a prometheus.Histogram.
func (d *decoder) histogramV1(b []byte) error {
	if len(b) > maxHistogramBytes {
		return d.refuseLargeHistogram()
	}
	p := &d.histV1
	*p = prompb.Histogram{}
	if err := p.Unmarshal(b); err != nil {
		return errMalformed
	}
	p.ResetHint = prompb.Histogram_ResetHint(knownHint(int32(p.ResetHint)))
	if p.IsFloatHistogram() {
		return d.histogram(p.Timestamp, 0, nil, p.ToFloatHistogram(), len(b))
	}
	return d.histogram(p.Timestamp, 0, p.ToIntHistogram(), nil, len(b))
}

// histogramV2 reads an io.prometheus.write.v2.Histogram.
func (d *decoder) histogramV2(b []byte) error {
	if len(b) > maxHistogramBytes {
		return d.refuseLargeHistogram()
	}
	p := &d.histV2
	*p = writev2.Histogram{}
	if err := p.Unmarshal(b); err != nil {
		return errMalformed
	}
	p.ResetHint = writev2.Histogram_ResetHint(knownHint(int32(p.ResetHint)))
	if p.IsFloatHistogram() {
		return d.histogram(p.Timestamp, p.StartTimestamp, nil, p.ToFloatHistogram(), len(b))
	}
	return d.histogram(p.Timestamp, p.StartTimestamp, p.ToIntHistogram(), nil, len(b))
}

func (d *decoder) refuseLargeHistogram() error {
	if d.series == nil {
		d.refusals[d.refusal].samples++
		return nil
	}
	return d.refuseSample(errHistogramTooLarge, 0)
}

// knownHint returns a counter reset hint as it is, and as unknown where it isn't one that we know.
func knownHint(hint int32) int32 {
	if hint < 0 || hint > int32(histogram.GaugeType) {
		return int32(histogram.UnknownCounterReset)
	}
	return hint
}

// repairHistogram refuses what later steps can't bear, and brings a resolution that is higher than Prometheus
// stores down to the highest, as its receiver does. The rest is for the store to validate.
func repairHistogram(h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	var err error
	if h != nil {
		err = errors.Join(checkSpans(h.PositiveSpans, len(h.PositiveBuckets)), checkSpans(h.NegativeSpans, len(h.NegativeBuckets)))
		if err == nil && tooFine(h.Schema) {
			err = h.ReduceResolution(histogram.ExponentialSchemaMax)
		}
	} else {
		err = errors.Join(checkSpans(fh.PositiveSpans, len(fh.PositiveBuckets)), checkSpans(fh.NegativeSpans, len(fh.NegativeBuckets)))
		if err == nil && tooFine(fh.Schema) {
			err = fh.ReduceResolution(histogram.ExponentialSchemaMax)
		}
	}
	if err != nil {
		return &storage.InvalidHistogramError{Err: err}
	}
	return nil
}

func tooFine(schema int32) bool {
	return histogram.IsExponentialSchemaReserved(schema) && schema > histogram.ExponentialSchemaMax
}

// checkSpans says why spans can't describe this many buckets: the lengths must add up to it, only the first
// offset may be negative, and every bucket's index must fit in 32 bits.
func checkSpans(spans []histogram.Span, buckets int) error {
	var index, length int64
	for i, s := range spans {
		if i > 0 && s.Offset < 0 {
			return histogram.ErrHistogramSpanNegativeOffset
		}
		index += int64(s.Offset) + int64(s.Length)
		length += int64(s.Length)
		if index > math.MaxInt32 {
			return errors.New("the index of a bucket is out of range")
		}
	}
	if length != int64(buckets) {
		return histogram.ErrHistogramSpansBucketsMismatch
	}
	return nil
}
