package promql

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/storage/meter"
)

// Prometheus' evaluator bounds the samples of a query, not the labels that its functions make:
//
//	label_join(label_join(m, "a", "", "a", "a"), "a", "", "a", "a")
//
// makes a label four times as long as it was, for each series, in loops that don't check the context. Nested twenty times, a
// kilobyte of query makes gigabytes. So before a function runs, growth computes an upper bound of the bytes of labels that it makes:
// from the expression, and from the labels of the series that were selected for it. If all functions of the query together
// would make more than the query may read, the query ends.
//
// The bound holds for what the evaluator does in one piece: all series of label_join and label_replace, and one step of a join
// or of info. Between two steps the evaluator checks the context, which pressure cancels.

// maxMadeValue bounds one value that a function makes, bytes: four times the longest that can be stored. Prometheus'
// labels can't encode values of more than 16 MiB, and panic.
const maxMadeValue = 64 << 10

// labelOverhead is what a label takes besides its name and value, bytes, and seriesOverhead what a series takes besides its
// labels.
const (
	labelOverhead  = 2
	seriesOverhead = 128
)

// labelSizes are upper bounds of the labels of an expression's series. They are floats since products of nested functions
// overflow integers.
type labelSizes struct {
	series float64
	// bytes is the size of all labels of all series, widest that of one series.
	bytes, widest float64
	values        map[string]valueSizes // by label
}

// valueSizes are the bytes of the values of a label: of all series together, and of one.
type valueSizes struct{ bytes, longest float64 }

// add adds a series; each: the values of each label are wanted.
func (s *labelSizes) add(ls labels.Labels, each bool) {
	size := float64(ls.ByteSize())
	s.series++
	s.bytes += size
	s.widest = max(s.widest, size)
	if !each {
		return
	}
	if s.values == nil {
		s.values = map[string]valueSizes{}
	}
	ls.Range(func(l labels.Label) {
		v, n := s.values[l.Name], float64(len(l.Value))
		s.values[l.Name] = valueSizes{v.bytes + n, max(v.longest, n)}
	})
}

func (s labelSizes) clone() labelSizes {
	s.values = maps.Clone(s.values)
	return s
}

// set replaces the values of a label.
func (s *labelSizes) set(name string, v valueSizes) {
	if s.values == nil {
		s.values = map[string]valueSizes{}
	}
	v.bytes = min(v.bytes, s.series*v.longest)
	old, known := s.values[name]
	s.bytes += v.bytes - old.bytes
	s.widest += v.longest
	if !known {
		s.bytes += s.series * float64(len(name)+labelOverhead)
		s.widest += float64(len(name) + labelOverhead)
	}
	s.values[name] = v
	s.settle()
}

// settle lowers the bounds to the sums over the labels.
func (s *labelSizes) settle() {
	bytes, widest := 0.0, 0.0
	for name, v := range s.values {
		bytes += v.bytes + s.series*float64(len(name)+labelOverhead+encodedLength)
		widest += v.longest + float64(len(name)+labelOverhead+encodedLength)
	}
	s.bytes, s.widest = min(s.bytes, bytes), min(s.widest, widest)
}

// encodedLength is what the lengths of a name and a value take if they are long.
const encodedLength = 8

// union adds the series of another expression.
func (s *labelSizes) union(o labelSizes) {
	s.series, s.bytes, s.widest = s.series+o.series, s.bytes+o.bytes, max(s.widest, o.widest)
	if s.values == nil {
		s.values = o.values
		return
	}
	for name, v := range o.values {
		own := s.values[name]
		s.values[name] = valueSizes{own.bytes + v.bytes, max(own.longest, v.longest)}
	}
}

// growth bounds the labels that a query makes. A nil growth bounds nothing: none of the query's functions makes labels.
type growth struct {
	expr  *parser.Expr
	limit float64
	// each: some function makes labels of others, by their names.
	each bool
	// selected are the series of the selectors, by the address of the first matcher, and of info what its own selectors found.
	selected map[**labels.Matcher]*labelSizes
	info     labelSizes
	sources  map[*parser.Call]*labelSource
	// args are the arguments of calls as they were: the evaluator replaces subqueries by their results.
	args map[*parser.Call]parser.Expressions

	begun bool // the evaluation
	made  float64
	err   error
}

// check computes the bound from the series that are known by now.
func (g *growth) check() error {
	if g == nil || g.err != nil {
		return g.failed()
	}
	g.made = 0
	g.of(*g.expr)
	return g.err
}

func (g *growth) failed() error {
	if g == nil {
		return nil
	}
	return g.err
}

// begin checks once, when the evaluator reads the first selector: all series have been selected by then.
func (g *growth) begin() error {
	if g.begun {
		return g.err
	}
	g.begun = true
	return g.check()
}

// charge adds the bytes that a function makes.
func (g *growth) charge(function string, bytes float64) {
	if g.made += bytes; g.err == nil && !(g.made <= g.limit) {
		g.err = fmt.Errorf("%w: %s would create more than %.0f bytes of labels; select fewer series or shorter labels, or raise --query.max-bytes",
			meter.ErrQueryTooLarge, function, g.limit)
	}
}

