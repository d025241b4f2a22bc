package expand

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
)

// The leading components of a vector, which precede the buckets.
const (
	vectorSum   = iota // sum of observations
	vectorCount        // number of observations that are in no bucket
	vectorZero         // zero bucket
	vectorBuckets
)

// setLayout sets the layout of all the histograms together; nil histograms are ignored.
func (f *histogramFit) setLayout(all ...*histogram.FloatHistogram) bool {
	for _, h := range all {
		if h == nil {
			continue
		}
		empty := h.Copy().Mul(0)
		empty.Count, empty.Sum, empty.CounterResetHint = 0, 0, f.first.CounterResetHint
		if f.layout == nil {
			f.layout = empty
		} else if _, _, _, err := f.layout.Add(empty); err != nil {
			return false
		}
	}
	if f.layout.UsesCustomBuckets() {
		n := len(f.layout.CustomValues) + 1
		f.layout.PositiveSpans = []histogram.Span{{Length: uint32(n)}}
		f.layout.PositiveBuckets = make([]float64, n)
	}
	return true
}

// vector returns h as a vector, or nil if h is nil or has another layout than f.
func (f *histogramFit) vector(h *histogram.FloatHistogram) []float64 {
	if h == nil {
		return nil
	}
	sum := f.layout.Copy()
	if _, _, _, err := sum.Add(h); err != nil {
		return nil
	}
	if sum.UsesCustomBuckets() { // Reconciled bounds leave out empty buckets.
		v := make([]float64, vectorBuckets+len(f.layout.PositiveBuckets))
		for it := sum.PositiveBucketIterator(); it.Next(); {
			v[vectorBuckets+int(it.At().Index)] = it.At().Count
		}
		v[vectorSum], v[vectorCount] = sum.Sum, withoutBucket(sum.Count, v)
		return v
	}
	if len(sum.PositiveBuckets) != len(f.layout.PositiveBuckets) ||
		len(sum.NegativeBuckets) != len(f.layout.NegativeBuckets) {
		return nil
	}
	v := append(append([]float64{sum.Sum, 0, sum.ZeroCount}, sum.PositiveBuckets...), sum.NegativeBuckets...)
	v[vectorCount] = withoutBucket(sum.Count, v)
	return v
}

// withoutBucket returns the number of observations that are in none of a vector's buckets, such as observations of NaN.
// It ignores rounding errors, which would make the count of an empty histogram negative.
func withoutBucket(count float64, v []float64) float64 {
	if rest := count - add(v[vectorZero:]); math.Abs(rest) > 1e-13*count {
		return rest
	}
	return 0
}

// histogram returns the histogram of a vector. If adding and subtracting infinite sums of observations made its sum
// NaN, its sum becomes the infinite one of all histograms.
func (f *histogramFit) histogram(v []float64) *histogram.FloatHistogram {
	h := f.layout.Copy()
	if math.IsNaN(v[vectorSum]) && f.sum != nil {
		v[vectorSum] = f.sum[vectorSum]
	}
	h.Sum, h.Count, h.ZeroCount = v[vectorSum], v[vectorCount]+add(v[vectorZero:]), v[vectorZero]
	copy(h.NegativeBuckets, v[vectorBuckets+copy(h.PositiveBuckets, v[vectorBuckets:]):])
	return h
}

func add(v []float64) (sum float64) {
	for _, x := range v {
		sum += x
	}
	return sum
}

// observations returns the number of observations of the histogram with vector v.
func observations(v []float64) float64 { return add(v[vectorCount:]) }

// mix returns a + s·b.
func mix(a []float64, s float64, b []float64) []float64 {
	sum := make([]float64, len(a))
	for c := range a {
		sum[c] = a[c] + s*b[c]
	}
	return sum
}

// equalVectors reports whether two vectors are equal. It ignores the sum of observations.
func equalVectors(a, b []float64) bool {
	for c := vectorCount; c < len(a); c++ {
		if a[c] != b[c] {
			return false
		}
	}
	return true
}
