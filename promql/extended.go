package promql

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// For times whose raw samples have expired, the evaluator computes anchored and smoothed ranges from samples that are
// reconstructed from buckets. An anchored or smoothed range uses the samples inside a window, the last sample before
// the window, and the first sample after the window. If windows start and end at bucket edges, the samples before and
// after a window are exact, and so are the first and the last reconstructed sample of each bucket. Within a bucket,
// only the corrections for resets, the number of resets and the number of changes may differ from those of the original
// samples. The bucket stores their exact values, so the error of a result is known:
//
//	window     (............................]
//	buckets  |----|----|----|----|----|----|----|
//	used         l.....last of each.............f
//	errors         | d1 | d2 | d3 | d4 | d5 |           error of the result: at most their sum
//
// If a retention boundary is inside a bucket, the whole bucket is used. The evaluator then ignores the raw samples or
// finer buckets that exist for the second part of the bucket. Samples that are reconstructed from only a part of a
// bucket wouldn't be consistent with the samples after that part: a counter would appear to be reset.

// extendedRange is an anchored or smoothed range in a query.
type extendedRange struct {
	// first and last are the right edges of the first and the last window, step is the interval between edges, in
	// milliseconds.
	first, last, step int64
	width             int64 // of the windows
}

// rangeKey identifies a range by the SelectHints of its selector.
type rangeKey struct {
	start, end, width int64
	function          string
}

type extendedKey struct{}

// withExtendedRanges returns a context that describes the anchored and smoothed ranges of a query. It returns ctx
// unchanged for a query with subqueries, because the hints of selectors in subqueries are ambiguous.
func withExtendedRanges(ctx context.Context, stmt parser.Statement) context.Context {
	s, ok := stmt.(*parser.EvalStmt)
	if !ok {
		return ctx
	}
	ranges, subqueries := map[rangeKey]*extendedErrors{}, false
	lookback := s.LookbackDelta.Milliseconds()
	parser.Inspect(s.Expr, func(node parser.Node, path []parser.Node) error {
		if _, ok := node.(*parser.SubqueryExpr); ok {
			subqueries = true
		}
		m, ok := node.(*parser.MatrixSelector)
		if !ok {
			return nil
		}
		v, ok := m.VectorSelector.(*parser.VectorSelector)
		if !ok || !v.Anchored && !v.Smoothed {
			return nil
		}
		e := extendedRange{first: timestamp.FromTime(s.Start), last: timestamp.FromTime(s.End),
			step: s.Interval.Milliseconds(), width: m.Range.Milliseconds()}
		if v.Timestamp != nil {
			e.first, e.last = *v.Timestamp, *v.Timestamp
		}
		offset := v.OriginalOffset.Milliseconds()
		e.first, e.last = e.first-offset, e.last-offset
		key := rangeKey{
			start: e.first - lookback - e.width + 1, end: e.last, width: e.width, function: innermostFunction(path),
		}
		if v.Smoothed {
			key.end += lookback
		}
		ranges[key] = &extendedErrors{extendedRange: e, function: key.function}
		return nil
	})
	if subqueries || len(ranges) == 0 {
		return ctx
	}
	return context.WithValue(ctx, extendedKey{}, ranges)
}

// innermostFunction returns the name of the innermost function on a path, as the evaluator sets it in SelectHints.
func innermostFunction(path []parser.Node) string {
	for i := len(path) - 1; i >= 0; i-- {
		switch n := path[i].(type) {
		case *parser.Call:
			return n.Func.Name
		case *parser.AggregateExpr, *parser.BinaryExpr:
			return ""
		}
	}
	return ""
}

// extendedOf returns the extendedErrors of the anchored or smoothed range whose selector has these hints, or nil if
// there is none.
func extendedOf(ctx context.Context, hints *promstorage.SelectHints) *extendedErrors {
	ranges, _ := ctx.Value(extendedKey{}).(map[rangeKey]*extendedErrors)
	if hints == nil || ranges == nil {
		return nil
	}
	return ranges[rangeKey{hints.Start, hints.End, hints.Range, hints.Func}]
}

// isAligned reports whether all windows start and end at edges of buckets.
func (e *extendedRange) isAligned(res rollup.Resolution) bool {
	width := res.Width()
	return e.first%width == 0 && e.width%width == 0 && (e.first == e.last || e.step%width == 0)
}

// lastEdge returns the right edge of the last window.
func (e *extendedRange) lastEdge() int64 {
	if e.step <= 0 {
		return e.first
	}
	return e.first + (e.last-e.first)/e.step*e.step
}

// extendedErrors collects and reports the errors of the values of an anchored or smoothed range. It is safe for
// concurrent use.
type extendedErrors struct {
	extendedRange
	function string

	mu    sync.Mutex
	short resolution.Shortfall // of all series so far
}

// recordShortfall records the times that are read from buckets instead of raw samples.
func (e *extendedErrors) recordShortfall(short resolution.Shortfall) {
	e.mu.Lock()
	defer e.mu.Unlock()
	off := e.short.ErrorBound
	e.short.Merge(short)
	e.short.ErrorBound = off
}

// bucketError is the max error that one bucket causes in a value.
type bucketError struct {
	end int64
	by  float64 // NaN if unknown
}

