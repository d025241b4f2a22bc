package rollup

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/cassia-db/cassia/storage/chunk"
)

// expandHistograms appends n histograms: with resets they grow to the value before it, fall to nothing, and grow again.
func expandHistograms(into *chunk.Samples, h *Histograms, n int, first, last int64) {
	add := func(k int, f *histogram.FloatHistogram) {
		into.AppendHistogram(chunk.Histogram{T: timeOf(k, n, first, last), Float: f})
	}
	nothing := emptied(h.Last)
	from, at, left := h.First, 0, n
	if h.Correction != nil && n > 2 {
		peak := h.Correction
		grown := !peak.Equals(h.First)
		if steps := grownIn(h, n); grown && n > 3 {
			grow(h.First, peak, steps+1, func(k int, f *histogram.FloatHistogram) { add(at+k, f) })
			at += steps + 1
		} else {
			add(0, h.First)
			at++
			if grown { // There is no place for nothing.
				add(1, peak)
				add(2, h.Last)
				return
			}
		}
		from, left = nothing, n-at
	}
	grow(from, h.Last, left, func(k int, f *histogram.FloatHistogram) { add(at+k, f) })
}

// grownIn returns after how many steps of n histograms there is the one before the reset, if counts rise as fast before it as after.
func grownIn(h *Histograms, n int) int {
	share := 0.5
	if before, after := h.Correction.Count-h.First.Count, h.Last.Count; before > 0 && after >= 0 {
		share = before / (before + after)
	}
	return max(1, min(int(math.Round(float64(n-2)*share)), n-3)) // Then there is nothing, and after it the last.
}

// grow yields n histograms from one to another, n > 0; where there is one, it is the last.
func grow(from, to *histogram.FloatHistogram, n int, yield func(int, *histogram.FloatHistogram)) {
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
			f.CounterResetHint = histogram.UnknownCounterReset
		}
		yield(k, f)
	}
	yield(n-1, to)
}

// emptied returns a histogram of no observations, with the buckets of another one.
func emptied(h *histogram.FloatHistogram) *histogram.FloatHistogram {
	e := h.Copy()
	e.Count, e.Sum, e.ZeroCount = 0, 0, 0
	clear(e.PositiveBuckets)
	clear(e.NegativeBuckets)
	e.CounterResetHint = histogram.UnknownCounterReset
	return e
}
