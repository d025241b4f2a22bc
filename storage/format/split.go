package format

import (
	"cmp"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
)

const (
	// chunkSamples is the max number of floats in a chunk, and chunkHistogramBytes the approximate max size of its
	// histograms, so that the row stays below engine.MaxValue.
	chunkSamples        = 12 << 10
	chunkHistogramBytes = 128 << 10
)

// SplitSamples splits normalized samples into pieces, in order, whose chunks fit in one row each. In nearly all cases
// the only piece is samples itself.
func SplitSamples(samples *chunk.Samples) []*chunk.Samples {
	if len(samples.T) <= chunkSamples && countFitting(samples.H) == len(samples.H) {
		return []*chunk.Samples{samples}
	}
	var out []*chunk.Samples
	t, h := 0, 0
	for t < len(samples.T) || h < len(samples.H) {
		to := int64(MaxTime)
		if t+chunkSamples < len(samples.T) {
			to = min(to, samples.T[t+chunkSamples]-1)
		}
		if n := countFitting(samples.H[h:]); h+n < len(samples.H) {
			to = min(to, samples.H[h+n].T-1)
		}
		piece := &chunk.Samples{}
		for ; t < len(samples.T) && samples.T[t] <= to; t++ {
			var st int64
			if len(samples.ST) > 0 {
				st = samples.ST[t]
			}
			piece.AppendFloat(samples.T[t], st, samples.V[t])
		}
		n, _ := slices.BinarySearchFunc(samples.H[h:], to+1,
			func(x chunk.Histogram, t int64) int { return cmp.Compare(x.T, t) })
		piece.H = samples.H[h : h+n]
		h += n
		out = append(out, piece)
	}
	return out
}

// countFitting returns how many histograms from the start of hs fit in one chunk. It returns at least 1.
func countFitting(hs []chunk.Histogram) int {
	bytes := 0
	for i, h := range hs {
		// These are upper bounds: a bucket takes ten bytes, a span twice five, a boundary nine.
		if h.Int != nil {
			bytes += 64 + 10*(len(h.Int.PositiveBuckets)+len(h.Int.NegativeBuckets)+len(h.Int.PositiveSpans)+
				len(h.Int.NegativeSpans)+len(h.Int.CustomValues))
		} else {
			bytes += 64 + 10*(len(h.Float.PositiveBuckets)+len(h.Float.NegativeBuckets)+len(h.Float.PositiveSpans)+
				len(h.Float.NegativeSpans)+len(h.Float.CustomValues))
		}
		if i > 0 && bytes > chunkHistogramBytes {
			return i
		}
	}
	return len(hs)
}

// TimeBounds returns the first and last timestamp of non-empty, normalized samples.
func TimeBounds(s *chunk.Samples) (minT, maxT int64) {
	minT, maxT = MaxTime, -MaxTime
	if n := len(s.T); n > 0 {
		minT, maxT = s.T[0], s.T[n-1]
	}
	if n := len(s.H); n > 0 {
		minT, maxT = min(minT, s.H[0].T), max(maxT, s.H[n-1].T)
	}
	return minT, maxT
}
