package expand

import (
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// histograms returns the histograms of bucket i of b, and sets the number of resets that start timestamps have to show.
func (x *Expander) histograms(b *rollup.Buckets, i int) []*histogram.FloatHistogram {
	h := b.Histograms[i]
	if !x.UsesStarts || b.StartResets == nil || b.StartResets[i] == 0 || h.Count < b.Count[i] {
		return expandHistograms(h, int(b.Resets[i]), int(b.Changes[i]))
	}
	if mean := meanBetween(h); h.Count > 2 && b.Resets[i]+b.StartResets[i] == h.Count-1 && mean != nil {
		// The histograms are deltas.
		x.starts.wanted = int(h.Count)
		return append(repeat([]*histogram.FloatHistogram{h.First}, mean, int(h.Count)-2), h.Last)
	}
	all := *h
	x.starts.wanted = 0
	all.FirstReset = h.FirstReset || h.FirstStartReset
	switch {
	case h.StartCorrection == nil:
	case h.Correction == nil:
		all.Correction = h.StartCorrection
	default:
		all.Correction = h.Correction.Copy()
		if _, _, _, err := all.Correction.Add(h.StartCorrection); err != nil {
			all.Correction = h.Correction
		}
	}
	return expandHistograms(&all, int(b.Resets[i]+b.StartResets[i]), int(b.Changes[i]))
}

// expandHistograms returns h.Count histograms with the same first and last, and with the given number of resets and
// changes if possible. Counters have the same increase, and counters and gauges the same sum, see histogramFit. Where
// the bucket also has floats or both kinds of histograms, the sum is unknown, and only first and last are kept.
func expandHistograms(h *rollup.Histograms, resets, changes int) []*histogram.FloatHistogram {
	n := int(h.Count)
	if h.MixedKinds || n <= 2 {
		return append(repeat(nil, h.First, n-1), h.Last)
	}
	if h.Sum != nil || h.SumDropped {
		if list := fitHistograms(h, resets, changes); list != nil {
			return list
		}
	}
	return grow(nil, h.First, h.Last, n)
}

func repeat(list []*histogram.FloatHistogram, h *histogram.FloatHistogram, n int) []*histogram.FloatHistogram {
	for range n {
		list = append(list, h)
	}
	return list
}

// meanBetween returns the mean of the histograms between the first and the last; nil if it is unknown.
func meanBetween(h *rollup.Histograms) *histogram.FloatHistogram {
	if h.Sum == nil {
		return nil
	}
	mean := h.Sum.Copy()
	for _, end := range []*histogram.FloatHistogram{h.First, h.Last} {
		if _, _, _, err := mean.Sub(end); err != nil {
			return nil
		}
	}
	mean.Div(float64(h.Count - 2))
	mean.CounterResetHint = h.First.CounterResetHint
	return mean
}

// grow appends n > 0 histograms that change linearly from one to another. The last appended histogram equals to.
func grow(list []*histogram.FloatHistogram, from, to *histogram.FloatHistogram, n int) []*histogram.FloatHistogram {
	var by *histogram.FloatHistogram
	if n > 2 {
		by = to.Copy()
		if _, _, _, err := by.Sub(from); err != nil {
			by = nil
		}
	}
	for k := range n - 1 {
		f := from
		if k > 0 && by != nil {
			f = from.Copy()
			if _, _, _, err := f.Add(by.Copy().Mul(float64(k) / float64(n-1))); err != nil {
				f = from
			}
			f.CounterResetHint = from.CounterResetHint
		}
		list = append(list, f)
	}
	return append(list, to)
}

// appendBoth appends samples of bucket i of b, which has floats v and histograms hs. Each kind is consecutive, except
// that if the first and the last sample have the same kind, this kind is split in two.
func appendBoth(into *chunk.Samples, b *rollup.Buckets, i int, v []float64, hs []*histogram.FloatHistogram) {
	n, flags := len(v)+len(hs), b.Flags[i]
	floatsBefore, histogramsBefore := 0, 0
	switch first, last := flags&rollup.FirstIsHistogram != 0, flags&rollup.LastIsHistogram != 0; {
	case first && last:
		histogramsBefore = max(1, len(hs)/2)
	case first:
		histogramsBefore = len(hs)
	case last:
		floatsBefore = len(v)
	default:
		floatsBefore = max(1, len(v)/2)
	}
	for k := range n {
		t := timeOf(k, n, b.FirstT[i], b.LastT[i])
		float := floatsBefore > 0
		switch {
		case floatsBefore > 0:
			floatsBefore--
		case histogramsBefore > 0:
			histogramsBefore--
		case flags&rollup.FirstIsHistogram != 0: // then all floats, and then the remaining histograms
			float = len(v) > 0
		default:
			float = len(hs) == 0
		}
		if float {
			into.AppendFloat(t, 0, v[0])
			v = v[1:]
		} else {
			into.AppendHistogram(chunk.Histogram{T: t, Float: hs[0]})
			hs = hs[1:]
		}
	}
}
