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

// Prometheus' evaluator bounds the samples of a query, but not the labels that its functions make:
//
//	label_join(label_join(m, "a", "", "a", "a"), "a", "", "a", "a")
//
// makes a label of each series four times as long, in loops that don't check the context. With twenty nested calls, a
// query of a kilobyte makes gigabytes of labels. So before a function runs, growth computes an upper bound of the bytes
// of labels that it makes, from the expression and the labels of the selected series. If all functions of the query
// together would make more than the query may read, the query ends.
//
// The bound covers all labels that the evaluator makes between two checks of the context: all series of label_join and
// label_replace, and one step of a join or of info. Between steps, the evaluator checks the context, which is canceled
// when memory is short (see pressure).

// maxMadeValue is the maximum length of a value that a function makes, in bytes: four times the longest value that can
// be stored. Prometheus' labels can't encode values of more than 16 MiB, and panic.
const maxMadeValue = 64 << 10

// labelOverhead is the memory of a label without its name and value, in bytes. seriesOverhead is the memory of a series
// without its labels.
const (
	labelOverhead  = 2
	seriesOverhead = 128
)

// labelSizes are upper bounds of the sizes of the labels of an expression's series. They are floats because products of
// nested functions overflow integers.
type labelSizes struct {
	series float64
	// bytes is the size of all labels of all series. widest is the size of the labels of the largest series.
	bytes, widest float64
	values        map[string]valueSizes // by label
}

// valueSizes are the sizes of the values of one label, in bytes: of all series together, and the largest.
type valueSizes struct{ bytes, longest float64 }

// add adds a series. each is true if the values of each label are needed.
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

// setValues replaces the values of a label.
func (s *labelSizes) setValues(name string, v valueSizes) {
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
	s.tightenBounds()
}

// tightenBounds lowers bytes and widest to the sums of the bounds of all labels, if these are smaller.
func (s *labelSizes) tightenBounds() {
	bytes, widest := 0.0, 0.0
	for name, v := range s.values {
		bytes += v.bytes + s.series*float64(len(name)+labelOverhead+encodedLength)
		widest += v.longest + float64(len(name)+labelOverhead+encodedLength)
	}
	s.bytes, s.widest = min(s.bytes, bytes), min(s.widest, widest)
}

// encodedLength is the number of bytes that encode the lengths of a long name and value.
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

// growth bounds the labels that a query makes. For a query whose functions make no labels, it is nil and sets no bound.
type growth struct {
	expr  *parser.Expr
	limit float64
	// each is true if some function makes a label from the values of other labels, so that the sizes of each label are
	// needed.
	each bool
	// selected are the sizes of the selectors' series, by the address of the first matcher. info holds the series that
	// the selectors of info find.
	selected map[**labels.Matcher]*labelSizes
	info     labelSizes
	sources  map[*parser.Call]*labelSource
	// args are the original arguments of calls: the evaluator replaces subqueries by their results.
	args map[*parser.Call]parser.Expressions

	begun bool // the evaluation has started
	made  float64
	err   error
}

// check computes the bound from the series found so far. It returns an error if the query would make too many labels.
func (g *growth) check() error {
	if g == nil || g.err != nil {
		return g.failure()
	}
	g.made = 0
	g.sizesOf(*g.expr)
	return g.err
}

func (g *growth) failure() error {
	if g == nil {
		return nil
	}
	return g.err
}

// checkOnce runs the check once, when the evaluator reads the first selector. All series have been selected by then.
func (g *growth) checkOnce() error {
	if g.begun {
		return g.err
	}
	g.begun = true
	return g.check()
}

// chargeBytes adds bytes that a function makes. It sets g.err if the query would make too many.
func (g *growth) chargeBytes(function string, bytes float64) {
	if g.made += bytes; g.err == nil && !(g.made <= g.limit) {
		g.err = fmt.Errorf(
			"%w: %s would create more than %.0f bytes of labels; select fewer series or shorter labels, or raise --query.max-bytes",
			meter.ErrQueryTooLarge, function, g.limit,
		)
	}
}

