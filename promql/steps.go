package promql

import (
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// checkSteps refuses a query of which a part has more steps than samples may be held: the evaluator makes room for
// all steps of a subquery before it computes the first, and 50 years at 1 ms are more than any memory. It refuses steps below a
// millisecond, by which the evaluator would divide as by 0.
func checkSteps(stmt *parser.EvalStmt, limit int) error {
	if stmt.Interval > 0 && stmt.Interval < time.Millisecond {
		return fmt.Errorf("%w: a step of %s; the minimum is 1ms", ErrQueryTooComplex, stmt.Interval)
	}
	return checkStepsOf(stmt.Expr, stmt.End.Sub(stmt.Start), int64(limit))
}

// checkStepsOf looks at a part that is evaluated over a span. The span of a subquery's inside is longer by its range.
func checkStepsOf(n parser.Node, span time.Duration, limit int64) error {
	if sub, ok := n.(*parser.SubqueryExpr); ok {
		step := sub.Step
		if step == 0 {
			step = subqueryInterval
		}
		if span += sub.Range; span < 0 || int64(span/step) > limit {
			return fmt.Errorf("%w: the subquery at %d has more steps than the maximum number of samples per query, %d",
				ErrQueryTooComplex, sub.PositionRange().Start, limit)
		}
	}
	for child := range parser.ChildrenIter(n) {
		if err := checkStepsOf(child, span, limit); err != nil {
			return err
		}
	}
	return nil
}
