package promql

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage/rollup"
)

// plan computes the fragments of one query just before Prometheus' evaluator runs, and replaces each by a placeholder: a
// selector from which the evaluator reads the fragment's result.
//
//	sum by (job) (rate(a[5m])) / on (job) b           histogram_quantile(0.9, rate(h[5m]))
//	└──────────┬─────────────┘            └┬┘                                 └─────┬────┘
//	   ┌───────▼───────┐           ┌───────▼───────┐                        ┌───────▼───────┐
//	   │ placeholder 0 │ / on(job) │ placeholder 1 │ histogram_quantile(0.9,│ placeholder 0 │)
//	   └───────────────┘           └───────────────┘                        └───────────────┘
//
// It is the Queryable of its query: the evaluator asks it for a Querier once the query has its place among
// those that run, and before it asks for any series.
type plan struct {
	queryable *Queryable
	stmt      *parser.EvalStmt
	// delayed and starts are the evaluator's options of these names, see finder.
	delayed, starts bool
	// exact: windows aren't moved where samples are there.
	exact bool
	// unordered is Options.NoOrder.
	unordered bool
	budget    budget
	gate      *gate // nil: work isn't shared with others

	ctx context.Context // of Exec

	mu       sync.Mutex
	results  map[*labels.Matcher]*fragmentResult // by placeholder
	replaced []replacement
	stats    []FragmentStats
	answer   *whole // nil: the query isn't just one fragment
	// operations are those whose results the evaluator reads.
	operations map[*fragmentResult]bool
	// loaded counts what fragments read, less the values that the evaluator counts in its place.
	loaded int64
	short  resolution.Shortfall
	growth *growth
}

// replacement is an expression that a placeholder replaces.
type replacement struct {
	at  *parser.Expr
	was parser.Expr
}

// fragmentResult is what the evaluator reads from a placeholder.
type fragmentResult struct {
	grid   steps
	series []*fragmentSeries
	notes  annotations.Annotations
	// inner: this is the operand of the aggregation.
	inner bool
	// read counts, by step, the samples of the fragments that this is an operation on; nil: it is a fragment.
	read []int
	// loaded is what a fragment adds to that of its plan.
	loaded int64
	// selectErr came up when the series were searched, readErr when they were read.
	selectErr, readErr error
}

// mixes reports whether some of the series have native histograms that not all others can be added to.
func (r *fragmentResult) mixes() bool {
	histograms, others := false, false
	for _, s := range r.series {
		for i, v := range s.v {
			switch {
			case i < len(s.h) && s.h[i] != nil:
				histograms, others = true, others || s.h[i].UsesCustomBuckets()
			case !isNone(v):
				others = true
			}
		}
	}
	return histograms && others
}

// placeholderName is the label of the matchers of placeholders. These are recognised by their address, not by this name.
const placeholderName = "__part__"

// resolving is how resolutions are chosen. An instant query, as rules are, reads few slots that windows cut.
func (p *plan) resolving() resolving {
	how := resolvingOf(p.ctx)
	how.still = p.exact || !p.stmt.Start.Before(p.stmt.End)
	return how
}

// Querier implements promstorage.Queryable. It computes the fragments.
func (p *plan) Querier(mint, maxt int64) (promstorage.Querier, error) {
	q, err := p.queryable.Querier(mint, maxt)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.budget.meter(innerSteps(p.stmt) * meteredValue)
	if err == nil {
		err = p.computeAll()
	}
	if err != nil {
		_ = q.Close() // The query ends for another reason.
		return nil, err
	}
	p.operate()
	p.growth = p.growthOf()
	if err := p.growth.check(); err != nil { // What the query makes of its own text.
		_ = q.Close() // The query ends for another reason.
		return nil, err
	}
	return planQuerier{q, p.results, !p.unordered && dependsOnOrder(p.stmt), p.growth}, nil
}

