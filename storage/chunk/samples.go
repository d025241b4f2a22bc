package chunk

import (
	"math"
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/histogram"
)

// Samples holds samples of one series as columns: floats and native histograms. After Normalize, no timestamp is in
// both.
type Samples struct {
	// T are the timestamps of the floats in milliseconds, and V their values, with the same length.
	T []int64
	V []float64
	// ST are the start timestamps of the floats in milliseconds, 0 if unknown; nil (or empty) if all are 0.
	ST []int64
	// H are the native histograms.
	H []Histogram
}

// Histogram is a native histogram sample: exactly one of Int and Float is set. Copies of a Histogram share the value it
// points to, which must not be changed.
type Histogram struct {
	T, ST int64
	Int   *histogram.Histogram
	Float *histogram.FloatHistogram
}

// Len returns the number of samples of both kinds.
func (s *Samples) Len() int { return len(s.T) + len(s.H) }

// Reset removes all samples and keeps the memory for new ones.
func (s *Samples) Reset() {
	clear(s.H) // its pointers would keep histograms in memory
	s.T, s.V, s.ST, s.H = s.T[:0], s.V[:0], s.ST[:0], s.H[:0]
}

// AppendFloat adds a float sample. t and st are milliseconds; a start timestamp st of 0 means unknown.
func (s *Samples) AppendFloat(t, st int64, v float64) {
	if st != 0 && len(s.ST) == 0 {
		s.ST = appendZeros(s.ST, len(s.T))
	}
	if st != 0 || len(s.ST) > 0 {
		s.ST = append(s.ST, st)
	}
	s.T = append(s.T, t)
	s.V = append(s.V, v)
}

// AppendHistogram adds a histogram sample, which must be canonical (see CanonicalHistogram).
func (s *Samples) AppendHistogram(h Histogram) { s.H = append(s.H, h) }

// Canonicalize converts the histograms to their canonical form. It removes each invalid histogram and calls refused
// with the reason. It also removes samples in which neither Int nor Float is set.
func (s *Samples) Canonicalize(refused func(error)) {
	kept := s.H[:0]
	for _, h := range s.H {
		if h.Int == nil && h.Float == nil {
			continue
		}
		c, err := CanonicalHistogram(h)
		if err != nil {
			refused(err)
			continue
		}
		kept = append(kept, c)
	}
	clear(s.H[len(kept):])
	s.H = kept
}

// AppendAll appends the samples of other. Histograms are shared; floats are copied.
func (s *Samples) AppendAll(other *Samples) {
	for i, t := range other.T {
		s.AppendFloat(t, startOf(other.ST, i), other.V[i])
	}
	s.H = append(s.H, other.H...)
}

// Clip keeps the samples with minT <= t <= maxT in milliseconds. s must be normalized.
func (s *Samples) Clip(minT, maxT int64) {
	lo, hi := bounds(len(s.T), func(i int) int64 { return s.T[i] }, minT, maxT)
	if lo > 0 || hi < len(s.T) {
		s.T = slices.Delete(s.T[:hi], 0, lo)
		s.V = slices.Delete(s.V[:hi], 0, lo)
		if len(s.ST) > 0 {
			s.ST = slices.Delete(s.ST[:hi], 0, lo)
			s.dropZeroST()
		}
	}
	lo, hi = bounds(len(s.H), func(i int) int64 { return s.H[i].T }, minT, maxT)
	if lo > 0 || hi < len(s.H) {
		clear(s.H[hi:])
		s.H = slices.Delete(s.H[:hi], 0, lo)
	}
}

// bounds returns the half-open range of indexes of the times in [minT, maxT]. at(i) returns time i of n; the times must
// ascend.
func bounds(n int, at func(int) int64, minT, maxT int64) (lo, hi int) {
	if n == 0 || minT > maxT {
		return 0, 0
	}
	if at(0) < minT {
		lo = sort.Search(n, func(i int) bool { return at(i) >= minT })
	}
	hi = n
	if at(n-1) > maxT {
		hi = sort.Search(n, func(i int) bool { return at(i) > maxT })
	}
	return lo, max(lo, hi)
}

// MaxTimeUntil returns the max timestamp ≤ at of samples in any order, math.MinInt64 if there are none.
func (s *Samples) MaxTimeUntil(at int64) int64 {
	newest := int64(math.MinInt64)
	for _, t := range s.T {
		if t <= at {
			newest = max(newest, t)
		}
	}
	for i := range s.H {
		if t := s.H[i].T; t <= at {
			newest = max(newest, t)
		}
	}
	return newest
}

// dropZeroST removes ST if all start timestamps are unknown.
func (s *Samples) dropZeroST() {
	for _, st := range s.ST {
		if st != 0 {
			return
		}
	}
	s.ST = s.ST[:0]
}

// timeRange returns the first and the last timestamp. s must be normalized and not empty.
func (s *Samples) timeRange() (minT, maxT int64) {
	switch {
	case len(s.H) == 0:
		return s.T[0], s.T[len(s.T)-1]
	case len(s.T) == 0:
		return s.H[0].T, s.H[len(s.H)-1].T
	default:
		return min(s.T[0], s.H[0].T), max(s.T[len(s.T)-1], s.H[len(s.H)-1].T)
	}
}

func appendZeros(dst []int64, n int) []int64 {
	dst = slices.Grow(dst, n+1)[:len(dst)+n]
	clear(dst[len(dst)-n:])
	return dst
}
