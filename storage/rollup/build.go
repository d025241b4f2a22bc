package rollup

import (
	"math"
	"slices"
	"sort"

	"github.com/cassia-db/cassia/storage/chunk"
)

// AppendEvery appends the buckets of the normalized samples s to into. Each bucket is width milliseconds wide and ends
// at a multiple of width. into must have all columns or be empty, and must end before the first sample.
func AppendEvery(into *Buckets, s *chunk.Samples, width int64) {
	AppendCells(into, s, nil, width)
}

// AppendCells is like AppendEvery, but also cuts buckets at edges, which are ascending and in milliseconds. A sample at
// an edge belongs to the bucket that ends there.
func AppendCells(into *Buckets, s *chunk.Samples, edges []int64, width int64) {
	b := builder{into: into}
	b.appendCells(s, edges, width)
}

func (b *builder) appendCells(s *chunk.Samples, edges []int64, width int64) {
	floats, histograms := 0, 0
	for floats < len(s.T) || histograms < len(s.H) {
		start, end := bucketAround(nextTime(s, floats, histograms), width)
		start, end, edges = narrowToEdges(start, end, nextTime(s, floats, histograms), edges)
		floatsEnd, histogramsEnd := floats, histograms
		for floatsEnd < len(s.T) && s.T[floatsEnd] <= end {
			floatsEnd++
		}
		for histogramsEnd < len(s.H) && s.H[histogramsEnd].T <= end {
			histogramsEnd++
		}
		b.appendCell(start, end, s, floats, floatsEnd, s.H[histograms:histogramsEnd])
		floats, histograms = floatsEnd, histogramsEnd
	}
}

// nextTime returns the earlier of the times of float number float and histogram number hist.
func nextTime(s *chunk.Samples, float, hist int) int64 {
	switch {
	case hist >= len(s.H):
		return s.T[float]
	case float >= len(s.T):
		return s.H[hist].T
	default:
		return min(s.T[float], s.H[hist].T)
	}
}

// bucketAround returns the edges of the bucket of width milliseconds that contains t. At the limits of int64 it is
// narrower.
func bucketAround(t, width int64) (start, end int64) {
	past := t % width
	if past < 0 {
		past += width
	}
	if past == 0 {
		past = width
	}
	start, end = t-past, t-past+width
	if start > t {
		start = math.MinInt64
	}
	if end < t {
		end = math.MaxInt64
	}
	return start, end
}

// narrowToEdges narrows a bucket around t to the nearest edges. rest starts with the last edge before t.
func narrowToEdges(start, end, t int64, edges []int64) (from, to int64, rest []int64) {
	if len(edges) == 0 {
		return start, end, edges
	}
	next := sort.Search(len(edges), func(i int) bool { return edges[i] >= t })
	if next > 0 {
		start = max(start, edges[next-1])
	}
	if next < len(edges) {
		end = min(end, edges[next])
	}
	return start, end, edges[max(next-1, 0):]
}

// builder appends buckets to into and reuses memory between them.
type builder struct {
	into  *Buckets
	alive []chunk.Histogram // histograms that aren't stale markers
	// isCounter is set for counters: their moments and lines aren't computed.
	isCounter bool
}

// appendCell appends the bucket of floats [from, to) and histograms hs, which aren't both empty.
func (b *builder) appendCell(start, end int64, s *chunk.Samples, from, to int, hs []chunk.Histogram) {
	b.alive = b.alive[:0]
	for _, h := range hs {
		if !isStale(h) {
			b.alive = append(b.alive, h)
		}
	}
	if len(b.alive) > 0 && slices.ContainsFunc(s.V[from:to], func(v float64) bool { return !isStaleFloat(v) }) {
		b.cellOfBoth(start, end, s, from, to, hs)
		return
	}
	i := b.into.add(start, end)
	f := b.fillFloats(i, s, from, to)
	stale := f.endsStale
	if len(b.alive) > 0 {
		b.fillHistograms(i, b.alive)
	}
	if len(hs) > 0 && (from == to || hs[len(hs)-1].T > s.T[to-1]) {
		stale = isStale(hs[len(hs)-1])
	}
	if stale {
		b.into.Flags[i] |= EndsStale
	}
}

// cellOfBoth appends a bucket of floats and histograms, by merging buckets of one sample each.
func (b *builder) cellOfBoth(start, end int64, s *chunk.Samples, from, to int, hs []chunk.Histogram) {
	both := chunk.Samples{T: s.T[from:to], V: s.V[from:to], H: hs}
	if len(s.ST) > 0 {
		both.ST = s.ST[from:to]
	}
	var each Buckets
	AppendEvery(&each, &both, 1)
	coarsenOne(b.into, &each, 0, each.Len(), start, end)
	i := b.into.Len() - 1
	if !b.isCounter {
		return
	}
	if b.into.Moment[i] > 0 {
		b.into.Moment[i] = unknownMoment
	}
	b.into.forgetLine(i)
}

// add appends an empty bucket and returns its index.
func (b *Buckets) add(start, end int64) int {
	i := len(b.End)
	b.Start, b.End, b.Flags = append(b.Start, start), append(b.End, end), append(b.Flags, 0)
	b.Count = append(b.Count, 0)
	b.FirstT, b.LastT = append(b.FirstT, 0), append(b.LastT, 0)
	if b.FirstST != nil {
		b.FirstST, b.LastST = append(b.FirstST, 0), append(b.LastST, 0)
		b.StartCorrection, b.StartResets = append(b.StartCorrection, 0), append(b.StartResets, 0)
	}
	b.First, b.Last = append(b.First, 0), append(b.Last, 0)
	b.Min, b.Max = append(b.Min, 0), append(b.Max, 0)
	b.Sum, b.SumLow = append(b.Sum, 0), append(b.SumLow, 0)
	b.Moment, b.Correction = append(b.Moment, 0), append(b.Correction, 0)
	b.Comoment, b.TimeSum, b.TimeSquares = append(b.Comoment, 0), append(b.TimeSum, 0), append(b.TimeSquares, 0)
	b.Resets, b.Changes = append(b.Resets, 0), append(b.Changes, 0)
	if b.Histograms != nil {
		b.Histograms = append(b.Histograms, nil)
	}
	if b.Sketches != nil {
		b.Sketches = append(b.Sketches, nil)
	}
	return i
}

// setHistograms sets the histograms of bucket i, and creates the column if needed.
func (b *Buckets) setHistograms(i int, h *Histograms) {
	if b.Histograms == nil {
		b.Histograms = make([]*Histograms, len(b.End), cap(b.End))
	}
	b.Histograms[i] = h
}

// Len returns the number of buckets.
func (b *Buckets) Len() int { return len(b.End) }

// Reset empties b and keeps its memory for the next buckets. Columns that may be nil become nil.
func (b *Buckets) Reset() {
	*b = Buckets{
		spare: b.spareStarts(),
		Start: b.Start[:0], End: b.End[:0], Flags: b.Flags[:0], Count: b.Count[:0],
		FirstT: b.FirstT[:0], LastT: b.LastT[:0], First: b.First[:0], Last: b.Last[:0],
		Min: b.Min[:0], Max: b.Max[:0], Sum: b.Sum[:0], SumLow: b.SumLow[:0], Moment: b.Moment[:0],
		Wholes: b.Wholes[:0], Comoment: b.Comoment[:0], TimeSum: b.TimeSum[:0], TimeSquares: b.TimeSquares[:0],
		Correction: b.Correction[:0], Resets: b.Resets[:0], Changes: b.Changes[:0],
	}
}
