package promql

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/storage/tenant"
)

// checkRange returns a *tenant.LimitError if the query reads a longer time range than one of its tenants may query.
func (q *plannedQuery) checkRange(ctx context.Context) error {
	if q.limiter == nil {
		return nil
	}
	stmt, ok := q.Statement().(*parser.EvalStmt)
	if !ok {
		return nil
	}
	back := lookbackOf(stmt)
	for _, name := range tenant.NamesFromContext(ctx) {
		if err := q.limiter.Use(ctx, name).CheckRange(back); err != nil {
			return err
		}
	}
	return nil
}

// lookbackOf returns the time between the oldest samples that a query reads and its last step: the time from the first
// step to the last, plus the widest range. Offsets and the lookback aren't included. The ranges of nested subqueries
// are added.
func lookbackOf(stmt *parser.EvalStmt) time.Duration {
	return stmt.End.Sub(stmt.Start) + widestRange(stmt.Expr)
}

// widestRange returns the widest range in a part of a query. The ranges of nested subqueries are added.
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

// Enter waits until the tenants of ctx may run one more query. It is for reads outside the evaluator. It returns a
// context, and all reads with that context count as one. Unless it returns an error, the caller must call leave when
// the read is done. Errors are the same as those of queries. A caller that is about to send an answer calls HoldAnswer
// with the returned context.
func (e *Engine) Enter(ctx context.Context) (of context.Context, leave func(), err error) {
	of, r := e.gate.startRead(ctx)
	if _, err := e.gate.Insert(of, ""); err != nil {
		r.end()
		return ctx, func() {}, err
	}
	t := &externalRead{read: r}
	watched := e.pressure.countRead()
	return context.WithValue(
		e.opts.Limiter.Begin(of), externalReadKey{}, t,
	), sync.OnceFunc(func() { t.end(); watched() }), nil
}

// QueryCounts returns the numbers of a tenant's queries that run and wait.
func (e *Engine) QueryCounts(name string) (running, waiting int) {
	running, waiting = e.gate.queries.queryCounts(name)
	// The queue of all queries counts large queries as running, even while they wait for their turn among large
	// queries.
	_, large := e.gate.large.queryCounts(name)
	return running - large, waiting + large
}
