package promql

import (
	"cmp"
	"slices"
)

// sortedWindow holds the values of a window in order while the window moves over a series. It sorts only values that
// enter or leave. NaNs come first, as in Prometheus. If a window shares no value with the one before, its values stay
// unsorted until the next window shares values with it. Selecting the two values next to a quantile takes a fifth of
// the time of sorting.
type sortedWindow struct {
	values        []float64
	isUnsorted    bool // the values aren't sorted
	from, to      int  // the window: indices of the series' values
	in, out, next []float64
}

// moveTo changes the window to [from, to) of v. Neither from nor to may decrease, and v must stay the same, until the
// next reset.
func (w *sortedWindow) moveTo(v []float64, from, to int) {
	if from >= w.to {
		w.values, w.isUnsorted = append(w.values[:0], v[from:to]...), true
		w.from, w.to = from, to
		return
	}
	if w.isUnsorted {
		slices.Sort(w.values)
		w.isUnsorted = false
	}
	gone, kept := min(from, w.to), max(from, w.to)
	w.out = append(w.out[:0], v[w.from:gone]...)
	w.in = append(w.in[:0], v[kept:to]...)
	slices.Sort(w.out)
	slices.Sort(w.in)
	out, in, next := w.out, w.in, w.next[:0]
	for _, x := range w.values {
		if len(out) > 0 && cmp.Compare(x, out[0]) == 0 {
			out = out[1:]
			continue
		}
		for len(in) > 0 && cmp.Less(in[0], x) {
			next, in = append(next, in[0]), in[1:]
		}
		next = append(next, x)
	}
	w.values, w.next = append(next, in...), w.values
	w.from, w.to = from, to
}

// reset empties the window for the next series.
func (w *sortedWindow) reset() { w.values, w.isUnsorted, w.from, w.to = w.values[:0], false, 0, 0 }

// quantile returns the q-quantile of the values for q from 0 to 1, as Prometheus computes it. There must be at least
// one value. If some values are negative zeros, the sign of a zero may differ.
func (w *sortedWindow) quantile(q float64) float64 {
	lower, upper, weight := quantileRank(q, len(w.values))
	a, b := w.valuesAt(lower, upper)
	return a*(1-weight) + b*weight
}

// valuesAt returns the values at positions i and j in order. j is i or i+1.
func (w *sortedWindow) valuesAt(i, j int) (a, b float64) {
	if !w.isUnsorted {
		return w.values[i], w.values[j]
	}
	if a = selectNth(w.values, i); i == j {
		return a, a
	}
	return a, smallestOf(w.values[j:])
}
