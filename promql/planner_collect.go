package promql

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// collector takes the series of a fragment, one by one in their order: into an aggregation, into the answer to the
// whole query, or as they are.
type collector struct {
	n      int // of the fragment's series
	budget *budget
	sum    *aggregator // nil: nothing is aggregated
	folded bool        // sum has some of the series
	// inner: the first series has histograms, so that the aggregation is left to the evaluator: most
	// often all have.
	inner  bool
	all    *whole // nil: the fragment isn't all of the query
	series []*fragmentSeries
	memory arena
	// order is that of the series, by the labels that are stored; nil: any will do.
	order *labelOrder
	// places are those that the collected series have among the fragment's, if they are to be in order.
	places []uint32
}

// add takes the result of the fragment's series at a place. It returns errHistograms where only a later series has histograms: the fragment must be computed again then.
func (c *collector) add(at uint32, metric labels.Labels, v *values) error {
	if c.sum != nil && !c.inner {
		c.inner = v.hists > 0 && !c.folded
		if !c.inner {
			c.folded = true
			return c.sum.add(at, metric, v)
		}
	}
	room := room{c.n, int(at)}
	if c.order != nil {
		c.places = append(makeRoom(c.places, room), at)
	}
	if c.all != nil && c.sum == nil {
		c.all.makeRoom(room)
		c.all.add(metric, 0, v.v, v.h, v.floats, v.hists)
	} else {
		c.series = append(makeRoom(c.series, room), c.memory.keep(metric, v))
	}
	return c.budget.charge(v.size)
}

// finish puts the collected series into result. It returns the answer to the whole query, or nil.
func (c *collector) finish(result *fragmentResult) *whole {
	switch {
	case len(c.places) < 2:
	case c.all != nil && c.sum == nil:
		c.all.sort(c.order, c.places)
	default:
		c.series = permuted(c.series, c.order.sorted(c.places))
	}
	result.series, result.inner = c.series, c.inner
	if c.inner {
		return nil
	}
	if c.sum != nil {
		result.series = c.aggregated()
		result.notes.Merge(c.sum.notes())
	}
	return c.all
}

// aggregated returns the results of the aggregation, or puts them into the answer to the whole query.
func (c *collector) aggregated() []*fragmentSeries {
	groups := c.sum.groups.len()
	if c.all != nil {
		c.all.grow(groups)
		c.sum.results(func(s fragmentSeries) { c.all.add(s.metric, s.from, s.v, s.h, len(s.v), len(s.h)) })
		return nil
	}
	list := make([]fragmentSeries, 0, groups)
	c.sum.results(func(s fragmentSeries) { list = append(list, s) })
	series := make([]*fragmentSeries, len(list))
	for i := range list {
		series[i] = &list[i]
	}
	return series
}

// firstRoom is up to how many elements a list grows as append lets it.
const firstRoom = 64

// room describes how far a fragment is computed: a list gets at most one element from each of its n series, of which next were read.
type room struct{ n, next int }

// makeRoom returns a list that has room for an element more. A list that is long already gets all the room that it is likely to need: append would
// copy it many times.
func makeRoom[T any](list []T, r room) []T {
	switch size := len(list); {
	case size < cap(list):
		return list
	case size < firstRoom:
		return slices.Grow(list, 1)
	default:
		likely := float64(size) * float64(r.n) / float64(r.next) * 1.05
		return slices.Grow(list, max(size/4, min(int(likely), r.n)-size, 1))
	}
}