// computeAll computes all candidates of the query, see compute.
func (p *plan) computeAll() error {
	p.results = map[*labels.Matcher]*fragmentResult{}
	candidates := find(p.stmt, p.delayed, p.starts || p.hasDeltas())
	if err := p.budget.meter(int64(len(candidates)) * meteredFragment); err != nil {
		return err
	}
	for _, c := range candidates {
		if err := p.compute(c); err != nil {
			return err
		}
	}
	return nil
}

// compute computes a candidate and puts a placeholder in its place, or leaves it to the evaluator. It returns an error
// only if the query is to end.
func (p *plan) compute(c candidate) error {
	start := time.Now()
	stats := FragmentStats{Expr: (*c.at).String()}
	result, err := p.result(c, &stats)
	late := p.delayed && !c.keepsName() && (c.over != nil || c.at != &p.stmt.Expr)
	if late && (errors.Is(err, errHistograms) || err == nil && result.mixes()) {
		err = errLateNames
	}
	if errors.Is(err, errHistograms) {
		operand := *c.fragment
		operand.counted = false
		c.at, c.over, c.fragment = c.inner, nil, &operand
		stats.Expr = (*c.at).String()
		result, err = p.result(c, &stats)
	} else if err == nil && result.inner {
		c.at, c.over = c.inner, nil
		stats.Expr = (*c.at).String()
	}
	if ctxErr := p.ctx.Err(); ctxErr != nil {
		if errors.Is(ctxErr, context.DeadlineExceeded) {
			return promengine.ErrQueryTimeout("expression evaluation")
		}
		return promengine.ErrQueryCanceled("expression evaluation")
	}
	stats.Duration = time.Since(start)
	stats.Milliseconds = float64(stats.Duration.Microseconds()) / 1000
	switch {
	case err != nil:
		stats.Refused, stats.Segments = strings.TrimPrefix(err.Error(), errLeave.Error()+": "), nil
		stats.selector = (&parser.VectorSelector{LabelMatchers: c.matchers}).String()
		if errors.Is(err, errRollupName) {
			stats.named = equalName(c.matchers)
		}
	default:
		p.loaded += result.loaded
		p.replace(c.at, result)
	}
	p.stats = append(p.stats, stats)
	noteFragment(p.ctx, stats)
	return nil
}

// errLeave means that a fragment is better left to the evaluator; errSameLabels that this will then find an error.
var (
	errLeave      = errors.New("promql: needs the evaluator")
	errRollupName = fmt.Errorf("%w: the selector may match names of rollups", errLeave)
	errLateNames  = fmt.Errorf("%w: the result has native histograms, and the feature promql-delayed-name-removal is enabled", errLeave)
	errSameLabels = fmt.Errorf("%w: multiple series would have the same labels", errLeave)
)

func (p *plan) result(c candidate, stats *FragmentStats) (*fragmentResult, error) {
	w := warningsOf(p.ctx)
	result := &fragmentResult{grid: c.eval}
	found, err := p.find(c, stats, w.add)
	if errors.Is(err, errLeave) {
		return nil, err
	}
	if err != nil {
		result.selectErr = asPrometheus(err)
		return result, nil
	}
	if !c.unique(found.series) {
		return nil, errSameLabels
	}
	held, restore := p.budget.held.Load(), found.saved()
	if err := found.count(); err != nil {
		result.selectErr = err
		return result, nil
	}
	run := &fragmentRun{fragment: c.fragment, segments: found.segments, series: found.series, budget: &p.budget, workers: runtime.GOMAXPROCS(0), gate: p.gate}
	run.newReader = func(l *segment) fragmentReader { return p.reader(l, w.add) }
	into := &collector{n: len(found.series), budget: &p.budget, all: p.wholeOf(c)}
	switch {
	case c.ordered && !p.unordered:
		into.order = p.orderOf(found)
	case into.all != nil && c.over == nil: // It is sorted in the end. Where the series are many, their order may be known.
		if order := p.orderOf(found); order.finder != nil {
			into.order = order
		}
	}
	if c.over != nil {
		into.sum = newAggregator(c.over, c.eval.n, &p.budget)
		into.sum.series = len(found.series)
		if c.over.expr.Without || len(c.over.grouping) > 0 {
			into.sum.order = into.order
		}
	}
	err = run.do(p.ctx, into.add)
	run.release()
	stats.Samples += run.samples()
	switch {
	case errors.Is(err, errHistograms), errors.Is(err, errLeave):
		p.budget.held.Store(held)
		restore()
		return nil, err
	case err != nil:
		result.readErr = err
	default:
		result.notes = run.notes()
		p.lacks(found.short, run)
		answer := into.finish(result)
		if answer != nil {
			p.answer = answer
		}
		result.loaded = run.loaded() - result.counted(answer)
	}
	return result, nil
}

