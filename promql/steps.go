package promql

import (
	"cmp"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// checkSteps refuses a query of which a part has more steps than samples may be held: the evaluator makes room for
// all steps of a subquery before it computes the first, and 50 years at 1 ms are more than any memory. It refuses steps below a
// millisecond, by which the evaluator would divide as by 0.
func checkSteps(stmt *parser.EvalStmt, limit int) error {
	if stmt.Interval > 0 && stmt.Interval < time.Millisecond {
		return fmt.Errorf("%w: the step is %s; the minimum is 1ms", ErrQueryTooComplex, stmt.Interval)
	}
	return eachSubquery(stmt.Expr, stmt.End.Sub(stmt.Start), func(sub *parser.SubqueryExpr, steps int64) error {
		if steps < 0 || steps > int64(limit) {
			return fmt.Errorf("%w: the subquery at %d has more steps than the maximum number of samples per query, %d",
				ErrQueryTooComplex, sub.PositionRange().Start, limit)
		}
		return nil
	})
}

// eachSubquery calls f with each subquery of a part that is evaluated over a span, and with the number of its steps; a negative number is beyond
// what can be counted. The span of a subquery's inside is longer by its range.
func eachSubquery(n parser.Node, span time.Duration, f func(sub *parser.SubqueryExpr, steps int64) error) error {
	if sub, ok := n.(*parser.SubqueryExpr); ok {
		span += sub.Range
		if err := f(sub, int64(span/cmp.Or(sub.Step, subqueryInterval))); err != nil {
			return err
		}
	}
	for child := range parser.ChildrenIter(n) {
		if err := eachSubquery(child, span, f); err != nil {
			return err
		}
	}
	return nil
}

// innerSteps returns how many steps all subqueries of a query have: the evaluator holds a value for each of them, and for each series.
func innerSteps(stmt *parser.EvalStmt) (all int64) {
	_ = eachSubquery(stmt.Expr, stmt.End.Sub(stmt.Start), func(_ *parser.SubqueryExpr, steps int64) error {
		all += steps
		return nil
	})
	return all
}