// chargeValue checks one value that a function makes.
func (g *growth) chargeValue(function, label string, bytes float64) {
	if g.err == nil && !(bytes <= maxMadeValue) {
		g.err = fmt.Errorf("%w: %s may create a value of label %q longer than %d bytes", meter.ErrQueryTooLarge, function, label, maxMadeValue)
	}
}

// of returns the labels of an expression, and charges those that it makes.
func (g *growth) of(expr parser.Expr) labelSizes {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return g.of(e.Expr)
	case *parser.StepInvariantExpr:
		return g.of(e.Expr)
	case *parser.UnaryExpr:
		return g.of(e.Expr)
	case *parser.SubqueryExpr:
		return g.of(e.Expr)
	case *parser.MatrixSelector:
		return g.of(e.VectorSelector)
	case *parser.VectorSelector:
		if s := g.selected[keyOf(e.LabelMatchers)]; s != nil {
			return s.clone()
		}
		return labelSizes{}
	case *parser.AggregateExpr:
		return g.ofAggregation(e)
	case *parser.BinaryExpr:
		return g.ofBinary(e)
	case *parser.Call:
		return g.ofCall(e)
	}
	return labelSizes{series: 1}
}

func (g *growth) ofAggregation(e *parser.AggregateExpr) labelSizes {
	s := g.of(e.Expr)
	if e.Param != nil {
		g.of(e.Param)
	}
	switch {
	case slices.Contains([]parser.ItemType{parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO}, e.Op):
		return s
	case !e.Without && len(e.Grouping) == 0:
		return labelSizes{series: 1}
	case !g.each:
		return s
	}
	maps.DeleteFunc(s.values, func(name string, _ valueSizes) bool { return slices.Contains(e.Grouping, name) == e.Without })
	s.settle()
	return s
}

func (g *growth) ofBinary(e *parser.BinaryExpr) labelSizes {
	left, right := g.of(e.LHS), g.of(e.RHS)
	m := e.VectorMatching
	switch {
	case e.LHS.Type() != parser.ValueTypeVector:
		return right
	case e.RHS.Type() != parser.ValueTypeVector, m == nil:
		return left
	case e.Op == parser.LOR:
		left.union(right)
		return left
	case e.Op.IsSetOperator():
		return left
	}
	many, one := left, right
	if m.Card == parser.CardOneToMany {
		many, one = right, left
	}
	if m.FillValues.LHS != nil || m.FillValues.RHS != nil {
		many.union(one.clone())
	}
	if m.Card == parser.CardOneToOne {
		return many // Some labels of one side; and each series has one partner.
	}
	name := "group_left"
	if m.Card == parser.CardOneToMany {
		name = "group_right"
	}
	g.charge(name, many.bytes+many.series*one.widest) // The evaluator keeps the labels of each pair.
	for _, label := range m.Include {
		v := one.values[label]
		many.set(label, valueSizes{many.series * v.longest, v.longest})
	}
	g.charge(name, many.bytes)
	return many
}

func (g *growth) ofCall(e *parser.Call) labelSizes {
	if source := g.sources[e]; source != nil {
		g.of(e.Args[0])
		if source.counts != nil {
			g.charge(e.Func.Name, source.sizes.bytes+source.sizes.series*source.room)
		}
		return source.sizes.clone()
	}
	if args := g.args[e]; args != nil {
		e = &parser.Call{Func: e.Func, Args: args}
	}
	switch e.Func.Name {
	case "label_join":
		return g.ofJoin(e)
	case "label_replace":
		return g.ofReplace(e)
	case "info":
		return g.ofInfo(e)
	case "absent", "absent_over_time":
		g.of(e.Args[0])
		return ofAbsent(e.Args[0])
	}
	var s labelSizes
	for _, arg := range e.Args {
		if own := g.of(arg); arg.Type() == parser.ValueTypeVector || arg.Type() == parser.ValueTypeMatrix {
			s.union(own)
		}
	}
	if e.Func.Name == "histogram_quantiles" {
		n := float64(len(e.Args) - 2)
		s.series, s.bytes = s.series*n, s.bytes*n
		for name, v := range s.values {
			s.values[name] = valueSizes{v.bytes * n, v.longest}
		}
		s.set(textOf(e.Args[1]), valueSizes{s.series * longestFloat, longestFloat})
		g.charge(e.Func.Name, s.bytes)
	}
	s.series = max(s.series, 1) // vector and time make one of nothing.
	return s
}

// longestFloat is the longest text of a number as a label's value.
const longestFloat = 330

