package promql

import (
	"context"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/schema"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/stats"
)

// computeOperations computes binary operations between fragments, and between a fragment and a constant, series by
// series over all steps:
//
//	100 * placeholder 0 / placeholder 1            placeholder 2
//	└────────┬────────┘                    ──►
//	  placeholder 3 / placeholder 1
//
// The evaluator matches series again at each step. Operations whose matches differ between steps are left to the
// evaluator, and so are operations on histograms.
func (p *plan) computeOperations() {
	if p.delayed {
		return
	}
	p.operations = map[*fragmentResult]bool{}
	o := operationVisitor{plan: p}
	o.visit(&p.stmt.Expr)
}

// operationVisitor visits an expression whose fragments have been computed.
type operationVisitor struct{ *plan }

// visit computes the operations in an expression. It returns the expression's result, or nil if the evaluator computes
// it.
func (o operationVisitor) visit(at *parser.Expr) *fragmentResult {
	switch e := (*at).(type) {
	case *parser.ParenExpr:
		return o.visit(&e.Expr)
	case *parser.VectorSelector:
		if n := len(e.LabelMatchers); n > 0 {
			return o.results[e.LabelMatchers[n-1]]
		}
	case *parser.AggregateExpr:
		o.visit(&e.Expr)
	case *parser.BinaryExpr:
		return o.computeBinary(at, e)
	}
	return nil
}

// computeBinary computes e from the results of its operands. It returns nil if the evaluator must compute it.
func (o operationVisitor) computeBinary(at *parser.Expr, e *parser.BinaryExpr) *fragmentResult {
	left, right := o.visit(&e.LHS), o.visit(&e.RHS)
	op := operations[e.Op]
	if op == nil || o.ctx.Err() != nil {
		return nil
	}
	b := binaryOperation{
		op: op, compares: e.Op.IsComparisonOperator(), asBool: e.ReturnBool, matching: e.VectorMatching,
		budget: &o.budget, ctx: o.ctx,
		labels: o.queryable.store.QueryBytes(),
	}
	held, ok := o.budget.held.Load(), false
	switch {
	case left.hasOnlyFloats() && right.hasOnlyFloats() && left.grid == right.grid:
		ok = b.computeVectors(left, right)
	case left.hasOnlyFloats():
		if b.constant, ok = constantValue(e.RHS); ok {
			ok = b.computeWithConstant(left, false)
		}
	case right.hasOnlyFloats():
		if b.constant, ok = constantValue(e.LHS); ok {
			ok = b.computeWithConstant(right, true)
		}
	}
	if !ok || o.budget.meterBytes(int64(b.result.grid.n)*meteredValue) != nil {
		o.budget.held.Store(held)
		return nil
	}
	b.result.read = b.readSamples()
	for _, operand := range b.operands { // The evaluator no longer reads the operands.
		operand.series, operand.read = nil, nil
		delete(o.operations, operand)
	}
	if at == &o.stmt.Expr && o.stmt.Interval > 0 {
		o.answer = b.wholeAnswer()
	} else {
		o.operations[b.result] = true
	}
	o.replaceExpr(at, b.result)
	return b.result
}

// sizes returns the number of values of a result, by step.
func (r *fragmentResult) sizes() []int {
	n := make([]int, r.grid.n)
	for _, s := range r.series {
		for i, v := range s.v {
			if !isMissingValue(v) {
				n[s.from+i]++
			}
		}
	}
	return n
}

// countOperands adds the samples of the operations' operands to the statistics, as the evaluator does. It subtracts the
// results, which the evaluator has read instead.
func (p *plan) countOperands(samples *stats.QuerySamples) {
	for r := range p.operations {
		total := 0
		for i, n := range r.sizes() {
			samples.IncrementSamplesAtStep(i, int64(r.read[i]-n))
			samples.IncrementSamplesReadAtStep(i, int64(r.read[i]-n))
			total += r.read[i] + n
		}
		samples.UpdatePeak(total)
	}
}

// countedValues returns the number of values that the evaluator counts when it reads the result. If answer isn't nil,
// the result has been moved into answer.
func (r *fragmentResult) countedValues(answer *wholeAnswer) (n int64) {
	if answer != nil {
		for _, size := range answer.sizes {
			n += int64(size)
		}
		return n
	}
	for _, s := range r.series {
		for i, v := range s.v {
			switch {
			case !isMissingValue(v):
				n++
			case i < len(s.h) && s.h[i] != nil:
				n += int64(histogramSize(s.h[i]))
			}
		}
	}
	return n
}

// countLoaded adds the samples and buckets that fragments read to the statistics, and subtracts the values computed
// from these samples and buckets, which the evaluator has counted. The totals are distributed over the steps in
// proportion to the evaluator's counts.
func (p *plan) countLoaded(samples *stats.QuerySamples) {
	samples.TotalSamples = scaleSteps(samples.TotalSamplesPerStep, samples.TotalSamples, samples.TotalSamples+p.loaded)
	samples.SamplesRead = scaleSteps(samples.SamplesReadPerStep, samples.SamplesRead, samples.SamplesRead+p.loaded)
}

