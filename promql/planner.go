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

// plan computes the fragments of one query just before Prometheus' evaluator runs. It replaces each fragment by a
// placeholder: a selector from which the evaluator reads the fragment's result.
//
//	sum by (job) (rate(a[5m])) / on (job) b           histogram_quantile(0.9, rate(h[5m]))
//	└──────────┬─────────────┘            └┬┘                                 └─────┬────┘
//	   ┌───────▼───────┐           ┌───────▼───────┐                        ┌───────▼───────┐
//	   │ placeholder 0 │ / on(job) │ placeholder 1 │ histogram_quantile(0.9,│ placeholder 0 │)
//	   └───────────────┘           └───────────────┘                        └───────────────┘
//
// A plan is the Queryable of its query. The evaluator requests a Querier from it after the query has been given a place
// to run, and before it selects any series.
type plan struct {
	queryable *Queryable
	stmt      *parser.EvalStmt
	// delayed and starts are the evaluator's options for delayed name removal and start timestamps, see finder.
	delayed, starts bool
	// noSnap is true if windows aren't moved while raw samples exist.
	noSnap bool
	// unordered is Options.NoOrder.
	unordered bool
	budget    budget
	gate      *gate // nil: workers aren't shared with other queries

	ctx context.Context // of Exec

	mu       sync.Mutex
	results  map[*labels.Matcher]*fragmentResult // by placeholder
	replaced []replacement
	stats    []FragmentStats
	answer   *wholeAnswer // nil: the evaluator makes the query's answer
	// operations are the operations whose results the evaluator reads.
	operations map[*fragmentResult]bool
	// loaded is the number of values that fragments read, minus the number of values that the evaluator counts when it
	// reads the results of the fragments.
	loaded int64
	short  resolution.Shortfall
	growth *growth
}

// replacement is an expression that is replaced by a placeholder.
type replacement struct {
	at  *parser.Expr
	was parser.Expr
}

// fragmentResult is the result that the evaluator reads from a placeholder.
type fragmentResult struct {
	grid   steps
	series []*fragmentSeries
	notes  annotations.Annotations
	// inner is true if this is the result of the aggregation's operand, because the evaluator must compute the
	// aggregation.
	inner bool
	// read is set if this is the result of an operation: the number of samples that its operands read, by step. It is
	// nil if this is the result of a fragment.
	read []int
	// loaded is the fragment's part of the plan's loaded.
	loaded int64
	// selectErr occurred while searching the series, readErr while reading them.
	selectErr, readErr error
}

// mixesHistograms reports whether the result contains native histograms together with values that may not be addable to
// these histograms: floats, or histograms with custom buckets.
func (r *fragmentResult) mixesHistograms() bool {
	histograms, others := false, false
	for _, s := range r.series {
		for i, v := range s.v {
			switch {
			case i < len(s.h) && s.h[i] != nil:
				histograms, others = true, others || s.h[i].UsesCustomBuckets()
			case !isMissingValue(v):
				others = true
			}
		}
	}
	return histograms && others
}

// placeholderName is the label name in the matchers of placeholders. Placeholders are recognized by the address of a
// matcher, not by this name.
const placeholderName = "__part__"

// resolutionParams returns the parameters for choosing resolutions. The windows of an instant query, such as a rule's,
// aren't moved, because reading raw samples at its few window edges is cheap.
func (p *plan) resolutionParams() resolutionParams {
	how := resolutionParamsOf(p.ctx)
	how.noSnap = p.noSnap || !p.stmt.Start.Before(p.stmt.End)
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
	err = p.budget.meterBytes(subquerySteps(p.stmt) * meteredValue)
	if err == nil {
		err = p.computeFragments()
	}
	if err != nil {
		_ = q.Close() // The query ends with the other error.
		return nil, err
	}
	p.computeOperations()
	p.growth = p.growthOf()
	if err := p.growth.check(); err != nil { // This bounds the labels that the query makes from its own text.
		_ = q.Close() // The query ends with the other error.
		return nil, err
	}
	return planQuerier{q, p.results, !p.unordered && dependsOnOrder(p.stmt), p.growth}, nil
}

// computeFragments computes all candidates of the query, see computeFragment.
func (p *plan) computeFragments() error {
	p.results = map[*labels.Matcher]*fragmentResult{}
	candidates := findFragments(p.stmt, p.delayed, p.starts || p.hasDeltas())
	if err := p.budget.meterBytes(int64(len(candidates)) * meteredFragment); err != nil {
		return err
	}
	for _, c := range candidates {
		if err := p.computeFragment(c); err != nil {
			return err
		}
	}
	return nil
}

// computeFragment computes a candidate and replaces it by a placeholder, or leaves it to the evaluator. It returns an
// error only if the query must end.
func (p *plan) computeFragment(c candidate) error {
	start := time.Now()
	stats := FragmentStats{Expr: (*c.at).String()}
	result, err := p.computeResult(c, &stats)
	late := p.delayed && !c.keepsName() && (c.over != nil || c.at != &p.stmt.Expr)
	if late && (errors.Is(err, errHasHistograms) || err == nil && result.mixesHistograms()) {
		err = errLateNames
	}
	if errors.Is(err, errHasHistograms) {
		operand := *c.fragment
		operand.onlyPresence = false
		c.at, c.over, c.fragment = c.inner, nil, &operand
		stats.Expr = (*c.at).String()
		result, err = p.computeResult(c, &stats)
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
		stats.Refused, stats.Segments = strings.TrimPrefix(err.Error(), errNeedsEvaluator.Error()+": "), nil
		stats.selector = (&parser.VectorSelector{LabelMatchers: c.matchers}).String()
		if errors.Is(err, errRollupName) {
			stats.named = equalName(c.matchers)
		}
	default:
		p.loaded += result.loaded
		p.replaceExpr(c.at, result)
	}
	p.stats = append(p.stats, stats)
	noteFragment(p.ctx, stats)
	return nil
}