// ofJoin is of label_join(v, dst, separator, src…).
func (g *growth) ofJoin(e *parser.Call) labelSizes {
	s := g.of(e.Args[0])
	dst, between := textOf(e.Args[1]), float64(len(textOf(e.Args[2]))*max(0, len(e.Args)-4))
	v := valueSizes{s.series * between, between}
	for _, src := range e.Args[3:] {
		from := s.values[textOf(src)]
		v.bytes, v.longest = v.bytes+from.bytes, v.longest+from.longest
	}
	g.chargeValue(e.Func.Name, dst, v.longest)
	s.set(dst, v)
	g.charge(e.Func.Name, s.bytes)
	return s
}

// ofReplace is of label_replace(v, dst, replacement, src, regex): each reference to a group expands to the source at most. Where
// the expression doesn't match, the label stays what it was.
func (g *growth) ofReplace(e *parser.Call) labelSizes {
	s := g.of(e.Args[0])
	dst, text, src := textOf(e.Args[1]), textOf(e.Args[2]), textOf(e.Args[3])
	references, from, old := float64(strings.Count(text, "$")), s.values[src], s.values[dst]
	v := valueSizes{s.series*float64(len(text)) + references*from.bytes, float64(len(text)) + references*from.longest}
	g.chargeValue(e.Func.Name, dst, v.longest)
	v.longest = max(v.longest, old.longest)
	if src != dst || references == 0 {
		v.bytes += old.bytes
	}
	s.set(dst, v)
	g.charge(e.Func.Name, s.bytes)
	return s
}

// ofInfo is of info(v, selector), which adds labels of the info series to each series: those that the selector names, or all.
func (g *growth) ofInfo(e *parser.Call) labelSizes {
	s := g.of(e.Args[0])
	var named []string
	if len(e.Args) > 1 {
		if selector, ok := e.Args[1].(*parser.VectorSelector); ok {
			for _, m := range selector.LabelMatchers {
				named = append(named, m.Name)
			}
			named = slices.DeleteFunc(named, func(name string) bool { return name == labels.MetricName })
		}
	}
	for label, v := range g.info.values {
		if label != labels.MetricName && (len(named) == 0 || slices.Contains(named, label)) {
			old := s.values[label]
			s.set(label, valueSizes{old.bytes + s.series*v.longest, max(old.longest, v.longest)})
		}
	}
	g.charge(e.Func.Name, s.bytes)
	return s
}

// ofAbsent returns the labels that absent makes of a selector's matchers.
func ofAbsent(arg parser.Expr) labelSizes {
	s := labelSizes{series: 1}
	switch e := arg.(type) {
	case *parser.ParenExpr:
		return ofAbsent(e.Expr)
	case *parser.StepInvariantExpr:
		return ofAbsent(e.Expr)
	case *parser.MatrixSelector:
		return ofAbsent(e.VectorSelector)
	case *parser.VectorSelector:
		for _, m := range e.LabelMatchers {
			if m.Type == labels.MatchEqual {
				s.bytes += float64(len(m.Name) + len(m.Value) + labelOverhead + encodedLength)
				s.widest = s.bytes
				if s.values == nil {
					s.values = map[string]valueSizes{}
				}
				s.values[m.Name] = valueSizes{float64(len(m.Value)), float64(len(m.Value))}
			}
		}
	}
	return s
}

// textOf returns the text of an argument that is one.
func textOf(expr parser.Expr) string {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return textOf(e.Expr)
	case *parser.StepInvariantExpr:
		return textOf(e.Expr)
	case *parser.StringLiteral:
		return e.Val
	}
	return ""
}

// keyOf returns the address of the first matcher of a selector; nil: it has none, as the second argument of info may.
func keyOf(matchers []*labels.Matcher) **labels.Matcher {
	if len(matchers) == 0 {
		return nil
	}
	return &matchers[0]
}

// observe notes the labels of the series that were selected. A selector that isn't in the query is one of info's.
func (g *growth) observe(ctx context.Context, set promstorage.SeriesSet, matchers []*labels.Matcher) promstorage.SeriesSet {
	if g == nil {
		return set
	}
	into, known := g.selected[keyOf(matchers)]
	if !known {
		into = &g.info
	}
	switch all := set.(type) {
	case *fragmentSet:
		for _, s := range all.result.series {
			into.add(s.metric, g.each)
		}
	case *seriesSet:
		for i := range all.series {
			if i%cancelEvery == 0 && ctx.Err() != nil {
				break // The set has an error then.
			}
			into.add(all.series[i].labels, g.each)
		}
	}
	if !known {
		if err := g.check(); err != nil {
			return promstorage.ErrSeriesSet(err)
		}
	}
	return &growthSet{SeriesSet: set, growth: g}
}

// growthSet is a SeriesSet that fails where the query would make too many labels.
type growthSet struct {
	promstorage.SeriesSet
	growth *growth
}

// Next implements promstorage.SeriesSet.
func (s *growthSet) Next() bool { return s.growth.begin() == nil && s.SeriesSet.Next() }

// Err implements promstorage.SeriesSet.
func (s *growthSet) Err() error {
	if err := s.growth.begin(); err != nil {
		return err
	}
	return s.SeriesSet.Err()
}
