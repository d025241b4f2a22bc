package storage

import (
	"cmp"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
)

const (
	// chunkSamples and chunkHistograms bound a chunk, so that its row stays far below engine.MaxValue.
	chunkSamples    = 16 << 10
	chunkHistograms = 512
)

// pieces cuts normalized samples so that each piece fits a row. Nearly always there is one.
func pieces(samples *chunk.Samples) []*chunk.Samples {
	if len(samples.T) <= chunkSamples && len(samples.H) <= chunkHistograms {
		return []*chunk.Samples{samples}
	}
	var out []*chunk.Samples
	t, h := 0, 0
	for t < len(samples.T) || h < len(samples.H) {
		to := int64(maxTime)
		if t+chunkSamples < len(samples.T) {
			to = min(to, samples.T[t+chunkSamples]-1)
		}
		if h+chunkHistograms < len(samples.H) {
			to = min(to, samples.H[h+chunkHistograms].T-1)
		}
		piece := &chunk.Samples{}
		for ; t < len(samples.T) && samples.T[t] <= to; t++ {
			var st int64
			if len(samples.ST) > 0 {
				st = samples.ST[t]
			}
			piece.AppendFloat(samples.T[t], st, samples.V[t])
		}
		n, _ := slices.BinarySearchFunc(samples.H[h:], to+1, func(x chunk.Histogram, t int64) int { return cmp.Compare(x.T, t) })
		piece.H = samples.H[h : h+n]
		h += n
		out = append(out, piece)
	}
	return out
}

// boundsOf returns the first and last timestamp of non-empty, normalized samples.
func boundsOf(s *chunk.Samples) (minT, maxT int64) {
	minT, maxT = maxTime, -maxTime
	if n := len(s.T); n > 0 {
		minT, maxT = s.T[0], s.T[n-1]
	}
	if n := len(s.H); n > 0 {
		minT, maxT = min(minT, s.H[0].T), max(maxT, s.H[n-1].T)
	}
	return minT, maxT
}
