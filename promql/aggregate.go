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
	series int // of the fragment
	budget *budget
	groups groupTable
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
	key    uint64 // the hash of its labels
	// first is the place of the first of its series, in their order.
	first uint32
	// value is none where no sample was seen. At a single step it is only.
	value []float64
	only  [1]float64
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
	return &aggregator{aggregation: a, n: n, budget: b, builder: labels.NewBuilder(labels.EmptyLabels())}
}

// add takes the values of the next series, which has this place among the fragment's.
func (a *aggregator) add(at uint32, metric labels.Labels, v *values) error {
	if v.hists > 0 {
		return errHistograms
	}
	g, isNew, err := a.group(metric, room{a.series, int(at)})
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

// groupSeed is that of all hashes of a single label.
var groupSeed = maphash.MakeSeed()

// group returns the group of a series.
func (a *aggregator) group(metric labels.Labels, r room) (g *group, isNew bool, err error) {
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
	g = &take(&a.room.groups, 1, a.groups.len())[0]
	g.key, g.metric = key, a.labelsOf(metric)
	a.groups.add(g, r)
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

// groupTable finds groups by their keys. It is a hash table with linear probing, in which a group takes a few bytes.
type groupTable struct {
	list   []*group
	places []uint32 // indices in list plus 1, by the key; 0: a place is free. The length is a power of two.
}

func (t *groupTable) len() int { return len(t.list) }

// find returns the group with a key; nil: there is none.
func (t *groupTable) find(key uint64) *group {
	if len(t.list) == 0 {
		return nil
	}
	for at := t.placeOf(key); t.places[at] != 0; at = t.after(at) {
		if g := t.list[t.places[at]-1]; g.key == key {
			return g
		}
	}
	return nil
}

func (t *groupTable) placeOf(key uint64) int { return int(key) & (len(t.places) - 1) }
func (t *groupTable) after(at int) int       { return (at + 1) & (len(t.places) - 1) }

// add adds a group whose key none has.
func (t *groupTable) add(g *group, r room) {
	if len(t.list) == cap(t.list) {
		t.list = makeRoom(t.list, r)
		t.places = make([]uint32, 1<<bits.Len(uint(cap(t.list)+cap(t.list)/4)))
		for i, g := range t.list {
			t.put(g.key, i)
		}
	}
	t.list = append(t.list, g)
	t.put(g.key, len(t.list)-1)
}

func (t *groupTable) put(key uint64, i int) {
	at := t.placeOf(key)
	for t.places[at] != 0 {
		at = t.after(at)
	}
	t.places[at] = uint32(i + 1)
}

// begin makes the columns that the operator needs, and returns how many there are.
func (a *aggregator) begin(g *group) int {
	columns := []*[]float64{&g.value}
	switch a.expr.Op {
	case parser.MIN, parser.MAX, parser.COUNT, parser.GROUP:
	default:
		g.groupMore = &take(&a.room.more, 1, a.groups.len())[0]
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
		*c = take(&a.room.floats, a.n, a.groups.len()*a.n)
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

// results calls use with the aggregated series: groups in the order in which they were met, or would be, and of topk and bottomk at
// one step each group's from its best, as the evaluator gives them.
func (a *aggregator) results(use func(fragmentSeries)) {
	if a.order != nil && a.groups.len() > 1 {
		places := make([]uint32, a.groups.len())
		for i, g := range a.groups.list {
			places[i] = g.first
		}
		a.groups.list = permuted(a.groups.list, a.order.sorted(places))
	}
	switch a.expr.Op {
	case parser.TOPK, parser.BOTTOMK:
		for _, s := range a.ranked() {
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
