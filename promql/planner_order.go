package promql

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/storage/labelorder"
)

// The store returns series in the order of their ids, in which it reads them fastest; Prometheus' storage returns them in the order of
// their labels. The answer to an instant query, and what limitk chooses, depends on that order. So the results of fragments are sorted
// where it does, which costs less than to read series in that order. The groups of an aggregation come in the order of the first series
// of each.

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

// showsRight reports whether the result of a binary operation depends on the order of its right operand. Most operations take the order
// of the left one.
func showsRight(e *parser.BinaryExpr) bool {
	m := e.VectorMatching
	return m == nil || e.Op == parser.LOR || m.Card == parser.CardOneToMany || m.FillValues.LHS != nil
}

// orderedIn reports whether the answer depends on the order of the series that an aggregation is over. Of topk and bottomk it does only
// where values are equal.
func (in surroundings) orderedIn(e *parser.AggregateExpr) bool {
	switch e.Op {
	case parser.LIMITK:
		return true
	case parser.LIMIT_RATIO:
		return in.ordered
	case parser.TOPK, parser.BOTTOMK, parser.COUNT_VALUES:
		return false
	}
	return in.ordered && (e.Without || len(e.Grouping) > 0)
}

// keyedSeries is a series of a fragment's result with the labels of the series that it is made of.
type keyedSeries struct {
	stored labels.Labels
	*fragmentSeries
}

// inLabelOrder returns the series in the order of the labels that are stored.
func inLabelOrder(list []keyedSeries) []*fragmentSeries {
	labelorder.Sort(list, func(s keyedSeries) labels.Labels { return s.stored })
	series := make([]*fragmentSeries, len(list))
	for i, s := range list {
		series[i] = s.fragmentSeries
	}
	return series
}

// orderedQueryable is a Queryable whose series come in the order of their labels if ordered is set.
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
func (q orderedQuerier) Select(ctx context.Context, _ bool, hints *promstorage.SelectHints, matchers ...*labels.Matcher) promstorage.SeriesSet {
	return q.Querier.Select(ctx, true, hints, matchers...)
}
