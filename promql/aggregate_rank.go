package promql

import (
	"container/heap"
	"math"
	"sort"
)

// ranking holds the best series of a group at one step. It is a heap with the worst series on top. The evaluator uses
// the same heap, so both choose the same series among equal values. NaN is worse than every other value.
type ranking struct {
	entries []rankedValue
	// lowest is true if low values are better (bottomk).
	lowest bool
}

// rankedValue is a value of one series, with the index of the series in aggregator.members.
type rankedValue struct {
	v      float64
	member int
}

// Len implements heap.Interface.
func (r *ranking) Len() int { return len(r.entries) }

// Less implements heap.Interface.
func (r *ranking) Less(i, j int) bool {
	a, b := r.entries[i].v, r.entries[j].v
	switch {
	case math.IsNaN(a):
		return true
	case r.lowest:
		return a > b
	default:
		return a < b
	}
}

// Swap implements heap.Interface.
func (r *ranking) Swap(i, j int) { r.entries[i], r.entries[j] = r.entries[j], r.entries[i] }

// Push implements heap.Interface.
func (r *ranking) Push(x any) { r.entries = append(r.entries, *x.(*rankedValue)) }

// Pop implements heap.Interface.
func (r *ranking) Pop() any {
	last := r.entries[len(r.entries)-1]
	r.entries = r.entries[:len(r.entries)-1]
	return &last
}

// isBetter reports whether v is better than the worst entry and therefore replaces it.
func (r *ranking) isBetter(v float64) bool {
	worst := r.entries[0].v
	if math.IsNaN(worst) {
		return !math.IsNaN(v)
	}
	if r.lowest {
		return worst > v
	}
	return worst < v
}

// addRanked adds each value of a member to the ranking of its step, if the value is among the best k. It returns by how
// many the number of ranked values grew.
func (g *group) addRanked(v []float64, member int, k int64, lowest bool) (added int) {
	for i, f := range v {
		if isMissingValue(f) {
			continue
		}
		r := &g.best[i]
		r.lowest = lowest
		switch {
		case len(r.entries) == 0:
			// The evaluator pushes the first value onto a heap of the opposite order. With a single entry, the order
			// makes no difference.
			r.entries = append(r.entries, rankedValue{f, member})
			added++
		case int64(len(r.entries)) < k:
			heap.Push(r, &rankedValue{f, member})
			added++
		case r.isBetter(f):
			r.entries[0] = rankedValue{f, member}
			if k > 1 {
				heap.Fix(r, 0)
			}
		}
	}
	return added
}

// rankedSeries returns the chosen series, with their values at the steps at which they were chosen.
func (a *aggregator) rankedSeries() []*fragmentSeries {
	if a.n == 1 {
		return a.rankedAtOnlyStep()
	}
	for _, g := range a.groups.list {
		for i := range g.best {
			for _, e := range g.best[i].entries {
				m := a.members[e.member]
				if len(m.v) == 0 {
					m.from = i
				}
				for len(m.v) < i-m.from {
					m.v = append(m.v, missingValue)
				}
				m.v = append(m.v, e.v)
			}
		}
	}
	var out []*fragmentSeries
	for _, m := range a.members {
		if len(m.v) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// rankedAtOnlyStep is rankedSeries for a query with a single step. It returns the series of each group from best to
// worst.
func (a *aggregator) rankedAtOnlyStep() []*fragmentSeries {
	var out []*fragmentSeries
	for _, g := range a.groups.list {
		r := &g.best[0]
		if len(r.entries) > 1 {
			sort.Sort(sort.Reverse(r))
		}
		for _, e := range r.entries {
			m := a.members[e.member]
			m.v = append(m.v, e.v)
			out = append(out, m)
		}
	}
	return out
}
