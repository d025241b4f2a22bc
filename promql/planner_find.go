package promql

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// maxSteps is the maximum number of steps of a fragment. Subqueries have no bound of their own.
const maxSteps = 1 << 20

// candidate is an expression in a query that can be replaced by a fragment.
type candidate struct {
	at *parser.Expr
	*fragment
	// over is the aggregation over the fragment, or nil. If it is set, at is the location of the aggregation and inner
	// is the location of the fragment itself.
	over  *aggregation
	inner *parser.Expr
	// ordered is true if the answer depends on the order of its series, see surroundings.
	ordered bool
}

// finder finds fragments in a preprocessed query.
type finder struct {
	lookback time.Duration
	// delayed is true if metric names are removed at the end of the evaluation, which only the evaluator can do. starts
	// is true if rates use start timestamps.
	delayed, starts bool
	found           []candidate
}

// surroundings describes the part of the query around an expression, and the times at which the evaluator evaluates the
// expression.
type surroundings struct {
	grid steps
	// from is the start of the statement, moved by the enclosing subqueries. The evaluator derives from it the range
	// that it requests from a Queryable.
	from int64
	// fixed is true if the expression must not be replaced.
	fixed bool
	// skewed is true if the evaluator reads a selector with an @ modifier at other times than the modifier's. This
	// happens inside a subquery whose first step is the first evaluation time of the expression around it.
	skewed bool
	// named is true if an enclosing expression may read the metric names of the result. With delayed name removal, the
	// names must then be dropped only at the end of the evaluation.
	named bool
	// ordered is true if the answer depends on the order of the expression's series. The series are then sorted by
	// their stored labels, as Prometheus' storage returns them.
	ordered bool
	// plain is true if no selector has an offset or @ modifier and there is no subquery, see hasNoOffsets.
	plain bool
}

func findFragments(s *parser.EvalStmt, delayed, starts bool) []candidate {
	f := finder{lookback: s.LookbackDelta, delayed: delayed, starts: starts}
	// This rounds as the evaluator does. FindMinMaxTime rounds fractions of a millisecond before 1970 differently.
	from, to, step := s.Start.UnixNano()/1e6, s.End.UnixNano()/1e6, s.Interval.Milliseconds()
	if from == to && step == 0 {
		step = 1
	}
	if from > to || step <= 0 {
		return nil
	}
	f.visit(&s.Expr, surroundings{
		grid:    steps{from, step, int((to-from)/step) + 1},
		from:    timestamp.FromTime(s.Start),
		ordered: isInstant(s),
	})
	return f.found
}

func (f *finder) visit(at *parser.Expr, in surroundings) {
	children := in
	children.fixed = false
	switch e := (*at).(type) {
	case *parser.ParenExpr:
		f.visit(&e.Expr, in)
	case *parser.StepInvariantExpr:
		in.grid.n = 1
		f.visit(&e.Expr, in)
	case *parser.UnaryExpr:
		f.visit(&e.Expr, children)
	case *parser.BinaryExpr:
		children.named = in.named || exposesNames(e)
		f.visit(&e.LHS, children)
		children.ordered = in.ordered && dependsOnRightOrder(e)
		f.visit(&e.RHS, children)
	case *parser.SubqueryExpr:
		if inside, ok := f.insideSubquery(e, children); ok {
			f.visit(&e.Expr, inside)
		}
	case *parser.VectorSelector:
		f.addCandidate(at, in)
	case *parser.Call:
		if !f.addCandidate(at, in) {
			children.named = in.named || callReadsNames(e)
			children.ordered = in.ordered && e.Func.Name != "absent" && e.Func.Name != "scalar"
			f.visitCall(e, children)
		}
	case *parser.AggregateExpr:
		if children.named = in.namesReadBy(e); !f.addAggregation(at, e, in) {
			children.ordered = in.isOperandOrdered(e)
			f.visitAggregation(e, children)
		}
	}
}

// addCandidate adds the expression at a location if it can be a fragment.
func (f *finder) addCandidate(at *parser.Expr, in surroundings) bool {
	if in.fixed {
		return false
	}
	p, ok := f.fragmentOf(*at, in)
	if ok {
		f.found = append(f.found, candidate{at: at, fragment: p, ordered: in.ordered})
	}
	return ok
}

