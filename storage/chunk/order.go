package chunk

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/value"
)

// Of two samples with the same timestamp, the larger one is kept, independent of the order of arrival:
//
//	stale marker, as a float  <  stale marker, as a histogram
//	<  other NaN, by bits     <  numbers, -0 below 0
//	<  histogram, by the bytes of AppendHistogramBytes
//
// Of two equal samples, the one with the larger start timestamp is kept.
const (
	rankStale = iota
	rankStaleHistogram
	rankNaN
	rankNumber
	rankHistogram
)

// Normalize sorts the samples by time and keeps one sample per timestamp, a float or a histogram.
func (s *Samples) Normalize() {
	if !isStrictlyAscending(s.T) {
		s.normalizeFloats()
	}
	if len(s.H) == 0 {
		return
	}
	if !isAscending(s.H) {
		s.normalizeHistograms()
	}
	if len(s.T) > 0 {
		s.removeMixed()
	}
}

func isStrictlyAscending(t []int64) bool {
	for i := 1; i < len(t); i++ {
		if t[i] <= t[i-1] {
			return false
		}
	}
	return true
}

func isAscending(h []Histogram) bool {
	for i := 1; i < len(h); i++ {
		if h[i].T <= h[i-1].T {
			return false
		}
	}
	return true
}

// floatSample is a float during sorting.
type floatSample struct {
	t, st int64
	v     float64
}

func compareFloatSamples(a, b *floatSample) int {
	if a.t != b.t {
		return cmp.Compare(a.t, b.t)
	}
	if c := compareFloats(a.v, b.v); c != 0 {
		return c
	}
	return cmp.Compare(a.st, b.st)
}

func (s *Samples) normalizeFloats() {
	memory := make([]floatSample, 2*len(s.T))
	all := memory[:len(s.T)]
	for i := range all {
		all[i] = floatSample{t: s.T[i], st: startOf(s.ST, i), v: s.V[i]}
	}
	all = mergeSort(all, memory[len(s.T):])
	s.T, s.V, s.ST = s.T[:0], s.V[:0], s.ST[:0]
	for i, e := range all {
		if i+1 < len(all) && all[i+1].t == e.t {
			continue // the last sample of each timestamp is the largest
		}
		s.AppendFloat(e.t, e.st, e.v)
	}
}

// mergeSort sorts all, using other, which must have the same length, as a buffer. It returns the slice with the result.
// It merges runs that are already sorted: late samples, or the samples of another chunk, form few long runs.
func mergeSort(all, other []floatSample) []floatSample {
	for {
		runs, out := 0, other[:0]
		for rest := all; len(rest) > 0; runs++ {
			a := rest[:sortedRun(rest)]
			rest = rest[len(a):]
			b := rest[:sortedRun(rest)]
			rest = rest[len(b):]
			out = appendMerged(out, a, b)
		}
		all, other = out, all
		if runs <= 1 {
			return all
		}
	}
}

// sortedRun returns the length of the sorted prefix.
func sortedRun(x []floatSample) int {
	n := min(1, len(x))
	for n < len(x) && compareFloatSamples(&x[n-1], &x[n]) <= 0 {
		n++
	}
	return n
}

// appendMerged appends the sorted slices a and b, merged.
func appendMerged(dst, a, b []floatSample) []floatSample {
	for len(a) > 0 && len(b) > 0 {
		if compareFloatSamples(&a[0], &b[0]) <= 0 {
			dst, a = append(dst, a[0]), a[1:]
		} else {
			dst, b = append(dst, b[0]), b[1:]
		}
	}
	return append(append(dst, a...), b...)
}

func (s *Samples) normalizeHistograms() {
	var c histogramComparer
	slices.SortFunc(s.H, func(a, b Histogram) int {
		if order := cmp.Compare(a.T, b.T); order != 0 {
			return order
		}
		return c.compare(a, b)
	})
	n := 0
	for i, h := range s.H {
		if i+1 < len(s.H) && s.H[i+1].T == h.T {
			continue
		}
		s.H[n] = h
		n++
	}
	clear(s.H[n:])
	s.H = s.H[:n]
}

