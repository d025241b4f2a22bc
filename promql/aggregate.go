package promql

import (
	"errors"
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/storage/format"
)

// maxRanked is the exclusive upper bound of the k of topk and bottomk that the planner computes. A larger k is left to
// the evaluator, which may reject it.
const maxRanked = 1 << 62

// aggregation is an aggregation that the planner computes over the series of a fragment.
type aggregation struct {
	expr     *parser.AggregateExpr
	grouping []string // sorted
	// param is k of topk and bottomk, or q of quantile.
	param float64
}

// aggregationOf returns the aggregation that e describes. It returns false if e can't be computed from arrays.
func aggregationOf(e *parser.AggregateExpr) (*aggregation, bool) {
	a := &aggregation{expr: e, grouping: slices.Compact(slices.Sorted(slices.Values(e.Grouping)))}
	switch e.Op {
	case parser.SUM, parser.AVG, parser.MIN, parser.MAX, parser.COUNT, parser.GROUP, parser.STDDEV, parser.STDVAR:
		return a, e.Param == nil
	case parser.QUANTILE, parser.TOPK, parser.BOTTOMK:
		var ok bool
		if a.param, ok = constantValue(e.Param); !ok {
			return nil, false
		}
		// Any other k is left to the evaluator, which returns an empty result or an error.
		return a, e.Op == parser.QUANTILE || (a.param >= 1 && a.param < maxRanked)
	default:
		return nil, false
	}
}

// notes returns the annotations that the evaluator adds for the parameter.
func (a *aggregation) notes() annotations.Annotations {
	if a.expr.Op == parser.QUANTILE && !(a.param >= 0 && a.param <= 1) {
		return annotations.New().Add(annotations.NewInvalidQuantileWarning(a.param, a.expr.Param.PositionRange()))
	}
	return nil
}

// errHasHistograms means that a fragment has native histograms. Only the evaluator aggregates native histograms.
var errHasHistograms = errors.New("promql: native histograms need the evaluator")

// aggregator aggregates series. Series must be added in the order in which the evaluator would read them. Sums then
// have the same last bits as the evaluator's, and topk and bottomk choose the same series among equal values.
type aggregator struct {
	*aggregation
	n      int // steps
	series int // number of series in the fragment
	budget *budget
	groups groupTable
	// members are the series whose values topk, bottomk and quantile compare. These values must be kept until
	// eachResult has returned.
	members []*fragmentSeries
	memory  arena
	// room is preallocated memory for the next groups.
	room struct {
		groups []group
		more   []groupMore
		floats []float64
	}
	builder *labels.Builder
	// grouped and labels are buffers for computing the labels of groups.
	grouped labels.ScratchBuilder
	labels  format.LabelMemory
	buffer  []byte
	// order is the order of the series, or nil. If it isn't nil, groups are returned in the order of their first
	// series.
	order *labelOrder
}

// group is the state of one group of series. It consists of columns with one entry per step. The operator decides which
// columns it needs.
type group struct {
	metric labels.Labels
	key    uint64 // hash of the group's labels
	// first is the position of the group's first series in aggregator.order.
	first uint32
	// value has one entry per step: missingValue if the step has no sample. With a single step, value is only[:], which
	// saves an allocation.
	value []float64
	only  [1]float64
	*groupMore
}

// groupMore is the state that only some operators need. It is allocated separately to keep group small, because a query
// may have as many groups as series.
type groupMore struct {
	// compensation is Kahan's compensation of the value or of the mean. mean and count are the mean and the number of
	// the samples added so far.
	compensation, mean, count []float64
	// incremental is true at steps where the sum would have overflowed, so that the mean is kept instead. It is nil if
	// there is no such step.
	incremental []bool
	// best holds the series that topk and bottomk choose, one heap per step. members are all series of the group, for
	// quantile.
	best    []ranking
	members []*fragmentSeries
}

func newAggregator(a *aggregation, n int, b *budget) *aggregator {
	return &aggregator{aggregation: a, n: n, budget: b, builder: labels.NewBuilder(labels.EmptyLabels())}
}

// add adds the values of the next series. at is its position among the fragment's series.
func (a *aggregator) add(at uint32, metric labels.Labels, v *values) error {
	if v.hists > 0 {
		return errHasHistograms
	}
	g, isNew, err := a.group(metric, readProgress{a.series, int(at)})
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
		g.members = append(g.members, a.memory.copySeries(labels.EmptyLabels(), v))
		return a.budget.chargeSamples(v.size)
	case parser.TOPK, parser.BOTTOMK:
		added := g.addRanked(v.v, len(a.members), int64(a.param), a.expr.Op == parser.BOTTOMK)
		a.members = append(a.members, &fragmentSeries{metric: metric})
		return a.budget.chargeSamples(added)
	}
	return nil
}

