package promql

import "github.com/prometheus/prometheus/model/labels"

// collector takes the series of a fragment, one by one in their order: into an aggregation, into the answer to the
// whole query, or as they are.
type collector struct {
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
	if c.order != nil {
		c.places = append(c.places, at)
	}
	if c.all != nil && c.sum == nil {
		c.all.add(metric, 0, v.v, v.h, v.floats, v.hists)
	} else {
		c.series = append(c.series, c.memory.keep(metric, v))
	}
	return c.budget.charge(v.size)
}

// finish puts the collected series into result. It returns the answer to the whole query, or nil.
func (c *collector) finish(result *fragmentResult) *whole {
	switch {
	case c.order == nil || c.sum != nil && !c.inner:
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
		result.series = c.sum.results()
		result.notes.Merge(c.sum.notes())
	}
	if c.all != nil {
		for _, s := range result.series {
			c.all.add(s.metric, s.from, s.v, s.h, len(s.v), len(s.h))
		}
		result.series = nil
	}
	return c.all
}
