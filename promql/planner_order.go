package promql

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/storage/labelorder"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/tenant"
)

// The store returns series in the order of their ids, because it reads them fastest in that order. Prometheus' storage
// returns series sorted by labels. The answer to an instant query and the choice of limitk depend on the order. In
// these cases, the results of fragments are sorted, which costs less than reading the series sorted by labels. The
// groups of an aggregation are sorted by the first series of each.

// isInstant reports whether a statement is an instant query, whose answer isn't sorted at the end.
func isInstant(s *parser.EvalStmt) bool { return s.Interval == 0 && s.Start.Equal(s.End) }

// dependsOnOrder reports whether the answer to a statement depends on the order of series.
func dependsOnOrder(s *parser.EvalStmt) bool { return isInstant(s) || hasLimitK(s.Expr) }

func hasLimitK(expr parser.Expr) bool {
	found := false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		e, ok := n.(*parser.AggregateExpr)
		found = found || ok && e.Op == parser.LIMITK
		return nil
	})
	return found
}

// dependsOnRightOrder reports whether the result of a binary operation depends on the order of its right operand. Most
// operations return series in the order of the left operand.
func dependsOnRightOrder(e *parser.BinaryExpr) bool {
	m := e.VectorMatching
	return m == nil || e.Op == parser.LOR || m.Card == parser.CardOneToMany || m.FillValues.LHS != nil
}

// isOperandOrdered reports whether the answer depends on the order of the series of an aggregation's operand. topk and
// bottomk depend on it only for equal values.
func (s surroundings) isOperandOrdered(e *parser.AggregateExpr) bool {
	switch e.Op {
	case parser.LIMITK:
		return true
	case parser.LIMIT_RATIO:
		return s.ordered
	case parser.TOPK, parser.BOTTOMK, parser.COUNT_VALUES:
		return false
	}
	return s.ordered && (e.Without || len(e.Grouping) > 0)
}

// labelOrder is the order of a fragment's series by their stored labels. A series is identified by its position among
// the series found.
type labelOrder struct {
	ctx    context.Context
	series []foundSeries
	// finder finds the ranks. nil: labels are compared.
	finder *query.Ranks
	// ranks are the positions of the series in the order. nil: not loaded.
	ranks []uint32
}

// orderOf returns the order of found series.
func (p *plan) orderOf(found *foundFragment) *labelOrder {
	o := &labelOrder{ctx: p.ctx, series: found.series}
	if len(found.segments) == 1 && len(tenant.NamesFromContext(p.ctx)) == 1 { // The tenant label may change the order.
		s := found.segments[0]
		if o.finder = p.queryable.store.RanksOf(s.tenant, s.found); o.finder != nil {
			o.ranks = o.finder.Cached()
		}
	}
	return o
}

// isLess reports whether a series comes before another.
func (o *labelOrder) isLess(a, b uint32) bool {
	if o.ranks != nil {
		return o.ranks[a] < o.ranks[b]
	}
	return labels.Compare(o.series[a].labels, o.series[b].labels) < 0
}

// rankedShare bounds the sorting of some of the found series. If more than 1/rankedShare of the found series must be
// sorted, the order of all found series is computed and cached for later queries.
const rankedShare = 4

// hasRanks reports whether the ranks of the series are loaded. It first computes the ranks if they aren't loaded and n,
// the number of series to sort, is large enough (see rankedShare).
func (o *labelOrder) hasRanks(n int) bool {
	if o.ranks == nil && o.finder != nil && n > len(o.series)/rankedShare {
		if ranks, err := o.finder.Get(o.ctx); err == nil { // An error means that the query has ended.
			o.ranks = ranks
		}
	}
	return o.ranks != nil
}

// sortedIndices returns the indices in places, in the order of the labels of the series at these places.
func (o *labelOrder) sortedIndices(places []uint32) []uint32 {
	if !o.hasRanks(len(places)) {
		return labelorder.Order(places, func(at uint32) labels.Labels { return o.series[at].labels })
	}
	byRank := make([]uint32, len(o.ranks)) // index in places plus 1; 0: not in places
	for i, at := range places {
		byRank[o.ranks[at]] = uint32(i + 1)
	}
	order := make([]uint32, 0, len(places))
	for _, i := range byRank {
		if i > 0 {
			order = append(order, i-1)
		}
	}
	return order
}

// elementsAt returns the elements of a list at these indices.
func elementsAt[T any](list []T, at []uint32) []T {
	out := make([]T, len(at))
	for i, k := range at {
		out[i] = list[k]
	}
	return out
}

// orderedQueryable is a Queryable whose series are sorted by labels if ordered is set.
type orderedQueryable struct {
	promstorage.Queryable
	ordered bool
}

// Querier implements promstorage.Queryable.
func (q *orderedQueryable) Querier(mint, maxt int64) (promstorage.Querier, error) {
	querier, err := q.Queryable.Querier(mint, maxt)
	if err != nil || !q.ordered {
		return querier, err
	}
	return orderedQuerier{querier}, nil
}

type orderedQuerier struct{ promstorage.Querier }

// Select implements promstorage.Querier.
func (q orderedQuerier) Select(ctx context.Context, _ bool, hints *promstorage.SelectHints,
	matchers ...*labels.Matcher) promstorage.SeriesSet {
	return q.Querier.Select(ctx, true, hints, matchers...)
}
