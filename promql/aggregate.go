package promql

import (
	"errors"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/storage/format"
)

// maxRanked is a k so great that the evaluator may find it too great.
const maxRanked = 1 << 62

// aggregation is an aggregation over a fragment.
type aggregation struct {
	expr     *parser.AggregateExpr
	grouping []string // sorted
	// param is topk's k or quantile's q.
	param float64
}

// aggregationOf returns what e asks for, or false if it can't be answered from arrays.
func aggregationOf(e *parser.AggregateExpr) (*aggregation, bool) {
	a := &aggregation{expr: e, grouping: slices.Compact(slices.Sorted(slices.Values(e.Grouping)))}
	switch e.Op {
	case parser.SUM, parser.AVG, parser.MIN, parser.MAX, parser.COUNT, parser.GROUP, parser.STDDEV, parser.STDVAR:
		return a, e.Param == nil
	case parser.QUANTILE, parser.TOPK, parser.BOTTOMK:
		var ok bool
		if a.param, ok = constant(e.Param); !ok {
			return nil, false
		}
		// Nothing at all, or an error, is the evaluator's to answer.
		return a, e.Op == parser.QUANTILE || (a.param >= 1 && a.param < maxRanked)
	default:
		return nil, false
	}
}

// notes returns the annotations that the evaluator adds about the parameter.
func (a *aggregation) notes() annotations.Annotations {
	if a.expr.Op == parser.QUANTILE && !(a.param >= 0 && a.param <= 1) {
		return annotations.New().Add(annotations.NewInvalidQuantileWarning(a.param, a.expr.Param.PositionRange()))
	}
	return nil
}

// errHistograms means that a fragment has native histograms, which the evaluator aggregates.
var errHistograms = errors.New("promql: native histograms need the evaluator")

// aggregator aggregates series, which must come in the order in which the evaluator would take them: sums
// then have the same last bits, and ties the same winner.
type aggregator struct {
	*aggregation
	n      int // steps
	budget *budget
	index  map[uint64]int // place in groups
	groups []*group
	// members are series that are still needed, of the operators that choose among them.
	members []*fragmentSeries
	memory  arena
	// room is for the next groups.
	room struct {
		groups []group
		more   []groupMore
		floats []float64
	}
	builder *labels.Builder
	// grouped and labels are for the labels of groups.
	grouped labels.ScratchBuilder
	labels  format.LabelMemory
	buffer  []byte
	// order, if it isn't nil, is that of the series: the groups are to be in the order in which they would be met then.
	order *labelOrder
}

// group is the state of a group so far, as columns with one entry per step; which there are depends on the
// operator.
type group struct {
	metric labels.Labels
	// first is the place of the first of its series, in their order.
	first uint32
	// value is none where no sample was seen.
	value []float64
	*groupMore
}

// groupMore is what a group of some operators has besides. A query may have a group for each of many series.
type groupMore struct {
	// compensation is Kahan's of the value, or of the mean; mean and count are those of the samples seen.
	compensation, mean, count []float64
	// incremental: the sum would have overflowed, so that the mean itself is kept; nil: nowhere.
	incremental []bool
	// best are the series chosen by topk and bottomk, as a heap; members those of which quantile needs all.
	best    []ranking
	members []*fragmentSeries
}

func newAggregator(a *aggregation, n int, b *budget) *aggregator {
	return &aggregator{aggregation: a, n: n, budget: b, index: map[uint64]int{}, builder: labels.NewBuilder(labels.EmptyLabels())}
}

// add takes the values of the next series, which has this place among the fragment's.
func (a *aggregator) add(at uint32, metric labels.Labels, v *values) error {
	if v.hists > 0 {
		return errHistograms
	}
	g, isNew, err := a.group(metric)
	if err != nil {
		return err
	}
	if isNew || a.order != nil && a.order.isLess(at, g.first) {
		g.first = at
	}
	switch a.expr.Op {
	case parser.SUM:
		g.addSum(v.v)
	case parser.AVG:
		g.addAvg(v.v)
	case parser.MIN:
		g.addMin(v.v)
	case parser.MAX:
		g.addMax(v.v)
	case parser.COUNT:
		g.addCount(v.v)
	case parser.GROUP:
		g.addGroup(v.v)
	case parser.STDDEV, parser.STDVAR:
		g.addDeviation(v.v)
	case parser.QUANTILE:
		g.members = append(g.members, a.memory.keep(labels.EmptyLabels(), v))
		return a.budget.charge(v.size)
	case parser.TOPK, parser.BOTTOMK:
		added := g.addRanked(v.v, len(a.members), int64(a.param), a.expr.Op == parser.BOTTOMK)
		a.members = append(a.members, &fragmentSeries{metric: metric})
		return a.budget.charge(added)
	}
	return nil
}