// chargeValue sets g.err if a value that a function makes is too long.
func (g *growth) chargeValue(function, label string, bytes float64) {
	if g.err == nil && !(bytes <= maxMadeValue) {
		g.err = fmt.Errorf("%w: %s may create a value of label %q longer than %d bytes", meter.ErrQueryTooLarge,
			function, label, maxMadeValue)
	}
}

// sizesOf returns the sizes of an expression's labels, and charges the labels that the expression makes.
func (g *growth) sizesOf(expr parser.Expr) labelSizes {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return g.sizesOf(e.Expr)
	case *parser.StepInvariantExpr:
		return g.sizesOf(e.Expr)
	case *parser.UnaryExpr:
		return g.sizesOf(e.Expr)
	case *parser.SubqueryExpr:
		return g.sizesOf(e.Expr)
	case *parser.MatrixSelector:
		return g.sizesOf(e.VectorSelector)
	case *parser.VectorSelector:
		if s := g.selected[selectorKey(e.LabelMatchers)]; s != nil {
			return s.clone()
		}
		return labelSizes{}
	case *parser.AggregateExpr:
		return g.sizesOfAggregation(e)
	case *parser.BinaryExpr:
		return g.sizesOfBinary(e)
	case *parser.Call:
		return g.sizesOfCall(e)
	}
	return labelSizes{series: 1}
}

func (g *growth) sizesOfAggregation(e *parser.AggregateExpr) labelSizes {
	s := g.sizesOf(e.Expr)
	if e.Param != nil {
		g.sizesOf(e.Param)
	}
	switch {
	case slices.Contains([]parser.ItemType{parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO}, e.Op):
		return s
	case !e.Without && len(e.Grouping) == 0:
		return labelSizes{series: 1}
	case !g.each:
		return s
	}
	maps.DeleteFunc(s.values, func(name string, _ valueSizes) bool {
		return slices.Contains(e.Grouping, name) == e.Without
	})
	s.tightenBounds()
	return s
}

func (g *growth) sizesOfBinary(e *parser.BinaryExpr) labelSizes {
	left, right := g.sizesOf(e.LHS), g.sizesOf(e.RHS)
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
		return many // The result has some of the labels of one side. Each series has one partner.
	}
	name := "group_left"
	if m.Card == parser.CardOneToMany {
		name = "group_right"
	}
	g.chargeBytes(name, many.bytes+many.series*one.widest) // The evaluator keeps the labels of each pair.
	for _, label := range m.Include {
		v := one.values[label]
		many.setValues(label, valueSizes{many.series * v.longest, v.longest})
	}
	g.chargeBytes(name, many.bytes)
	return many
}

func (g *growth) sizesOfCall(e *parser.Call) labelSizes {
	if source := g.sources[e]; source != nil {
		g.sizesOf(e.Args[0])
		if source.counts != nil {
			g.chargeBytes(e.Func.Name, source.sizes.bytes+source.sizes.series*source.room)
		}
		return source.sizes.clone()
	}
	if args := g.args[e]; args != nil {
		e = &parser.Call{Func: e.Func, Args: args}
	}
	switch e.Func.Name {
	case "label_join":
		return g.sizesOfJoin(e)
	case "label_replace":
		return g.sizesOfReplace(e)
	case "info":
		return g.sizesOfInfo(e)
	case "absent", "absent_over_time":
		g.sizesOf(e.Args[0])
		return sizesOfAbsent(e.Args[0])
	}
	var s labelSizes
	for _, arg := range e.Args {
		if own := g.sizesOf(arg); arg.Type() == parser.ValueTypeVector || arg.Type() == parser.ValueTypeMatrix {
			s.union(own)
		}
	}
	if e.Func.Name == "histogram_quantiles" {
		n := float64(len(e.Args) - 2)
		s.series, s.bytes = s.series*n, s.bytes*n
		for name, v := range s.values {
			s.values[name] = valueSizes{v.bytes * n, v.longest}
		}
		s.setValues(stringLiteral(e.Args[1]), valueSizes{s.series * longestFloat, longestFloat})
		g.chargeBytes(e.Func.Name, s.bytes)
	}
	s.series = max(s.series, 1) // vector and time make one series without any input.
	return s
}

// longestFloat is the maximum length of a number as a label value.
const longestFloat = 330