func (f *finder) addAggregation(at *parser.Expr, e *parser.AggregateExpr, in surroundings) bool {
	if in.fixed {
		return false
	}
	over, ok := aggregationOf(e)
	if !ok {
		return false
	}
	in.named = in.namesReadBy(e)
	p, ok := f.fragmentOf(e.Expr, in)
	if ok {
		p.onlyPresence = p.function == "" && (e.Op == parser.COUNT || e.Op == parser.GROUP)
		f.found = append(f.found, candidate{at: at, fragment: p, over: over, inner: &e.Expr, ordered: in.ordered})
	}
	return ok
}

// visitCall visits the arguments of a function. Some functions depend on the form of their arguments.
func (f *finder) visitCall(e *parser.Call, in surroundings) {
	switch e.Func.Name {
	case "info": // depends on the times of its selectors, and on the matchers of its second argument
		if in.plain || hasNoOffsets(e.Args[0]) {
			in.plain = true
			f.visit(&e.Args[0], in)
		}
		return
	case "absent_over_time", "timestamp", "start_timestamp":
		in.fixed = true
	}
	for i := range e.Args {
		f.visit(&e.Args[i], in)
	}
}

func (f *finder) visitAggregation(e *parser.AggregateExpr, in surroundings) {
	if e.Op == parser.LIMIT_RATIO && f.delayed { // It chooses by labels that include names, which are removed later.
		return
	}
	f.visit(&e.Expr, in)
	if e.Param != nil {
		f.visit(&e.Param, in)
	}
}

// exposesNames reports whether a binary operation makes the names of its operands' series visible unless the evaluator
// removes the names immediately. Comparisons keep names. Errors about vectors that don't match contain names.
func exposesNames(e *parser.BinaryExpr) bool {
	return e.VectorMatching != nil || e.Op.IsComparisonOperator() && !e.ReturnBool
}

// callReadsNames reports whether a function reads the names of its arguments' series, or adds them to annotations.
func callReadsNames(e *parser.Call) bool {
	switch e.Func.Name {
	case "label_replace", "label_join", "sort_by_label", "sort_by_label_desc", "info":
		return true
	}
	over := slices.Contains(e.Func.ArgTypes, parser.ValueTypeMatrix) && !strings.HasSuffix(e.Func.Name, "_over_time")
	return over || strings.HasPrefix(e.Func.Name, "histogram_")
}

// namesReadBy reports whether an aggregation, or the expression around it, may read the names of its operand's series.
// Most aggregations return series without names.
func (s surroundings) namesReadBy(e *parser.AggregateExpr) bool {
	byName := !e.Without && slices.Contains(e.Grouping, labels.MetricName)
	switch e.Op {
	case parser.COUNT_VALUES, parser.LIMIT_RATIO:
		return true
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK:
		return byName || s.named
	}
	return byName
}

// hasNoOffsets reports whether no selector in an expression has an offset or @ modifier, and there is no subquery.
func hasNoOffsets(expr parser.Expr) bool {
	plain := true
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch e := n.(type) {
		case *parser.VectorSelector:
			plain = plain && e.Timestamp == nil && e.StartOrEnd == 0 && e.OriginalOffset == 0 &&
				e.OriginalOffsetExpr == nil
		case *parser.SubqueryExpr:
			plain = false
		}
		return nil
	})
	return plain
}

// insideSubquery returns the surroundings of the expression of a subquery. It returns false if the expression isn't
// searched for fragments.
func (f *finder) insideSubquery(e *parser.SubqueryExpr, in surroundings) (surroundings, bool) {
	if !areWholeMilliseconds(e.OriginalOffset, e.Range, e.Step) {
		return surroundings{}, false
	}
	offset, width := e.OriginalOffset.Milliseconds(), e.Range.Milliseconds()
	step := e.Step.Milliseconds()
	if step == 0 {
		step = subqueryInterval.Milliseconds()
	}
	first, last := in.grid.first, in.grid.last()
	if e.Timestamp != nil {
		if in.grid.n > 1 || in.skewed {
			return surroundings{}, false // The evaluator moves the subquery along with its own steps.
		}
		first, last = *e.Timestamp, *e.Timestamp
		in.from = first
	}
	first, last = first-offset-width, last-offset
	start := step * (first / step)
	if start <= first {
		start += step
	}
	if last < start {
		return surroundings{}, false
	}
	in.skewed = start == in.grid.first
	in.grid = steps{first: start, step: step, n: int((last-start)/step) + 1}
	in.from -= offset + width
	return in, true
}

