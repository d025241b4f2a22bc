package promql

import (
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
)

// For some expressions the number of series is known only after they are computed: count_values, info, and joins that
// add labels from the other operand have different series at each step. Two functions, whose names can't occur in a
// query, count these series step by step:
//
//	count_values("v", m)                  ──►  count_values(m), a function that counts the series it makes
//	label_join(a * group_left(x) b, …)    ──►  label_join(counted(a * group_left(x) b), …)

const (
	countValuesName = "count_values"
	countedName     = "counted labels"
)

// labelSources maps the address of the first argument of a call, *parser.Expr, to its *labelSource, for all running
// queries. The arguments are the only values of a query that the evaluator passes to a function.
var labelSources sync.Map

func init() { // Before any query is evaluated: the table isn't safe for concurrent changes.
	promengine.FunctionCalls[countValuesName] = func(
		vectors []promengine.Vector, _ promengine.Matrix, args parser.Expressions, enh *promengine.EvalNodeHelper,
	) (promengine.Vector, annotations.Annotations) {
		return sourceOf(args).countValues(vectors[0], enh.Out), nil
	}
	promengine.FunctionCalls[countedName] = func(
		vectors []promengine.Vector, _ promengine.Matrix, args parser.Expressions, enh *promengine.EvalNodeHelper,
	) (promengine.Vector, annotations.Annotations) {
		source := sourceOf(args)
		for i := range vectors[0] {
			source.countSeries(vectors[0][i].Metric.Hash(), vectors[0][i].Metric)
		}
		return append(enh.Out, vectors[0]...), nil
	}
}

func sourceOf(args parser.Expressions) *labelSource {
	source, _ := labelSources.Load(&args[0]) // The entry exists while the query runs.
	return source.(*labelSource)
}

// labelSource counts the series that an expression makes.
type labelSource struct {
	growth *growth
	// room is the memory that the evaluator needs for each series in addition to its labels, in bytes.
	room    float64
	sizes   labelSizes
	checked float64 // memory of all series at the last check, in bytes
	seen    map[uint64]labels.Labels

	// counts is the count_values aggregation that the source computes. nil: the source only counts series.
	counts   *parser.AggregateExpr
	label    string
	grouping []string
	builder  *labels.Builder
	buffer   []byte
}

// uncheckedBytes is the number of bytes that an expression may make before the first check.
const uncheckedBytes = 64 << 10

// countSeries counts a series if its key is new. It ends the query if the query would make too many labels.
func (s *labelSource) countSeries(key uint64, ls labels.Labels) {
	if _, known := s.seen[key]; known {
		return
	}
	s.seen[key] = ls
	s.sizes.add(ls, s.growth.each)
	if bytes := s.sizes.bytes + s.sizes.series*s.room; bytes > uncheckedBytes && bytes > 1.25*s.checked {
		s.checked = bytes
		if err := s.growth.check(); err != nil {
			panic(err) // The evaluator returns err as the query's error.
		}
	}
}

// countValues computes one step of count_values, as the evaluator does.
func (s *labelSource) countValues(vector, out promengine.Vector) promengine.Vector {
	at := make(map[uint64]int, len(vector)) // index in out
	for i := range vector {
		s.builder.Reset(vector[i].Metric)
		if h := vector[i].H; h == nil {
			s.builder.Set(s.label, strconv.FormatFloat(vector[i].F, 'f', -1, 64))
		} else {
			value := h.String()
			if s.growth.chargeValue(countValuesName, s.label, float64(len(value))); s.growth.err != nil {
				panic(s.growth.err)
			}
			s.builder.Set(s.label, value)
		}
		metric := s.builder.Labels()
		var key uint64
		if s.counts.Without {
			key, s.buffer = metric.HashWithoutLabels(s.buffer, s.grouping...)
		} else {
			key, s.buffer = metric.HashForLabels(s.buffer, s.grouping...)
		}
		if k, known := at[key]; known {
			out[k].F++
			continue
		}
		group, known := s.seen[key]
		if !known {
			s.builder.Reset(metric)
			if s.counts.Without {
				s.builder.Del(s.grouping...).Del(labels.MetricName)
			} else {
				s.builder.Keep(s.grouping...)
			}
			group = s.builder.Labels()
			s.countSeries(key, group)
		}
		at[key] = len(out)
		out = append(out, promengine.Sample{Metric: group, F: 1})
	}
	return out
}

// growthOf returns the growth of the plan's query, and inserts sources into the query. It returns nil if none of the
// query's functions makes labels.
func (p *plan) growthOf() *growth {
	g := &growth{
		expr: &p.stmt.Expr, limit: float64(p.queryable.store.QueryBytes()),
		selected: map[**labels.Matcher]*labelSizes{}, sources: map[*parser.Call]*labelSource{},
		args: map[*parser.Call]parser.Expressions{},
	}
	visitor := growthVisitor{plan: p, growth: g}
	visitor.visit(&p.stmt.Expr, evaluationTimes{p.stmt.End.Sub(p.stmt.Start).Milliseconds(),
		max(1, p.stmt.Interval.Milliseconds())})
	if !visitor.makes {
		return nil
	}
	return g
}

