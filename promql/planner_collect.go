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
	// ordered: the series are to be in the order of the labels that are stored. They are in kept then.
	ordered bool
	kept    []keyedSeries
}

// add takes a series with the labels of the one that is stored. It returns errHistograms where only a later series has histograms: the fragment must be computed again then.
func (c *collector) add(stored, metric labels.Labels, v *values) error {
	if c.sum != nil && !c.inner {
		c.inner = v.hists > 0 && !c.folded
		if !c.inner {
			c.folded = true
			return c.sum.add(stored, metric, v)
		}
	}
	switch {
	case c.all != nil && c.sum == nil:
		c.all.add(metric, 0, v.v, v.h, v.floats, v.hists)
	case c.ordered:
		c.kept = append(c.kept, keyedSeries{stored, c.memory.keep(metric, v)})
	default:
		c.series = append(c.series, c.memory.keep(metric, v))
	}
	return c.budget.charge(v.size)
}

// finish puts the collected series into result. It returns the answer to the whole query, or nil.
func (c *collector) finish(result *fragmentResult) *whole {
	if c.ordered {
		c.series = inLabelOrder(c.kept)
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
