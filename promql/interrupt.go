package promql

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
)

// Prometheus' evaluator checks a query's context once for each series that a function of a range vector gets, and then
// calls the function for every step. Processing all points of all steps may take days, for example in
//
//	sum_over_time(max_over_time(vector(1)[4d:1s])[4d:1s])
//
// Neither a timeout nor a closed connection would end such a query. So the functions also check the context, at random
// calls. They find the context by the address of their first argument, which belongs to one query only. If the context
// has ended, they panic with an error, as the evaluator itself does.

// callContexts maps the address of the first argument of a call, *parser.Expr, to the context of its query, for all
// running queries.
var callContexts sync.Map

// checkEvery is the approximate number of points that functions process between two checks of the context.
const checkEvery = 512

func init() { // Before any evaluation: the table isn't safe for concurrent changes.
	for name, call := range promengine.FunctionCalls {
		if f := parser.Functions[name]; call != nil && f != nil && slices.Contains(f.ArgTypes, parser.ValueTypeMatrix) {
			promengine.FunctionCalls[name] = makeInterruptible(call)
		}
	}
}

// makeInterruptible returns a function that ends the query once its context has ended.
func makeInterruptible(call promengine.FunctionCall) promengine.FunctionCall {
	return func(
		vectors []promengine.Vector, ranges promengine.Matrix, args parser.Expressions, enh *promengine.EvalNodeHelper,
	) (promengine.Vector, annotations.Annotations) {
		points := uint32(1)
		if len(ranges) > 0 {
			points += uint32(len(ranges[0].Floats) + len(ranges[0].Histograms))
		}
		// The check is random because calls share no state in which they could be counted. A check costs as much as
		// some tens of points.
		if len(args) > 0 && (points >= checkEvery || rand.Uint32N(checkEvery) < points) {
			if of, ok := callContexts.Load(&args[0]); ok {
				panicIfDone(of.(context.Context))
			}
		}
		return call(vectors, ranges, args, enh)
	}
}

// panicIfDone ends the evaluation if ctx has ended, in the same way as the evaluator.
func panicIfDone(ctx context.Context) {
	const where = "expression evaluation"
	switch err := ctx.Err(); {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		panic(promengine.ErrQueryTimeout(where))
	default:
		panic(promengine.ErrQueryCanceled(where))
	}
}

// registerContext registers the context for the functions of a statement until done is called.
func registerContext(ctx context.Context, stmt parser.Statement) (done func()) {
	e, ok := stmt.(*parser.EvalStmt)
	if !ok {
		return func() {}
	}
	var calls []*parser.Expr
	eachCall(e.Expr, func(call *parser.Call) {
		if len(call.Args) > 0 {
			calls = append(calls, &call.Args[0])
			callContexts.Store(&call.Args[0], ctx)
		}
	})
	return func() {
		for _, of := range calls {
			callContexts.Delete(of)
		}
	}
}

// eachCall calls visit for every call in an expression. Unlike parser.Inspect, it doesn't keep the path to the call.
func eachCall(node parser.Node, visit func(*parser.Call)) {
	if call, ok := node.(*parser.Call); ok {
		visit(call)
	}
	for child := range parser.ChildrenIter(node) {
		eachCall(child, visit)
	}
}