// growthVisitor visits an expression, finds its selectors, and inserts sources.
type growthVisitor struct {
	*plan
	growth *growth
	makes  bool // some function makes labels
}

// evaluationTimes describes the times at which an expression is evaluated, in milliseconds: span is the time from the
// first to the last, step the interval between consecutive times.
type evaluationTimes struct{ span, step int64 }

// visit finds the selectors in the expression and inserts sources. It reports whether the expression may have different
// series at each step.
func (v *growthVisitor) visit(at *parser.Expr, in evaluationTimes) (varies bool) {
	switch e := (*at).(type) {
	case *parser.ParenExpr:
		return v.visit(&e.Expr, in)
	case *parser.StepInvariantExpr:
		return v.visit(&e.Expr, evaluationTimes{0, in.step})
	case *parser.UnaryExpr:
		return v.visit(&e.Expr, in)
	case *parser.SubqueryExpr:
		step := e.Step.Milliseconds()
		if step == 0 {
			step = subqueryInterval.Milliseconds()
		}
		return v.visit(&e.Expr, evaluationTimes{in.span + e.Range.Milliseconds(), max(1, step)})
	case *parser.MatrixSelector:
		return v.visit(&e.VectorSelector, in)
	case *parser.VectorSelector:
		v.growth.selected[selectorKey(e.LabelMatchers)] = &labelSizes{}
	case *parser.AggregateExpr:
		varies = v.visit(&e.Expr, in)
		if e.Op == parser.COUNT_VALUES {
			return v.replaceCountValues(at, e, in)
		}
		if e.Param != nil {
			v.visit(&e.Param, in)
		}
	case *parser.BinaryExpr:
		left, right := v.visit(&e.LHS, in), v.visit(&e.RHS, in)
		return left || right || v.addsLabels(e) && in.span > 0
	case *parser.Call:
		return v.visitCall(e, in)
	}
	return varies
}

// addsLabels reports whether a binary operation adds labels of one operand's series to the other's.
func (v *growthVisitor) addsLabels(e *parser.BinaryExpr) bool {
	m := e.VectorMatching
	if m == nil || m.Card != parser.CardManyToOne && m.Card != parser.CardOneToMany {
		return false
	}
	v.makes = true
	v.growth.each = v.growth.each || len(m.Include) > 0
	return len(m.Include) > 0
}

func (v *growthVisitor) visitCall(e *parser.Call, in evaluationTimes) (varies bool) {
	for i := range e.Args {
		varies = v.visit(&e.Args[i], in) || varies
	}
	defer func() { v.growth.args[e] = slices.Clone(e.Args) }()
	switch e.Func.Name {
	case "histogram_quantiles":
		v.makes, v.growth.each = true, true
	case "info":
		v.makes, v.growth.each = true, true
		return varies || in.span > 0
	case "label_join", "label_replace":
		v.makes, v.growth.each = true, true
		if varies {
			v.insertSource(&e.Args[0], countedName, e.Args[0], &labelSource{})
			return false
		}
	}
	return varies
}

// replaceCountValues replaces an aggregation by the function that counts the series it makes.
func (v *growthVisitor) replaceCountValues(at *parser.Expr, e *parser.AggregateExpr, in evaluationTimes) (varies bool) {
	label := stringLiteral(e.Param)
	if !model.UTF8Validation.IsValidLabelName(label) {
		return varies // The evaluator rejects e.
	}
	v.makes = true
	grouping := slices.Clone(e.Grouping)
	if !e.Without {
		grouping = append(grouping, label)
	}
	slices.Sort(grouping)
	const maxReserved = 5000 // points, the same as in the evaluator
	points := min(in.span/in.step+1, maxReserved)
	v.insertSource(at, countValuesName, e.Expr, &labelSource{
		counts: e, label: label, grouping: grouping, builder: labels.NewBuilder(labels.EmptyLabels()),
		room: seriesOverhead + 16*float64(points),
	})
	return false
}

// insertSource replaces the expression at a location in the query by a call of function with the argument arg, and
// makes s the source of this call.
func (v *growthVisitor) insertSource(at *parser.Expr, function string, arg parser.Expr, s *labelSource) {
	call := &parser.Call{
		Func: &parser.Function{Name: function, ArgTypes: []parser.ValueType{parser.ValueTypeVector},
			ReturnType: parser.ValueTypeVector},
		Args: parser.Expressions{arg}, PosRange: (*at).PositionRange(),
	}
	s.growth, s.seen = v.growth, map[uint64]labels.Labels{}
	v.growth.sources[call] = s
	labelSources.Store(&call.Args[0], s)
	v.replaced = append(v.replaced, replacement{at: at, was: *at})
	*at = call
}

// removeSources removes the query's sources from labelSources.
func (g *growth) removeSources() {
	if g != nil {
		for call := range g.sources {
			labelSources.Delete(&call.Args[0])
		}
	}
}
