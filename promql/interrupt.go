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
// calls the function for every step. Steps times points of a range may be days of work, as in
//
//	sum_over_time(max_over_time(vector(1)[4d:1s])[4d:1s])
//
// Neither a timeout nor a closed connection would end such a query. So the functions check the context themselves, now
// and then. They find the query by the arguments of their call, which belong to this query only. If the context has
// ended, they panic with an error, as the evaluator does itself.

// evaluated holds the contexts of running queries, by the first argument of their calls: *parser.Expr to
// context.Context.
var evaluated sync.Map

// checkEvery is the approximate number of points that functions process between two checks of the context.
const checkEvery = 512

func init() { // Before any evaluation: the table isn't safe for concurrent changes.
	for name, call := range promengine.FunctionCalls {
		if f := parser.Functions[name]; call != nil && f != nil && slices.Contains(f.ArgTypes, parser.ValueTypeMatrix) {
			promengine.FunctionCalls[name] = interruptible(call)
		}
	}
}

// interruptible returns a function that ends the query once its context has ended.
func interruptible(call promengine.FunctionCall) promengine.FunctionCall {
	return func(
		vectors []promengine.Vector, ranges promengine.Matrix, args parser.Expressions, enh *promengine.EvalNodeHelper,
	) (promengine.Vector, annotations.Annotations) {
		points := uint32(1)
		if len(ranges) > 0 {
			points += uint32(len(ranges[0].Floats) + len(ranges[0].Histograms))
		}
		// The check is random because there is no place for a counter. A check costs as much as some tens of points.
		if len(args) > 0 && (points >= checkEvery || rand.Uint32N(checkEvery) < points) {
			if of, ok := evaluated.Load(&args[0]); ok {
				endIfDone(of.(context.Context))
			}
		}
		return call(vectors, ranges, args, enh)
	}
}

// endIfDone ends an evaluation in the same way as the evaluator.
func endIfDone(ctx context.Context) {
	const where = "expression evaluation"
	switch err := ctx.Err(); {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		panic(promengine.ErrQueryTimeout(where))
	default:
		panic(promengine.ErrQueryCanceled(where))
	}
}

// evaluates registers the context for the functions of a statement until done is called.
func evaluates(ctx context.Context, stmt parser.Statement) (done func()) {
	e, ok := stmt.(*parser.EvalStmt)
	if !ok {
		return func() {}
	}
	var calls []*parser.Expr
	eachCall(e.Expr, func(call *parser.Call) {
		if len(call.Args) > 0 {
			calls = append(calls, &call.Args[0])
			evaluated.Store(&call.Args[0], ctx)
		}
	})
	return func() {
		for _, of := range calls {
			evaluated.Delete(of)
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
