package promql

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// collector receives the series of a fragment in their order, and adds each to an aggregation, to the answer to the
// whole query, or to the result.
type collector struct {
	n      int // number of the fragment's series
	budget *budget
	sum    *aggregator // nil: no aggregation
	folded bool        // sum contains some of the series
	// inner is true if the first series has histograms. The aggregation is then left to the evaluator, because usually
	// all series have histograms.
	inner  bool
	all    *wholeAnswer // nil: the fragment isn't the whole query
	series []*fragmentSeries
	memory arena
	// order is the order of the series by their stored labels. nil: any order is correct.
	order *labelOrder
	// places are the positions of the collected series among the fragment's series. They are kept if the result must be
	// sorted.
	places []uint32
}

// add adds the result of the series at a position of the fragment. It returns errHasHistograms if a series has
// histograms and the first one had none. The fragment must then be computed again.
func (c *collector) add(at uint32, metric labels.Labels, v *values) error {
	if c.sum != nil && !c.inner {
		c.inner = v.hists > 0 && !c.folded
		if !c.inner {
			c.folded = true
			return c.sum.add(at, metric, v)
		}
	}
	room := readProgress{c.n, int(at)}
	if c.order != nil {
		c.places = append(makeRoom(c.places, room), at)
	}
	if c.all != nil && c.sum == nil {
		c.all.makeRoom(room)
		c.all.add(metric, 0, v.v, v.h, v.floats, v.hists)
	} else {
		c.series = append(makeRoom(c.series, room), c.memory.copySeries(metric, v))
	}
	return c.budget.chargeSamples(v.size)
}

// finish moves the collected series into result. It returns the answer to the whole query, or nil.
func (c *collector) finish(result *fragmentResult) *wholeAnswer {
	switch {
	case len(c.places) < 2:
	case c.all != nil && c.sum == nil:
		c.all.sort(c.order, c.places)
	default:
		c.series = elementsAt(c.series, c.order.sortedIndices(c.places))
	}
	result.series, result.inner = c.series, c.inner
	if c.inner {
		return nil
	}
	if c.sum != nil {
		result.series = c.aggregatedSeries()
		result.notes.Merge(c.sum.notes())
	}
	return c.all
}

// aggregatedSeries returns the results of the aggregation, or adds them to the answer to the whole query.
func (c *collector) aggregatedSeries() []*fragmentSeries {
	groups := c.sum.groups.len()
	if c.all != nil {
		c.all.grow(groups)
		c.sum.eachResult(func(s fragmentSeries) { c.all.add(s.metric, s.from, s.v, s.h, len(s.v), len(s.h)) })
		return nil
	}
	list := make([]fragmentSeries, 0, groups)
	c.sum.eachResult(func(s fragmentSeries) { list = append(list, s) })
	series := make([]*fragmentSeries, len(list))
	for i := range list {
		series[i] = &list[i]
	}
	return series
}

// firstRoom is the length from which makeRoom estimates the final length of a list. Shorter lists grow as with append.
const firstRoom = 64

// readProgress describes the progress of a fragment: next of n series have been read. Each series adds at most one
// element to a list.
type readProgress struct{ n, next int }

// makeRoom returns the list with room for one more element. A list that is already long gets all the room that it is
// expected to need: append would copy it many times.
func makeRoom[T any](list []T, r readProgress) []T {
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
