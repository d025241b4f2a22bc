package rollup

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/chunk"
)

// histograms returns the histograms of bucket i, and sets the number of resets that start timestamps have to show.
func (x *Expander) histograms(b *Buckets, i int) []*histogram.FloatHistogram {
	h := b.Histograms[i]
	if !x.UsesStarts || b.StartResets == nil || b.StartResets[i] == 0 || h.Count < b.Count[i] {
		return expandHistograms(h)
	}
	if mean := meanBetween(h); h.Count > 2 && b.Resets[i]+b.StartResets[i] == h.Count-1 && mean != nil {
		// They are deltas.
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
	return expandHistograms(&all)
}

// expandHistograms returns h.Count histograms with the same first and last. Gauges have the same sum. Counters have the
// same increase. Without resets they also have the same sum; with resets they grow to the value before the reset, fall
// to 0 and grow again.
func expandHistograms(h *Histograms) []*histogram.FloatHistogram {
	n := int(h.Count)
	switch {
	case h.MixedKinds || n <= 2:
		return append(repeat(nil, h.First, n-1), h.Last)
	case h.First.CounterResetHint == histogram.GaugeType:
		if mean := meanBetween(h); mean != nil {
			return append(repeat([]*histogram.FloatHistogram{h.First}, mean, n-2), h.Last)
		}
		return grow(nil, h.First, h.Last, n)
	case h.Correction == nil && !h.FirstReset:
		return growToSum(h)
	}
	nothing := &histogram.FloatHistogram{
		Schema: h.Last.Schema - int32(h.Coarser), ZeroThreshold: h.Last.ZeroThreshold,
		CustomValues: h.Last.CustomValues,
	}
	list, peak := []*histogram.FloatHistogram(nil), h.Correction
	switch {
	case h.FirstReset && peak == nil:
		list = append(list, h.First)
	case h.FirstReset && n > 3:
		list = grow(append(list, h.First), nothing, peak, stepsToPeak(peak.Count, h.Last.Count, n-2))
	case peak.Equals(h.First):
		list = append(list, peak)
	case n > 3:
		list = grow(list, h.First, peak, 1+stepsToPeak(peak.Count-h.First.Count, h.Last.Count, n-2))
	default: // There are too few samples for an empty histogram.
		list = append(list, h.First, peak)
	}
	if h.Coarser > 0 || n-len(list) < 2 { // Growth in coarse buckets can't become fine again without a reset.
		return append(repeat(list, nothing, n-1-len(list)), h.Last)
	}
	return grow(list, nothing, h.Last, n-len(list))
}

// stepsToPeak returns the number of the n steps before a reset, assuming equal growth per step before and after it.
func stepsToPeak(before, after float64, n int) int {
	share := 0.5
	if before > 0 && after >= 0 {
		share = before / (before + after)
	}
	return max(1, min(int(math.Round(float64(n)*share)), n-1))
}

func repeat(list []*histogram.FloatHistogram, h *histogram.FloatHistogram, n int) []*histogram.FloatHistogram {
	for range n {
		list = append(list, h)
	}
	return list
}

// meanBetween returns the mean of the histograms between the first and the last; nil if it is unknown.
func meanBetween(h *Histograms) *histogram.FloatHistogram {
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

// growToSum returns the histograms of a counter without resets: a line whose inner values are shifted to match the sum
// or, if the shifted line would fall, equal inner values.
func growToSum(h *Histograms) []*histogram.FloatHistogram {
	list := grow(nil, h.First, h.Last, int(h.Count))
	mean := meanBetween(h)
	if mean == nil {
		return list
	}
	between := list[1 : len(list)-1]
	off := mean.Copy()
	for _, f := range between {
		if _, _, _, err := off.Sub(f.Copy().Div(float64(len(between)))); err != nil {
			return list
		}
	}
	moved := []*histogram.FloatHistogram{h.First}
	for _, f := range between {
		f = f.Copy()
		if _, _, _, err := f.Add(off); err != nil {
			return list
		}
		f.CounterResetHint = histogram.UnknownCounterReset
		moved = append(moved, f)
	}
	moved = append(moved, h.Last)
	if !moved[1].DetectReset(h.First) && !h.Last.DetectReset(moved[len(moved)-2]) {
		return moved
	}
	return append(repeat(moved[:1], mean, len(between)), h.Last)
}

// grow appends n > 0 histograms that change linearly from one to another. A single histogram is the last one.
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

// appendBoth appends samples of bucket i, which has floats v and histograms hs. Each kind is consecutive, except that
// if the first and the last sample have the same kind, this kind is split in two.
func (b *Buckets) appendBoth(into *chunk.Samples, i int, v []float64, hs []*histogram.FloatHistogram) {
	n, flags := len(v)+len(hs), b.Flags[i]
	floatsBefore, histogramsBefore := 0, 0
	switch first, last := flags&FirstIsHistogram != 0, flags&LastIsHistogram != 0; {
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
		case flags&FirstIsHistogram != 0: // then all floats, and then the remaining histograms
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