// scaleSteps scales the numbers per step in proportion, so that their sum changes from the value from to the value to.
// It returns the new sum, which is to, or 0 if to is negative. steps may be nil.
func scaleSteps(steps []int64, from, to int64) int64 {
	to = max(to, 0)
	if len(steps) == 0 || from == to {
		return to
	}
	sum, scaledSum := int64(0), int64(0)
	for i, n := range steps {
		sum += n
		next := to * int64(i+1) / int64(len(steps)) // All steps are zero.
		if from > 0 {
			next = int64(float64(to) * (float64(sum) / float64(from)))
		}
		if i == len(steps)-1 {
			next = to
		}
		steps[i], scaledSum = next-scaledSum, next
	}
	return to
}

// hasOnlyFloats reports whether r is the complete result of an expression, has no error, and contains only floats. r
// may be nil.
func (r *fragmentResult) hasOnlyFloats() bool {
	if r == nil || r.selectErr != nil || r.readErr != nil || r.inner {
		return false
	}
	for _, s := range r.series {
		if len(s.h) > 0 {
			return false
		}
	}
	return true
}

// operations are the operations on floats that are computed here. keep is false if a comparison drops the value.
var operations = map[parser.ItemType]func(a, b float64) (v float64, keep bool){
	parser.ADD:   func(a, b float64) (float64, bool) { return a + b, true },
	parser.SUB:   func(a, b float64) (float64, bool) { return a - b, true },
	parser.MUL:   func(a, b float64) (float64, bool) { return a * b, true },
	parser.DIV:   func(a, b float64) (float64, bool) { return a / b, true },
	parser.POW:   func(a, b float64) (float64, bool) { return math.Pow(a, b), true },
	parser.MOD:   func(a, b float64) (float64, bool) { return math.Mod(a, b), true },
	parser.ATAN2: func(a, b float64) (float64, bool) { return math.Atan2(a, b), true },
	parser.EQLC:  func(a, b float64) (float64, bool) { return a, a == b },
	parser.NEQ:   func(a, b float64) (float64, bool) { return a, a != b },
	parser.GTR:   func(a, b float64) (float64, bool) { return a, a > b },
	parser.LSS:   func(a, b float64) (float64, bool) { return a, a < b },
	parser.GTE:   func(a, b float64) (float64, bool) { return a, a >= b },
	parser.LTE:   func(a, b float64) (float64, bool) { return a, a <= b },
}

// binaryOperation is the state of the computation of one binary operation.
type binaryOperation struct {
	op       func(a, b float64) (v float64, keep bool)
	compares bool
	asBool   bool
	matching *parser.VectorMatching
	constant float64
	budget   *budget
	labels   int64 // bytes of labels that may still be made
	ctx      context.Context

	operands []*fragmentResult
	result   *fragmentResult
	memory   arena
	values   values
	builder  labels.Builder
	n        int // number of series computed
}

// setOperands sets the operands and an empty result.
func (b *binaryOperation) setOperands(operands ...*fragmentResult) {
	b.operands, b.result = operands, &fragmentResult{grid: operands[0].grid, notes: annotations.Annotations{}}
	for _, o := range operands {
		b.result.notes.Merge(o.notes)
	}
}

// computeWithConstant computes the operation of each series and the constant, which is the left operand if swapped. It
// returns false if the evaluator must compute it.
func (b *binaryOperation) computeWithConstant(vector *fragmentResult, swapped bool) bool {
	b.setOperands(vector)
	for _, s := range vector.series {
		b.values.reset(vector.grid.n)
		for i, v := range s.v {
			if isMissingValue(v) {
				continue
			}
			x, y := v, b.constant
			if swapped {
				x, y = y, x
			}
			if x, keep := b.op(x, y); !b.compares {
				b.setValue(s.from+i, x, keep)
			} else {
				b.setValue(s.from+i, v, keep) // A comparison keeps the vector's value, whichever operand it is.
			}
		}
		metric := s.metric
		if !b.compares || b.asBool {
			metric = metric.DropReserved(schema.IsMetadataLabel)
		}
		if !b.addSeries(metric) {
			return false
		}
	}
	return b.hasUniqueLabels()
}