// bucketErrorOf returns the error caused by the samples that were made from bucket i.
func (e *extendedErrors) bucketErrorOf(b *rollup.Buckets, i int, made []float64) bucketError {
	out := bucketError{end: b.End[i], by: math.NaN()}
	if b.Flags[i]&(rollup.NotSimple|rollup.HasHistograms|rollup.Aggregated) != 0 {
		return out
	}
	var correction float64
	resets, changes := 0, 0
	for k := 1; k < len(made); k++ {
		before, v := made[k-1], made[k]
		if v < before {
			resets++
			correction += before
		}
		if v != before && (v == v || before == before) {
			changes++
		}
	}
	switch e.function {
	case "rate", "increase":
		out.by = e.correctionError(b, i, correction)
		if e.function == "rate" {
			out.by /= (time.Duration(e.width) * time.Millisecond).Seconds()
		}
	case "delta":
		out.by = 0
	case "resets":
		out.by = math.Abs(float64(resets) - float64(b.Resets[i]))
	case "changes":
		out.by = math.Abs(float64(changes) - float64(b.Changes[i]))
	}
	return out
}

// correctionError returns the error of the increase over bucket i if correction, its correction for resets, was
// computed from made samples. It returns NaN if the error is unknown.
func (e *extendedErrors) correctionError(b *rollup.Buckets, i int, correction float64) float64 {
	exact := b.Correction[i]
	by := math.Abs(correction - exact)
	if math.IsInf(exact, 0) && correction == exact {
		return 0
	}
	if !(by <= math.MaxFloat64) {
		return math.NaN()
	}
	if size := max(math.Abs(b.Min[i]), math.Abs(b.Max[i])); size > 1e15 && !math.IsInf(size, 0) && b.Resets[i] > 0 {
		// Adding a value of this size to other values rounds the sum. The rounding error remains even if the value
		// cancels out later.
		buckets := max(1, float64(e.width)/float64(b.End[i]-b.Start[i]))
		return by + 0x1p-52*size*float64(b.Count[i])*buckets
	}
	if by <= 1e-13*math.Abs(exact) {
		return 0 // rounding
	}
	return by
}

// coveredPart is the part of a bucket after a retention boundary that cuts the bucket. The whole bucket is used, so the
// finer data that is kept for this part is dropped.
type coveredPart struct {
	after, end int64 // milliseconds; end is included
	// lastT and last are the time and the value of the bucket's last sample.
	lastT int64
	last  float64
}

// addCovered records that the whole bucket i is used although e.limit cuts it. Buckets after the last window are
// skipped, because only their first sample is used.
func (e *bucketExpander) addCovered(b *rollup.Buckets, i int) {
	if e.limit < b.End[i] && b.Start[i] < e.errors.lastEdge() {
		e.covered = append(e.covered, coveredPart{after: e.limit, end: b.End[i], lastT: b.LastT[i], last: b.Last[i]})
	}
}

// isCovered reports whether a wider bucket is used instead of the bucket that ends at end, in milliseconds.
func (e *bucketExpander) isCovered(end int64) bool {
	return slices.ContainsFunc(e.covered, func(c coveredPart) bool { return c.after < end && end <= c.end })
}

// dropCovered deletes the raw samples in covered parts of buckets. If the newest sample in such a part isn't the last
// sample of the bucket, the error of the bucket is unknown.
func (e *bucketExpander) dropCovered(s *chunk.Samples) {
	for _, c := range e.covered {
		for i := len(s.T) - 1; i >= 0 && s.T[i] > c.after; i-- {
			if s.T[i] > c.end || value.IsStaleNaN(s.V[i]) {
				continue
			}
			if s.T[i] != c.lastT || math.Float64bits(s.V[i]) != math.Float64bits(c.last) {
				e.found = append(e.found, bucketError{end: c.end, by: math.NaN()})
			}
			break
		}
		var kept chunk.Samples
		kept.AppendAll(s)
		kept.Clip(math.MinInt64, c.after)
		s.Clip(c.end+1, math.MaxInt64)
		kept.AppendAll(s)
		*s = kept
	}
}

// add adds the errors of a series' buckets. If a value may be wrong, it passes the errors of all series so far to warn.
func (e *extendedErrors) add(list []bucketError, warn func(error)) {
	slices.SortFunc(list, func(a, b bucketError) int { return cmp.Compare(a.end, b.end) })
	most, unknown := 0., false
	by, sums := make([]float64, len(list)), bucketfn.Fold[float64]{}
	sums.Start(func(earlier, later float64) float64 { return earlier + later })
	for i, d := range list {
		if by[i] = d.by; !(d.by <= math.MaxFloat64) {
			by[i], unknown = 0, true
		}
	}
	for i, lo := 0, 0; i < len(list); i++ {
		for list[lo].end <= list[i].end-e.width {
			lo++
		}
		most = max(most, sums.Join(by, lo, i+1))
	}
	if most == 0 && !unknown {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	off := &e.short.ErrorBound
	off.By, off.SumBy = max(off.By, most), off.SumBy+most
	off.Bounded, off.Unknown = true, off.Unknown || unknown || math.IsInf(off.SumBy, 0)
	warn(&resolution.MissingError{Shortfall: e.short})
}
