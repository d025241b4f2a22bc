package promql

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/storage/tenant"
)

// checkRange returns a *tenant.LimitError if the query looks further back than one of its tenants may.
func (q *plannedQuery) checkRange(ctx context.Context) error {
	if q.limiter == nil {
		return nil
	}
	stmt, ok := q.Statement().(*parser.EvalStmt)
	if !ok {
		return nil
	}
	back := lookbackOf(stmt)
	for _, name := range tenant.All(ctx) {
		if err := q.limiter.Use(ctx, name).Range(back); err != nil {
			return err
		}
	}
	return nil
}

// lookbackOf returns how far before its last step a query asks for samples, offsets and the lookback left out: from its
// first step, by the widest range, ranges within subqueries added.
func lookbackOf(stmt *parser.EvalStmt) time.Duration {
	return stmt.End.Sub(stmt.Start) + widestRange(stmt.Expr)
}

// widestRange returns the widest range in a part of a query, ranges within subqueries added.
func widestRange(node parser.Node) (widest time.Duration) {
	for child := range parser.ChildrenIter(node) {
		widest = max(widest, widestRange(child))
	}
	return rangeOf(node) + widest
}

func rangeOf(node parser.Node) time.Duration {
	switch n := node.(type) {
	case *parser.MatrixSelector:
		return n.Range
	case *parser.SubqueryExpr:
		return n.Range
	}
	return 0
}

// Enter waits until the tenants of ctx may run one query more, for reads that aren't queries of the evaluator, and returns
// a context for this one, all of whose reads count together. Unless there is an error, the caller calls leave once it is
// done. Errors are as those of queries. Who has the answer and is about to send it calls Answered with that context.
func (e *Engine) Enter(ctx context.Context) (of context.Context, leave func(), err error) {
	of, r := e.gate.begin(ctx)
	if _, err := e.gate.Insert(of, ""); err != nil {
		r.end()
		return ctx, func() {}, err
	}
	t := &externalRead{read: r}
	watched := e.pressure.begin()
	return context.WithValue(e.opts.Limiter.Begin(of), externalReadKey{}, t), sync.OnceFunc(func() { t.end(); watched() }), nil
}

// Queries returns how many queries of a tenant run, and how many wait.
func (e *Engine) Queries(name string) (running, waiting int) {
	running, waiting = e.gate.queries.state(name)
	_, large := e.gate.large.state(name) // They have places among the others, which they give to others meanwhile.
	return running - large, waiting + large
}