// sizesOfJoin returns the sizes for label_join(v, dst, separator, src…).
func (g *growth) sizesOfJoin(e *parser.Call) labelSizes {
	s := g.sizesOf(e.Args[0])
	dst, between := stringLiteral(e.Args[1]), float64(len(stringLiteral(e.Args[2]))*max(0, len(e.Args)-4))
	v := valueSizes{s.series * between, between}
	for _, src := range e.Args[3:] {
		from := s.values[stringLiteral(src)]
		v.bytes, v.longest = v.bytes+from.bytes, v.longest+from.longest
	}
	g.chargeValue(e.Func.Name, dst, v.longest)
	s.setValues(dst, v)
	g.chargeBytes(e.Func.Name, s.bytes)
	return s
}

// sizesOfReplace returns the sizes for label_replace(v, dst, replacement, src, regex): each reference to a group
// expands to at most the source. If the expression doesn't match, the label is unchanged.
func (g *growth) sizesOfReplace(e *parser.Call) labelSizes {
	s := g.sizesOf(e.Args[0])
	dst, text, src := stringLiteral(e.Args[1]), stringLiteral(e.Args[2]), stringLiteral(e.Args[3])
	references, from, old := float64(strings.Count(text, "$")), s.values[src], s.values[dst]
	v := valueSizes{s.series*float64(len(text)) + references*from.bytes, float64(len(text)) + references*from.longest}
	g.chargeValue(e.Func.Name, dst, v.longest)
	v.longest = max(v.longest, old.longest)
	if src != dst || references == 0 {
		v.bytes += old.bytes
	}
	s.setValues(dst, v)
	g.chargeBytes(e.Func.Name, s.bytes)
	return s
}

// sizesOfInfo returns the sizes for info(v, selector), which adds labels of the info series to each series: all labels,
// or the labels in the selector.
func (g *growth) sizesOfInfo(e *parser.Call) labelSizes {
	s := g.sizesOf(e.Args[0])
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
			s.setValues(label, valueSizes{old.bytes + s.series*v.longest, max(old.longest, v.longest)})
		}
	}
	g.chargeBytes(e.Func.Name, s.bytes)
	return s
}

// sizesOfAbsent returns the sizes of the labels that absent makes from a selector's matchers.
func sizesOfAbsent(arg parser.Expr) labelSizes {
	s := labelSizes{series: 1}
	switch e := arg.(type) {
	case *parser.ParenExpr:
		return sizesOfAbsent(e.Expr)
	case *parser.StepInvariantExpr:
		return sizesOfAbsent(e.Expr)
	case *parser.MatrixSelector:
		return sizesOfAbsent(e.VectorSelector)
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

// stringLiteral returns the value of an argument that is a string literal.
func stringLiteral(expr parser.Expr) string {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return stringLiteral(e.Expr)
	case *parser.StepInvariantExpr:
		return stringLiteral(e.Expr)
	case *parser.StringLiteral:
		return e.Val
	}
	return ""
}

// selectorKey returns the address of the first matcher of a selector, or nil if there is none, as may be the case for
// the second argument of info.
func selectorKey(matchers []*labels.Matcher) **labels.Matcher {
	if len(matchers) == 0 {
		return nil
	}
	return &matchers[0]
}

// observeSelected counts the labels of the selected series. A selector that isn't in the query was added by info.
func (g *growth) observeSelected(ctx context.Context, set promstorage.SeriesSet,
	matchers []*labels.Matcher) promstorage.SeriesSet {
	if g == nil {
		return set
	}
	into, known := g.selected[selectorKey(matchers)]
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
				break // The set then returns an error.
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

// growthSet is a SeriesSet that returns an error if the query would make too many labels.
type growthSet struct {
	promstorage.SeriesSet
	growth *growth
}

// Next implements promstorage.SeriesSet.
func (s *growthSet) Next() bool { return s.growth.checkOnce() == nil && s.SeriesSet.Next() }

// Err implements promstorage.SeriesSet.
func (s *growthSet) Err() error {
	if err := s.growth.checkOnce(); err != nil {
		return err
	}
	return s.SeriesSet.Err()
}