// fragmentOf returns the fragment of an expression, if there is one.
func (f *finder) fragmentOf(expr parser.Expr, in surroundings) (*fragment, bool) {
	if in.grid.n > maxSteps {
		return nil, false
	}
	switch e := expr.(type) {
	case *parser.VectorSelector:
		if !in.allowsSelector(e) {
			return nil, false
		}
		p := &fragment{expr: e, width: f.lookback.Milliseconds()}
		p.setSteps(e, in)
		return p, true
	case *parser.Call:
		return f.callFragment(e, in)
	default:
		return nil, false
	}
}

// allowsSelector reports whether a fragment may read the series that the selector selects.
func (s surroundings) allowsSelector(e *parser.VectorSelector) bool {
	return !e.Anchored && !e.Smoothed && (e.Timestamp == nil || !s.skewed) && areWholeMilliseconds(e.OriginalOffset)
}

// areWholeMilliseconds reports whether all durations are whole milliseconds. The evaluator computes in milliseconds and
// rounds all other durations, which expressions may produce.
func areWholeMilliseconds(all ...time.Duration) bool {
	for _, d := range all {
		if d%time.Millisecond != 0 {
			return false
		}
	}
	return true
}

// functionsUsingStarts are the functions that use start timestamps if the evaluator's option is set.
var functionsUsingStarts = map[string]bool{"rate": true, "irate": true, "increase": true, "resets": true}

// callFragment returns the fragment of a function over a range selector.
func (f *finder) callFragment(e *parser.Call, in surroundings) (*fragment, bool) {
	p := &fragment{expr: e, function: e.Func.Name, args: make(parser.Expressions, len(e.Args))}
	switch p.function {
	case "absent_over_time", "info", "label_replace", "label_join":
		return nil, false
	}
	p.usesStarts = f.starts && functionsUsingStarts[p.function]
	if promengine.FunctionCalls[p.function] == nil || (f.delayed && in.named && !p.keepsName()) {
		return nil, false
	}
	var matrix *parser.MatrixSelector
	for i, arg := range e.Args {
		p.args[i] = arg
		if m, ok := arg.(*parser.MatrixSelector); ok && matrix == nil {
			selector := *m.VectorSelector.(*parser.VectorSelector)
			if !in.allowsSelector(&selector) || !areWholeMilliseconds(m.Range) {
				return nil, false
			}
			// Functions read the offset from the selector, where the evaluator sets it only during evaluation.
			p.width = m.Range.Milliseconds()
			p.setSteps(&selector, in)
			selector.Offset = time.Duration(p.eval.first-p.edges.first) * time.Millisecond
			matrix = &parser.MatrixSelector{VectorSelector: &selector, Range: m.Range, RangeExpr: m.RangeExpr,
				EndPos: m.EndPos}
			p.args[i] = matrix
			continue
		}
		v, ok := constantValue(arg)
		if !ok {
			return nil, false
		}
		p.scalars = append(p.scalars, promengine.Vector{promengine.Sample{F: v}})
	}
	return p, matrix != nil
}

// setSteps sets the fields of the fragment that depend on its selector and on the evaluation times.
func (f *fragment) setSteps(e *parser.VectorSelector, in surroundings) {
	offset := e.OriginalOffset.Milliseconds()
	f.matchers, f.eval, f.edges, f.onlyStats = e.LabelMatchers, in.grid, in.grid, e.SkipHistogramBuckets
	from := in.from
	if e.Timestamp != nil {
		f.edges.first, f.edges.step, from = *e.Timestamp, 0, *e.Timestamp
	}
	f.edges.first -= offset
	f.minT = from - offset - f.width + 1
}

// constantValue returns the value of an expression that is the same at every step and reads no series.
func constantValue(expr parser.Expr) (float64, bool) {
	switch e := expr.(type) {
	case *parser.NumberLiteral:
		return e.Val, true
	case *parser.ParenExpr:
		return constantValue(e.Expr)
	case *parser.StepInvariantExpr:
		return constantValue(e.Expr)
	case *parser.UnaryExpr:
		v, ok := constantValue(e.Expr)
		if e.Op == parser.SUB {
			v = -v
		}
		return v, ok
	case *parser.BinaryExpr:
		a, ok := constantValue(e.LHS)
		if !ok {
			return 0, false
		}
		b, ok := constantValue(e.RHS)
		if !ok {
			return 0, false
		}
		switch e.Op {
		case parser.ADD:
			return a + b, true
		case parser.SUB:
			return a - b, true
		case parser.MUL:
			return a * b, true
		case parser.DIV:
			return a / b, true
		}
	}
	return 0, false
}
