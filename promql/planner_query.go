package promql

import (
	"context"
	"fmt"
	"sync"

	promengine "github.com/prometheus/prometheus/promql"

	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/tenant"
)

// plannedQuery adds two things to a query of Prometheus' evaluator: its plan, and to the result what came up while
// samples were read, since the evaluator asks a SeriesSet for its warnings before it iterates over samples.
type plannedQuery struct {
	promengine.Query
	engine  *Engine
	limiter *tenant.Limiter
	plan    *plan // nil: the evaluator does everything

	mu     sync.Mutex
	cancel context.CancelFunc
	unread *unread
}

// Exec implements promql.Query.
func (q *plannedQuery) Exec(ctx context.Context) *promengine.Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q.canBeCanceled(cancel) // Before it is seen to be active.
	w := &warnings{ofQuery: true}
	ctx = q.limiter.Begin(w.into(ctx))
	if err := q.checkRange(ctx); err != nil {
		return &promengine.Result{Err: err}
	}
	ctx, read := q.engine.gate.begin(ctx)
	defer read.end()
	ctx, active, end := q.engine.active.begin(ctx, q.String(), q.Statement())
	defer end()
	defer q.engine.pressure.begin()()
	// The evaluator has a timeout of its own, which neither a plan nor functions can see.
	ctx, stop := context.WithTimeout(ctx, q.engine.opts.Timeout)
	defer stop()
	defer evaluates(ctx, q.Statement())()
	if q.plan != nil {
		q.plan.ctx = ctx
		q.plan.budget.ctx = ctx
		if read.gate.largeBytes > 0 {
			q.plan.budget.read = read
		}
		defer q.plan.restore()
	}
	result := q.evaluate(ctx)
	read.leave()
	short := w.missing()
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

// evaluate returns the result, once it is counted. Until then it has the query's place: so no more answers than there are
// places come to be beyond what may be unread.
func (q *plannedQuery) evaluate(ctx context.Context) *promengine.Result {
	result := q.Query.Exec(ctx)
	result.Err = ended(ctx, result.Err)
	if q.plan != nil && result.Err == nil {
		if q.plan.answer != nil {
			q.plan.answer.complete(result, q.Stats().Samples)
		}
		q.plan.countOperands(q.Stats().Samples)
		q.plan.countLoaded(q.Stats().Samples)
	}
	q.engine.samples.add(q.Stats())
	q.count(ctx, result)
	return result
}

// count counts a result that isn't an error, unless it is too large.
func (q *plannedQuery) count(ctx context.Context, result *promengine.Result) {
	if result.Err != nil {
		return
	}
	bytes := unreadBytes(result.Value)
	if most := q.engine.opts.Memory / MostOfMemory; most > 0 && bytes > most {
		*result = promengine.Result{Err: fmt.Errorf("%w: the result has %d bytes; the maximum is %d", meter.ErrQueryTooLarge, bytes, most)}
		return
	}
	if err := readOf(ctx).answer(ctx, bytes); err != nil {
		*result = promengine.Result{Err: ended(ctx, err)}
		return
	}
	q.unread = q.engine.gate.hold(ctx, bytes)
}

// MostOfMemory is which part of the memory one answer may take.
const MostOfMemory = 4

func (q *plannedQuery) canBeCanceled(cancel context.CancelFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cancel = cancel
}

// Cancel implements promql.Query. It does nothing before Exec. That of the evaluator's query isn't called: it races with its Exec, whose
// context ends with this one's.
func (q *plannedQuery) Cancel() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cancel != nil {
		q.cancel()
	}
}

// Close implements promql.Query: the result isn't used any more.
func (q *plannedQuery) Close() {
	q.Query.Close()
	q.unread.give()
}