// computeVectors computes the operation of two vectors by matching their series. It returns false if the evaluator must
// compute it.
func (b *binaryOperation) computeVectors(left, right *fragmentResult) bool {
	m := b.matching
	if m == nil || m.Card == parser.CardManyToMany || m.FillValues.LHS != nil || m.FillValues.RHS != nil {
		return false
	}
	many, one, swapped := left, right, m.Card == parser.CardOneToMany
	if swapped {
		many, one = right, left
	}
	matches := newMatchEncoder(m)
	partners := make(map[string]*fragmentSeries, len(one.series))
	for _, s := range one.series {
		partners[string(matches(s.metric))] = s
	}
	if len(partners) < len(one.series) {
		return false // Multiple series match, which is an error if they have values at the same step.
	}
	b.setOperands(left, right)
	matched := make(map[*fragmentSeries]bool, len(many.series))
	for _, s := range many.series {
		partner := partners[string(matches(s.metric))]
		if partner == nil {
			continue
		}
		if matched[partner] && m.Card == parser.CardOneToOne {
			return false
		}
		matched[partner] = true
		l, r := s, partner
		if swapped {
			l, r = r, l
		}
		b.computePair(l, r)
		metric := b.metricOf(s.metric, partner.metric)
		if b.labels -= int64(metric.ByteSize()); b.labels < 0 || !b.addSeries(metric) {
			return false
		}
	}
	return b.hasUniqueLabels()
}

// computePair computes the values of two series that match.
func (b *binaryOperation) computePair(l, r *fragmentSeries) {
	b.values.reset(b.result.grid.n)
	for i := max(l.from, r.from); i < min(l.from+len(l.v), r.from+len(r.v)); i++ {
		if x, y := l.v[i-l.from], r.v[i-r.from]; !isMissingValue(x) && !isMissingValue(y) {
			v, keep := b.op(x, y)
			b.setValue(i, v, keep)
		}
	}
}

// cancelEvery is the number of series after which the context is checked again.
const cancelEvery = 64

// newMatchEncoder returns a function that encodes the labels by which a series is matched. The encoding is valid until
// the next call.
func newMatchEncoder(m *parser.VectorMatching) func(labels.Labels) []byte {
	var buf []byte
	names := slices.Clone(m.MatchingLabels)
	if !m.On {
		names = append(names, labels.MetricName)
	}
	slices.Sort(names)
	return func(ls labels.Labels) []byte {
		if m.On {
			buf = ls.BytesWithLabels(buf, names...)
		} else {
			buf = ls.BytesWithoutLabels(buf, names...)
		}
		return buf
	}
}

// metricOf returns the labels of the result for the series with the labels metric and the matching series with the
// labels partner.
func (b *binaryOperation) metricOf(metric, partner labels.Labels) labels.Labels {
	b.builder.Reset(metric)
	if !b.compares || b.asBool {
		schema.Metadata{}.SetToLabels(&b.builder) // Removes the name and the other metadata labels.
	}
	switch m := b.matching; {
	case m.Card != parser.CardOneToOne:
		for _, name := range m.Include {
			b.builder.Set(name, partner.Get(name)) // An empty value removes the label.
		}
	case m.On:
		b.builder.Keep(m.MatchingLabels...)
	default:
		b.builder.Del(m.MatchingLabels...)
	}
	return b.builder.Labels()
}

// setValue sets the value of a step. kept is false if a comparison is false.
func (b *binaryOperation) setValue(step int, v float64, kept bool) {
	switch {
	case b.asBool && kept:
		v = 1
	case b.asBool:
		v = 0
	case !kept:
		return
	}
	b.values.v[step] = v
	b.values.floats++
}

// addSeries adds a series with the current values. It returns false if the query has ended or holds too many samples.
// The evaluator then reports the error.
func (b *binaryOperation) addSeries(metric labels.Labels) bool {
	if b.n++; b.n%cancelEvery == 0 && b.ctx.Err() != nil {
		return false
	}
	if b.values.floats == 0 {
		return true
	}
	b.result.series = append(b.result.series, b.memory.copySeries(metric, &b.values))
	return b.budget.chargeSamples(b.values.floats) == nil
}

// hasUniqueLabels reports whether no two series of the result have the same labels, which is an error if they have
// values at the same step.
func (b *binaryOperation) hasUniqueLabels() bool {
	seen := make(map[string]bool, len(b.result.series))
	var buf []byte
	for _, s := range b.result.series {
		buf = s.metric.Bytes(buf)
		if seen[string(buf)] {
			return false
		}
		seen[string(buf)] = true
	}
	return true
}

// readSamples returns the number of samples read by the fragments below the operation, by step.
func (b *binaryOperation) readSamples() []int {
	n := make([]int, b.result.grid.n)
	for _, o := range b.operands {
		read := o.read
		if read == nil {
			read = o.sizes()
		}
		for i := range read {
			n[i] += read[i]
		}
	}
	return n
}

// wholeAnswer moves the result, which is empty afterwards, into the answer to the whole query.
func (b *binaryOperation) wholeAnswer() *wholeAnswer {
	w := &wholeAnswer{grid: b.result.grid, sizes: make([]int, b.result.grid.n)}
	for _, s := range b.result.series {
		w.add(s.metric, s.from, s.v, nil, len(s.v), 0)
	}
	w.sizes, b.result.series = b.result.read, nil
	return w
}
