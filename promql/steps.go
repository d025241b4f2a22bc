package promql

import (
	"cmp"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// checkSteps rejects a query if a part of it has more steps than the maximum number of samples: the evaluator allocates
// all steps of a subquery before it computes the first, and 50 years at 1 ms exceed any memory. It also rejects steps
// below a millisecond, because the evaluator would divide by 0.
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

// eachSubquery calls f for each subquery in n, which is evaluated over span, with the number of its steps. A negative
// number means that the number overflows. A subquery lengthens the span of the subqueries inside it by its range.
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

// subquerySteps returns the number of steps of all subqueries of a query. The evaluator holds one value per step and
// series.
func subquerySteps(stmt *parser.EvalStmt) (all int64) {
	_ = eachSubquery(stmt.Expr, stmt.End.Sub(stmt.Start), func(_ *parser.SubqueryExpr, steps int64) error {
		all += steps
		return nil
	})
	return all
}