// groupSeed is the seed of the hash that identifies a group if series are grouped by a single label: the hash of the
// label's value.
var groupSeed = maphash.MakeSeed()

// group returns the group of a series.
func (a *aggregator) group(metric labels.Labels, r readProgress) (g *group, isNew bool, err error) {
	key := uint64(0)
	switch {
	case a.expr.Without:
		key, a.buffer = metric.HashWithoutLabels(a.buffer, a.grouping...)
	case len(a.grouping) == 1:
		key = maphash.String(groupSeed, metric.Get(a.grouping[0]))
	case len(a.grouping) > 0:
		key, a.buffer = metric.HashForLabels(a.buffer, a.grouping...)
	}
	if g = a.groups.find(key); g != nil {
		return g, false, nil
	}
	g = &allocateFrom(&a.room.groups, 1, a.groups.len())[0]
	g.key, g.metric = key, a.labelsOf(metric)
	a.groups.add(g, r)
	columns := a.makeColumns(g)
	return g, true, a.budget.chargeSamples((columns*a.n + 1) / 2) // An entry takes half the memory of a sample.
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

// groupTable finds groups by their keys. It is a hash table with linear probing that takes a few bytes per group.
type groupTable struct {
	list  []*group
	slots []uint32 // indices in list plus 1, by key; 0 marks a free slot. The length is a power of two.
}

func (t *groupTable) len() int { return len(t.list) }

// find returns the group with a key, or nil if there is none.
func (t *groupTable) find(key uint64) *group {
	if len(t.list) == 0 {
		return nil
	}
	for at := t.slotOf(key); t.slots[at] != 0; at = t.slotAfter(at) {
		if g := t.list[t.slots[at]-1]; g.key == key {
			return g
		}
	}
	return nil
}

func (t *groupTable) slotOf(key uint64) int { return int(key) & (len(t.slots) - 1) }
func (t *groupTable) slotAfter(at int) int  { return (at + 1) & (len(t.slots) - 1) }

// add adds a group. The table must not contain its key.
func (t *groupTable) add(g *group, r readProgress) {
	if len(t.list) == cap(t.list) {
		t.list = makeRoom(t.list, r)
		t.slots = make([]uint32, 1<<bits.Len(uint(cap(t.list)+cap(t.list)/4)))
		for i, g := range t.list {
			t.put(g.key, i)
		}
	}
	t.list = append(t.list, g)
	t.put(g.key, len(t.list)-1)
}

func (t *groupTable) put(key uint64, i int) {
	at := t.slotOf(key)
	for t.slots[at] != 0 {
		at = t.slotAfter(at)
	}
	t.slots[at] = uint32(i + 1)
}

// makeColumns allocates the columns that the operator needs. It returns their number.
func (a *aggregator) makeColumns(g *group) int {
	columns := []*[]float64{&g.value}
	switch a.expr.Op {
	case parser.MIN, parser.MAX, parser.COUNT, parser.GROUP:
	default:
		g.groupMore = &allocateFrom(&a.room.more, 1, a.groups.len())[0]
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
	for i, c := range columns {
		if i == 0 && a.n == 1 {
			*c = g.only[:]
			continue
		}
		*c = allocateFrom(&a.room.floats, a.n, a.groups.len()*a.n)
	}
	for i := range g.value {
		g.value[i] = missingValue
	}
	return max(1, len(columns))
}

// maxRoom is the maximum number of entries that are preallocated at once.
const maxRoom = 256

// allocateFrom returns the next n preallocated entries. If fewer remain, it allocates as many entries as have been used
// so far, but at least n and at most maxRoom.
func allocateFrom[T any](room *[]T, n, soFar int) []T {
	if len(*room) < n {
		*room = make([]T, max(n, min(soFar, maxRoom)))
	}
	taken := (*room)[:n:n]
	*room = (*room)[n:]
	return taken
}

// eachResult calls use with the aggregated series. Groups are in the order in which they were added or, if order is
// set, in the order of their first series. With a single step, topk and bottomk return the series of each group from
// best to worst, as the evaluator does.
func (a *aggregator) eachResult(use func(fragmentSeries)) {
	if a.order != nil && a.groups.len() > 1 {
		places := make([]uint32, a.groups.len())
		for i, g := range a.groups.list {
			places[i] = g.first
		}
		a.groups.list = elementsAt(a.groups.list, a.order.sortedIndices(places))
	}
	switch a.expr.Op {
	case parser.TOPK, parser.BOTTOMK:
		for _, s := range a.rankedSeries() {
			use(*s)
		}
		return
	case parser.QUANTILE:
		for _, g := range a.groups.list {
			g.quantile(a.param)
		}
	}
	for _, g := range a.groups.list {
		g.finish(a.expr.Op)
		v := values{v: g.value}
		if from, to := v.span(); from < to {
			use(fragmentSeries{metric: g.metric, from: from, v: g.value[from:to]})
		}
	}
}
