package bucketfntest

import (
	"math"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/chunk"
)

// observedKinds are the kinds of series whose native histograms are computed from generated observations.
var observedKinds = []string{
	"histograms of changing zero thresholds", "gauge histograms of changing zero thresholds",
	"histograms of changing schemas and zero thresholds", "gauge histograms that overlap their zero buckets",
	"histograms that overlap their zero buckets", "large gauge histograms",
}

// zeroThresholds includes thresholds inside buckets and at their bounds.
var zeroThresholds = []float64{0, 1e-128, 0.001, 0.25, 0.3, 0.5, 0.7, 0.9, 0.95, 1, 2}

// nextObserved generates the next histogram of observations. Their number grows until a reset.
func (s *SeriesGenerator) nextObserved() {
	r := s.Rand
	if r.IntN(8) == 0 {
		s.sort = r.IntN(8)
		if r.IntN(2) == 0 {
			s.observed = nil
		}
	}
	for range r.IntN(4) {
		v := math.Exp2(8*r.Float64() - 5)
		if r.IntN(3) == 0 {
			v = -v
		}
		s.observed = append(s.observed, v)
	}
	schema, threshold := int32(1), zeroThresholds[(3*s.sort+r.IntN(2))%len(zeroThresholds)]
	if strings.Contains(s.Kind, "schemas") {
		schema = int32(s.sort % 3)
	}
	h := observedHistogram(s.observed, schema, threshold, strings.Contains(s.Kind, "overlap"))
	if strings.Contains(s.Kind, "gauge") {
		h.CounterResetHint = histogram.GaugeType
	}
	if s.Kind == "large gauge histograms" && r.IntN(10) == 0 {
		h.Mul(1e306)
	}
	s.H = &chunk.Histogram{Float: h}
}

// observedHistogram returns a histogram of observations. If overlaps is set, observations below the zero threshold are
// in buckets other than the zero bucket.
func observedHistogram(observed []float64, schema int32, threshold float64, overlaps bool) *histogram.FloatHistogram {
	const buckets = 80
	h := &histogram.FloatHistogram{Schema: schema, ZeroThreshold: threshold,
		PositiveSpans:   []histogram.Span{{Offset: -buckets / 2, Length: buckets}},
		PositiveBuckets: make([]float64, buckets),
		NegativeSpans:   []histogram.Span{{Offset: -buckets / 2, Length: buckets}},
		NegativeBuckets: make([]float64, buckets),
	}
	for _, v := range observed {
		h.Count++
		h.Sum += v
		if !overlaps && math.Abs(v) <= threshold {
			h.ZeroCount++
			continue
		}
		counts := h.PositiveBuckets
		if v < 0 {
			counts = h.NegativeBuckets
		}
		counts[int(math.Ceil(math.Log2(math.Abs(v))*math.Exp2(float64(schema))))+buckets/2]++
	}
	return h.Compact(0)
}

// mayDependOnOrder reports whether the sum of histograms may depend on the order of addition.
func mayDependOnOrder(p Points) bool {
	overlaps, schemas, thresholds := false, map[int32]bool{}, map[float64]bool{}
	least, threshold := int32(math.MaxInt32), 0.
	for _, x := range p.Histograms {
		h := x.H
		if math.Abs(h.Sum) > 1e280 && !math.IsInf(h.Sum, 0) || h.Count > 1e280 {
			return true
		}
		if !h.UsesCustomBuckets() {
			schemas[h.Schema], thresholds[h.ZeroThreshold] = true, true
			least, threshold = min(least, h.Schema), max(threshold, h.ZeroThreshold)
			overlaps = overlaps || isObservedBelow(h, h.Schema, h.ZeroThreshold, true)
		}
	}
	if overlaps && len(schemas)+len(thresholds) > 2 {
		return true
	}
	for _, x := range p.Histograms {
		if len(thresholds) > 1 && !x.H.UsesCustomBuckets() && isObservedBelow(x.H, least, threshold, false) {
			return true
		}
	}
	return false
}

// isObservedBelow reports whether a histogram, converted to a schema, has observations in a bucket below threshold. If
// wholly is set, the whole bucket is below it.
func isObservedBelow(h *histogram.FloatHistogram, schema int32, threshold float64, wholly bool) bool {
	h = h.CopyToSchema(schema)
	for _, it := range []histogram.BucketIterator[float64]{h.PositiveBucketIterator(), h.NegativeBucketIterator()} {
		for it.Next() {
			b := it.At()
			near, far := min(math.Abs(b.Lower), math.Abs(b.Upper)), max(math.Abs(b.Lower), math.Abs(b.Upper))
			if b.Count != 0 && (wholly && far <= threshold || !wholly && near < threshold) {
				return true
			}
		}
	}
	return false
}
