package promql

import (
	"cmp"
	"slices"
)

// sortedWindow holds the values of a window in order while it moves over a series: those that come in and go out are sorted, not
// those that stay. NaNs come first, as in Prometheus. Where no value stays, none are sorted as long as the next window has none of them
// either: to select the two that a quantile lies between takes a fifth of the time.
type sortedWindow struct {
	values        []float64
	loose         bool // they aren't in order
	from, to      int  // of the series' values, the window that is held
	in, out, next []float64
}

// move makes it the window [from, to) of v. Both only grow from one call to the next; v stays the same from reset on.
func (w *sortedWindow) move(v []float64, from, to int) {
	if from >= w.to {
		w.values, w.loose = append(w.values[:0], v[from:to]...), true
		w.from, w.to = from, to
		return
	}
	if w.loose {
		slices.Sort(w.values)
		w.loose = false
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

// reset forgets the window: another series follows.
func (w *sortedWindow) reset() { w.values, w.loose, w.from, w.to = w.values[:0], false, 0, 0 }

// quantile is that of the held values, of which there is at least one, for q from 0 to 1, as Prometheus computes it, but
// for the sign of a zero where some values are negative zeros.
func (w *sortedWindow) quantile(q float64) float64 {
	lower, upper, weight := placeOf(q, len(w.values))
	a, b := w.at(lower, upper)
	return a*(1-weight) + b*weight
}

// at returns the values that come i-th and j-th in order, which are the same or follow each other.
func (w *sortedWindow) at(i, j int) (a, b float64) {
	if !w.loose {
		return w.values[i], w.values[j]
	}
	if a = nth(w.values, i); i == j {
		return a, a
	}
	return a, least(w.values[j:])
}