// reader returns what computes a segment's values.
func (p *plan) reader(l *segment, warn func(error)) fragmentReader {
	if l.Resolution == rollup.Raw {
		r := newRawReader(l.fragment, &p.budget)
		r.ctx = p.ctx
		return r
	}
	return newRollupReader(p.ctx, p.queryable.store, l, &p.budget, warn)
}

// lacks remembers what a fragment's answer lacks for want of raw samples, for one info per query.
func (p *plan) lacks(short resolution.Shortfall, run *fragmentRun) {
	var all bucketfn.Bounds
	for _, readers := range run.readers {
		for i, reader := range readers {
			r, ok := reader.(*rollupReader)
			if !ok {
				continue
			}
			if len(r.bounds.Steps) > 0 && len(all.Steps) == 0 {
				all.Steps = make([]float64, run.fragment.eval.n)
			}
			all.Add(&r.bounds, run.segments[i].FromStep)
			if r.leftOut || r.approximated {
				p.short.Merge(resolution.Shortfall{
					From: run.segments[i].edges.first, To: run.segments[i].edges.last(), Widest: run.segments[i].Resolution,
					Raw: run.segments[i].gone, LeftOut: r.leftOut, Approximated: r.approximated,
				})
			}
		}
	}
	short.Off = resolution.Off{Bounded: true, Unknown: all.Unknown, By: all.Largest}
	for _, sum := range all.Steps {
		short.Off.SumBy = max(short.Off.SumBy, sum)
	}
	p.short.Merge(short)
}

// replace puts a placeholder for the result in the place of an expression. The placeholder has a number rather than the expression's text,
// which may contain other placeholders: each quotes what it contains, so that their text would double at every level.
func (p *plan) replace(at *parser.Expr, result *fragmentResult) {
	placeholder := labels.MustNewMatcher(labels.MatchNotEqual, placeholderName, strconv.Itoa(len(p.replaced)))
	matchers := []*labels.Matcher{placeholder}
	if selector, ok := (*at).(*parser.VectorSelector); ok { // absent makes labels of them, of those by equality.
		matchers = append(slices.Clone(selector.LabelMatchers), placeholder)
	}
	p.results[placeholder] = result
	p.replaced = append(p.replaced, replacement{at: at, was: *at})
	*at = &parser.VectorSelector{LabelMatchers: matchers, PosRange: (*at).PositionRange()}
}

// restore makes the statement what it was.
func (p *plan) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replaced {
		*r.at = r.was
	}
	p.growth.end()
	p.replaced, p.results, p.growth = nil, nil, nil
}

// planQuerier answers for placeholders, and passes everything else on.
type planQuerier struct {
	promstorage.Querier
	results map[*labels.Matcher]*fragmentResult
	// ordered: other series come in the order of their labels.
	ordered bool
	growth  *growth
}

// Select implements promstorage.Querier.
func (q planQuerier) Select(ctx context.Context, sorted bool, hints *promstorage.SelectHints, matchers ...*labels.Matcher) promstorage.SeriesSet {
	if n := len(matchers); n > 0 {
		if result, ok := q.results[matchers[n-1]]; ok {
			return q.growth.observe(ctx, &fragmentSet{result: result}, matchers)
		}
	}
	return q.growth.observe(ctx, q.Querier.Select(ctx, sorted || q.ordered, hints, matchers...), matchers)
}
