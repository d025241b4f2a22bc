package rollup

import (
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
)

// histograms fills bucket i with histograms, or marks it where floats or they themselves don't allow that.
func (b *builder) histograms(i int, hs []chunk.Histogram, floats bool) {
	b.alive = b.alive[:0]
	for _, h := range hs {
		if !isStale(h) {
			b.alive = append(b.alive, h)
		}
	}
	if len(b.alive) == 0 {
		return
	}
	into, first := b.into, asFloat(b.alive[0])
	if floats || isGauge(first) || !computable(b.alive) {
		into.Flags[i] |= NotSimple
		return
	}
	last, h, resets, changes := first, &Histograms{First: first}, uint32(0), uint32(0)
	for _, sample := range b.alive[1:] {
		current := asFloat(sample)
		if isGauge(current) || !alike(first, current) || !h.step(last, current, &resets, &changes) {
			into.Flags[i] |= NotSimple
			return
		}
		last = current
	}
	h.Last = last
	newest := b.alive[len(b.alive)-1]
	into.Count[i] = uint32(len(b.alive))
	into.FirstT[i], into.LastT[i] = b.alive[0].T, newest.T
	into.setStarts(i, b.alive[0].ST, newest.ST)
	into.Resets[i], into.Changes[i] = resets, changes
	into.setHistograms(i, h)
}

// computable reports whether queries can compute with all of the histograms.
func computable(hs []chunk.Histogram) bool {
	return !slices.ContainsFunc(hs, func(h chunk.Histogram) bool { return h.Computable() != nil })
}

// step goes from one histogram to the next as Prometheus' rate, resets and changes do. It reports whether they
// could be added.
func (h *Histograms) step(before, current *histogram.FloatHistogram, resets, changes *uint32) bool {
	if !current.Equals(before) {
		*changes++
	}
	if !current.DetectReset(before) {
		return true
	}
	*resets++
	return h.correct(before)
}

// correct adds to the correction, which is its own; it reports whether that was possible.
func (h *Histograms) correct(by *histogram.FloatHistogram) bool {
	if h.Correction == nil {
		h.Correction = by.Copy()
		h.Correction.CounterResetHint = histogram.UnknownCounterReset
		return true
	}
	_, _, _, err := h.Correction.Add(by)
	h.Correction.CounterResetHint = histogram.UnknownCounterReset
	return err == nil
}

// alike reports whether histograms have the same buckets and bounds, so that nothing has to be reconciled.
func alike(a, b *histogram.FloatHistogram) bool {
	return a.Schema == b.Schema && a.ZeroThreshold == b.ZeroThreshold &&
		(!a.UsesCustomBuckets() || histogram.CustomBucketBoundsMatch(a.CustomValues, b.CustomValues))
}

func isGauge(h *histogram.FloatHistogram) bool { return h.CounterResetHint == histogram.GaugeType }

// asFloat returns the histogram that a query sees. Whether the sender reported a reset doesn't matter: queries find
// that out from the histogram before, as they do with Prometheus' own storage.
func asFloat(h chunk.Histogram) *histogram.FloatHistogram {
	f := h.Float
	if h.Int != nil {
		f = h.Int.ToFloat(nil)
	}
	if f.CounterResetHint == histogram.CounterReset {
		unhinted := *f // the rest is shared: nobody changes it
		unhinted.CounterResetHint = histogram.UnknownCounterReset
		return &unhinted
	}
	return f
}

func isStale(h chunk.Histogram) bool {
	if h.Int != nil {
		return value.IsStaleNaN(h.Int.Sum)
	}
	return value.IsStaleNaN(h.Float.Sum)
}
