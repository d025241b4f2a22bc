package promql

import (
	"context"
	"fmt"
	"sync"

	promengine "github.com/prometheus/prometheus/promql"

	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/tenant"
)

// plannedQuery adds a plan to a query of Prometheus' evaluator. It also adds the warnings of reading samples to the
// result, because the evaluator requests the warnings of a SeriesSet before it reads samples.
type plannedQuery struct {
	promengine.Query
	engine  *Engine
	limiter *tenant.Limiter
	plan    *plan // nil: the evaluator computes everything

	mu     sync.Mutex
	cancel context.CancelFunc
	unread *unreadAnswer
}

// Exec implements promql.Query.
func (q *plannedQuery) Exec(ctx context.Context) *promengine.Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q.setCancel(cancel) // The query must be cancelable before it is listed as active.
	w := &warnings{isQuery: true}
	ctx = q.limiter.Begin(w.into(ctx))
	if !q.engine.opts.StartTimestamps {
		ctx = query.WithRecordedStarts(ctx)
	}
	if err := q.checkRange(ctx); err != nil {
		return &promengine.Result{Err: err}
	}
	ctx, read := q.engine.gate.startRead(ctx)
	defer read.end()
	ctx, active, end := q.engine.active.startQuery(ctx, q.String(), q.Statement())
	defer end()
	defer q.engine.pressure.countRead()()
	// The evaluator's own timeout doesn't end a plan or a function.
	ctx, stop := context.WithTimeout(ctx, q.engine.opts.Timeout)
	defer stop()
	if q.engine.opts.StartTimestamps {
		ctx = context.WithValue(ctx, startsKey{}, true)
	}
	ctx = withExtendedRanges(ctx, q.Statement())
	defer registerContext(ctx, q.Statement())()
	if q.plan != nil {
		q.plan.ctx = ctx
		q.plan.budget.ctx = ctx
		if read.gate.largeBytes > 0 {
			q.plan.budget.read = read
		}
		defer q.plan.restoreStatement()
	}
	result := q.evaluate(ctx)
	read.leave()
	short := w.shortfall()
	if q.plan != nil {
		short.Merge(q.plan.short)
	}
	if info := short.Info(); info != nil {
		result.Warnings.Add(info)
	}
	result.Warnings = result.Warnings.Merge(w.annotations())
	q.engine.logSlow(ctx, active, q.Query, result)
	q.engine.countTop(active, q.Query, result)
	return result
}

// evaluate runs the query. It returns the result after the result's memory has been counted, and the query keeps its
// place until then. So the bound on unread answers is exceeded by at most one answer per place.
func (q *plannedQuery) evaluate(ctx context.Context) *promengine.Result {
	result := q.Query.Exec(ctx)
	result.Err = queryError(ctx, result.Err)
	if q.plan != nil && result.Err == nil {
		if q.plan.answer != nil {
			q.plan.answer.complete(result, q.Stats().Samples)
		}
		q.plan.countOperands(q.Stats().Samples)
		q.plan.countLoaded(q.Stats().Samples)
	}
	q.engine.samples.add(q.Stats())
	q.countMemory(ctx, result)
	return result
}

// countMemory counts the memory of a result that isn't an error. It replaces a result that is too large by an error.
func (q *plannedQuery) countMemory(ctx context.Context, result *promengine.Result) {
	if result.Err != nil {
		return
	}
	bytes := resultBytes(result.Value)
	if most := q.engine.opts.Memory / AnswerMemoryShare; most > 0 && bytes > most {
		*result = promengine.Result{Err: fmt.Errorf("%w: the result has %d bytes; the maximum is %d",
			meter.ErrQueryTooLarge, bytes, most)}
		return
	}
	if err := readOf(ctx).growForAnswer(ctx, bytes); err != nil {
		*result = promengine.Result{Err: queryError(ctx, err)}
		return
	}
	q.unread = q.engine.gate.newUnread(ctx, bytes)
}

// AnswerMemoryShare bounds the memory of one answer to Options.Memory divided by AnswerMemoryShare.
const AnswerMemoryShare = 4

func (q *plannedQuery) setCancel(cancel context.CancelFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cancel = cancel
}

// Cancel implements promql.Query. It does nothing before Exec. It cancels the context with which the evaluator's query
// runs, and doesn't call that query's Cancel, because Cancel races with Exec.
func (q *plannedQuery) Cancel() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cancel != nil {
		q.cancel()
	}
}

// Close implements promql.Query. The result must not be used afterwards.
func (q *plannedQuery) Close() {
	q.Query.Close()
	q.unread.release()
}
