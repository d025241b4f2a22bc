package remotewrite

import (
	"fmt"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// maxHistogramBytes bounds a histogram on the wire, before generated code decodes it: two bytes may become a span of 40
// bytes in memory. Thousands of buckets fit; Prometheus' scrapes produce a few hundred at most.
const maxHistogramBytes = 64 << 10

var errHistogramTooLarge = fmt.Errorf("more than %d bytes in one histogram", maxHistogramBytes)

// decodeHistogramV1 decodes a prometheus.Histogram.
func (d *decoder) decodeHistogramV1(b []byte) error {
	if len(b) > maxHistogramBytes {
		return d.rejectLargeHistogram()
	}
	p := &d.histV1
	*p = prompb.Histogram{}
	if err := p.Unmarshal(b); err != nil {
		return errMalformed
	}
	p.ResetHint = prompb.Histogram_ResetHint(isKnownHint(int32(p.ResetHint)))
	if p.IsFloatHistogram() {
		return d.histogram(p.Timestamp, 0, nil, p.ToFloatHistogram(), len(b))
	}
	return d.histogram(p.Timestamp, 0, p.ToIntHistogram(), nil, len(b))
}

// decodeHistogramV2 decodes an io.prometheus.write.v2.Histogram.
func (d *decoder) decodeHistogramV2(b []byte) error {
	if len(b) > maxHistogramBytes {
		return d.rejectLargeHistogram()
	}
	p := &d.histV2
	*p = writev2.Histogram{}
	if err := p.Unmarshal(b); err != nil {
		return errMalformed
	}
	p.ResetHint = writev2.Histogram_ResetHint(isKnownHint(int32(p.ResetHint)))
	if p.IsFloatHistogram() {
		return d.histogram(p.Timestamp, p.StartTimestamp, nil, p.ToFloatHistogram(), len(b))
	}
	return d.histogram(p.Timestamp, p.StartTimestamp, p.ToIntHistogram(), nil, len(b))
}

// rejectLargeHistogram counts a histogram above maxHistogramBytes as rejected.
func (d *decoder) rejectLargeHistogram() error {
	if d.series == nil {
		d.rejections[d.rejection].samples++
	} else {
		d.countRejected(reasonHistogramTooLarge, func() string {
			return fmt.Sprintf("%s: %v", d.describe(), errHistogramTooLarge)
		})
	}
	return nil
}

// isKnownHint returns hint, or UnknownCounterReset if hint isn't a defined value. The histogram package's type of hints
// is one byte: converted to it, 257 would become CounterReset.
func isKnownHint(hint int32) int32 {
	if hint < 0 || hint > int32(histogram.GaugeType) {
		return int32(histogram.UnknownCounterReset)
	}
	return hint
}