// removeMixed removes the float or the histogram at each timestamp that has both. The timestamps of each kind must be
// sorted and unique.
func (s *Samples) removeMixed() {
	if s.T[len(s.T)-1] < s.H[0].T || s.H[len(s.H)-1].T < s.T[0] {
		return
	}
	floats, histograms, i := 0, 0, 0
	keep := func() {
		s.T[floats], s.V[floats] = s.T[i], s.V[i]
		if len(s.ST) > 0 {
			s.ST[floats] = s.ST[i]
		}
		floats++
		i++
	}
	for _, h := range s.H {
		for i < len(s.T) && s.T[i] < h.T {
			keep()
		}
		if i < len(s.T) && s.T[i] == h.T {
			if floatRank(s.V[i]) > histogramRank(h) {
				continue
			}
			i++
		}
		s.H[histograms] = h
		histograms++
	}
	for i < len(s.T) {
		keep()
	}
	clear(s.H[histograms:])
	s.T, s.V, s.H = s.T[:floats], s.V[:floats], s.H[:histograms]
	if len(s.ST) > 0 {
		s.ST = s.ST[:floats]
		s.dropZeroST()
	}
}

// Subtract removes the samples that other also contains, bit for bit. Both must be normalized.
func (s *Samples) Subtract(other *Samples) {
	i, kept := 0, 0
	for j, t := range s.T {
		for i < len(other.T) && other.T[i] < t {
			i++
		}
		if i < len(other.T) && other.T[i] == t && startOf(other.ST, i) == startOf(s.ST, j) &&
			math.Float64bits(other.V[i]) == math.Float64bits(s.V[j]) {
			continue
		}
		s.T[kept], s.V[kept] = t, s.V[j]
		if len(s.ST) > 0 {
			s.ST[kept] = s.ST[j]
		}
		kept++
	}
	s.T, s.V = s.T[:kept], s.V[:kept]
	if len(s.ST) > 0 {
		s.ST = s.ST[:kept]
		s.dropZeroST()
	}
	var c histogramComparer
	i = 0
	s.H = slices.DeleteFunc(s.H, func(h Histogram) bool {
		for i < len(other.H) && other.H[i].T < h.T {
			i++
		}
		return i < len(other.H) && other.H[i].T == h.T && c.compare(other.H[i], h) == 0
	})
}

// Covers reports whether s contains every sample of other, bit for bit. Both must be normalized.
func (s *Samples) Covers(other *Samples) bool {
	var rest Samples
	rest.AppendAll(other)
	rest.Subtract(s)
	return rest.Len() == 0
}

func startOf(st []int64, i int) int64 {
	if len(st) == 0 {
		return 0
	}
	return st[i]
}

func floatRank(v float64) int {
	switch {
	case v == v:
		return rankNumber
	case value.IsStaleNaN(v):
		return rankStale
	default:
		return rankNaN
	}
}

// compareFloats returns a negative number if b wins over a, and 0 only if they are equal bit for bit.
func compareFloats(a, b float64) int {
	rank := floatRank(a)
	if c := cmp.Compare(rank, floatRank(b)); c != 0 {
		return c
	}
	if rank == rankNaN {
		return cmp.Compare(math.Float64bits(a), math.Float64bits(b))
	}
	if rank == rankStale || a == b {
		// Of equal numbers, only zeros can have different bits; -0 is smaller.
		return -cmp.Compare(math.Float64bits(a), math.Float64bits(b))
	}
	return cmp.Compare(a, b)
}

func histogramRank(h Histogram) int {
	if h.isStale() {
		return rankStaleHistogram
	}
	return rankHistogram
}

// isStale reports whether the histogram is a stale marker.
func (h Histogram) isStale() bool {
	if h.Int != nil {
		return value.IsStaleNaN(h.Int.Sum)
	}
	return value.IsStaleNaN(h.Float.Sum)
}

// histogramComparer compares histograms by their bytes, with reusable buffers.
type histogramComparer struct{ a, b []byte }

// compare returns a negative number if b wins over a, and 0 only if both are equal except for T.
func (c *histogramComparer) compare(a, b Histogram) int {
	if order := cmp.Compare(histogramRank(a), histogramRank(b)); order != 0 {
		return order
	}
	if a.Int != b.Int || a.Float != b.Float {
		c.a = AppendHistogramBytes(c.a[:0], Histogram{Int: a.Int, Float: a.Float})
		c.b = AppendHistogramBytes(c.b[:0], Histogram{Int: b.Int, Float: b.Float})
		if order := bytes.Compare(c.a, c.b); order != 0 {
			return order
		}
	}
	return cmp.Compare(a.ST, b.ST)
}