// group returns the group of a series.
func (a *aggregator) group(metric labels.Labels) (g *group, isNew bool, err error) {
	key := uint64(0)
	switch {
	case a.expr.Without:
		key, a.buffer = metric.HashWithoutLabels(a.buffer, a.grouping...)
	case len(a.grouping) > 0:
		key, a.buffer = metric.HashForLabels(a.buffer, a.grouping...)
	}
	if i, ok := a.index[key]; ok {
		return a.groups[i], false, nil
	}
	a.index[key] = len(a.groups)
	g = &take(&a.room.groups, 1, len(a.groups))[0]
	g.metric = a.labelsOf(metric)
	a.groups = append(a.groups, g)
	columns := a.begin(g)
	return g, true, a.budget.charge((columns*a.n + 1) / 2) // An entry takes half of a sample's room.
}

func (a *aggregator) labelsOf(metric labels.Labels) labels.Labels {
	if a.expr.Without {
		a.builder.Reset(metric)
		return a.builder.Del(a.grouping...).Del(labels.MetricName).Labels()
	}
	a.grouped.Reset()
	for _, name := range a.grouping {
		if value := metric.Get(name); value != "" {
			a.grouped.Add(name, value)
		}
	}
	return a.labels.Labels(&a.grouped)
}

// begin makes the columns that the operator needs, and returns how many there are.
func (a *aggregator) begin(g *group) int {
	columns := []*[]float64{&g.value}
	switch a.expr.Op {
	case parser.MIN, parser.MAX, parser.COUNT, parser.GROUP:
	default:
		g.groupMore = &take(&a.room.more, 1, len(a.groups))[0]
	}
	switch a.expr.Op {
	case parser.SUM:
		columns = append(columns, &g.compensation)
	case parser.AVG:
		columns = append(columns, &g.compensation, &g.count)
	case parser.STDDEV, parser.STDVAR:
		columns = append(columns, &g.mean, &g.count)
	case parser.TOPK, parser.BOTTOMK:
		columns = nil
		g.best = make([]ranking, a.n)
	}
	for _, c := range columns {
		*c = take(&a.room.floats, a.n, len(a.groups)*a.n)
	}
	for i := range g.value {
		g.value[i] = none
	}
	return max(1, len(columns))
}

// maxRoom is for how many entries room is made at once, at most.
const maxRoom = 256

// take returns the next n entries of what there is room for. Where there is none, it makes more: as many as were needed so far.
func take[T any](room *[]T, n, soFar int) []T {
	if len(*room) < n {
		*room = make([]T, max(n, min(soFar, maxRoom)))
	}
	taken := (*room)[:n:n]
	*room = (*room)[n:]
	return taken
}

// results returns the aggregated series: groups in the order in which they were met, or would be, and of topk and bottomk at
// one step each group's from its best, as the evaluator gives them.
func (a *aggregator) results() []*fragmentSeries {
	if a.order != nil {
		places := make([]uint32, len(a.groups))
		for i, g := range a.groups {
			places[i] = g.first
		}
		a.groups = permuted(a.groups, a.order.sorted(places))
	}
	switch a.expr.Op {
	case parser.TOPK, parser.BOTTOMK:
		return a.ranked()
	case parser.QUANTILE:
		for _, g := range a.groups {
			g.quantile(a.param)
		}
	}
	out, series := make([]*fragmentSeries, 0, len(a.groups)), make([]fragmentSeries, len(a.groups))
	for i, g := range a.groups {
		g.finish(a.expr.Op)
		v := values{v: g.value}
		if from, to := v.span(); from < to {
			series[i] = fragmentSeries{metric: g.metric, from: from, v: g.value[from:to]}
			out = append(out, &series[i])
		}
	}
	return out
}