// errNeedsEvaluator means that a fragment is left to the evaluator. errSameLabels means that the evaluator will report
// duplicate labels.
var (
	errNeedsEvaluator = errors.New("promql: needs the evaluator")
	errRollupName     = fmt.Errorf("%w: the selector may match names of rollups", errNeedsEvaluator)
	errLateNames      = fmt.Errorf(
		"%w: the result has native histograms, and the feature promql-delayed-name-removal is enabled",
		errNeedsEvaluator,
	)
	errSameLabels = fmt.Errorf("%w: multiple series would have the same labels", errNeedsEvaluator)
)

func (p *plan) computeResult(c candidate, stats *FragmentStats) (*fragmentResult, error) {
	w := warningsOf(p.ctx)
	result := &fragmentResult{grid: c.eval}
	found, err := p.findSeries(c, stats, w.add)
	if errors.Is(err, errNeedsEvaluator) {
		return nil, err
	}
	if err != nil {
		result.selectErr = asPrometheus(err)
		return result, nil
	}
	if !c.hasUniqueLabels(found.series) {
		return nil, errSameLabels
	}
	held, restore := p.budget.held.Load(), found.saveUses()
	if err := found.countSeries(); err != nil {
		result.selectErr = err
		return result, nil
	}
	run := &fragmentRun{fragment: c.fragment, segments: found.segments, series: found.series, budget: &p.budget,
		workers: runtime.GOMAXPROCS(0), gate: p.gate}
	run.newReader = func(l *segment) fragmentReader { return p.newReader(l, w.add) }
	into := &collector{n: len(found.series), budget: &p.budget, all: p.newWholeAnswer(c)}
	switch {
	case c.ordered && !p.unordered:
		into.order = p.orderOf(found)
	case into.all != nil && c.over == nil:
		// The result is sorted at the end. With many series, a cached label order makes this faster.
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
	err = run.eachSeries(p.ctx, into.add)
	run.release()
	stats.Samples += run.samples()
	switch {
	case errors.Is(err, errHasHistograms), errors.Is(err, errNeedsEvaluator):
		p.budget.held.Store(held)
		restore()
		return nil, err
	case err != nil:
		result.readErr = err
	default:
		result.notes = run.notes()
		p.noteMissing(found.short, run)
		answer := into.finish(result)
		if answer != nil {
			p.answer = answer
		}
		result.loaded = run.loaded() - result.countedValues(answer)
	}
	return result, nil
}

// newReader returns the reader that computes a segment's values.
func (p *plan) newReader(l *segment, warn func(error)) fragmentReader {
	if l.Resolution == rollup.Raw {
		r := newRawReader(l.fragment, &p.budget)
		r.ctx = p.ctx
		return r
	}
	return newRollupReader(p.ctx, p.queryable.store, l, &p.budget, warn)
}

// noteMissing records which samples are missing in a fragment's answer because raw samples are no longer stored. A
// query reports all missing samples in one info.
func (p *plan) noteMissing(short resolution.Shortfall, run *fragmentRun) {
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
					From: run.segments[i].edges.first, To: run.segments[i].edges.last(),
					Widest: run.segments[i].Resolution,
					Raw:    run.segments[i].rawBoundary, LeftOut: r.leftOut, Approximated: r.approximated,
				})
			}
		}
	}
	short.ErrorBound = resolution.ErrorBound{Bounded: true, Unknown: all.Unknown, By: all.Largest}
	for _, sum := range all.Steps {
		short.ErrorBound.SumBy = max(short.ErrorBound.SumBy, sum)
	}
	p.short.Merge(short)
}

// replaceExpr replaces an expression by a placeholder for the result. The placeholder contains a number instead of the
// expression's text. That text may contain other placeholders, so texts would be quoted in texts and double in length
// at every level.
func (p *plan) replaceExpr(at *parser.Expr, result *fragmentResult) {
	placeholder := labels.MustNewMatcher(labels.MatchNotEqual, placeholderName, strconv.Itoa(len(p.replaced)))
	matchers := []*labels.Matcher{placeholder}
	if selector, ok := (*at).(*parser.VectorSelector); ok { // absent makes labels from the equality matchers.
		matchers = append(slices.Clone(selector.LabelMatchers), placeholder)
	}
	p.results[placeholder] = result
	p.replaced = append(p.replaced, replacement{at: at, was: *at})
	*at = &parser.VectorSelector{LabelMatchers: matchers, PosRange: (*at).PositionRange()}
}

// restoreStatement replaces the placeholders in the statement by the original expressions.
func (p *plan) restoreStatement() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replaced {
		*r.at = r.was
	}
	p.growth.removeSources()
	p.replaced, p.results, p.growth = nil, nil, nil
}

// planQuerier returns the results of placeholders, and passes all other selects on.
type planQuerier struct {
	promstorage.Querier
	results map[*labels.Matcher]*fragmentResult
	// ordered is true if the series of selects without a placeholder are sorted by labels.
	ordered bool
	growth  *growth
}

// Select implements promstorage.Querier.
func (q planQuerier) Select(ctx context.Context, sorted bool, hints *promstorage.SelectHints,
	matchers ...*labels.Matcher) promstorage.SeriesSet {
	if n := len(matchers); n > 0 {
		if result, ok := q.results[matchers[n-1]]; ok {
			return q.growth.observeSelected(ctx, &fragmentSet{result: result}, matchers)
		}
	}
	return q.growth.observeSelected(ctx, q.Querier.Select(ctx, sorted || q.ordered, hints, matchers...), matchers)
}
