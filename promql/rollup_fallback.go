package promql

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/labelorder"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/rollup/expand"
)

// Rollup fallback: for times whose raw samples are no longer stored, a read of samples returns as many samples as there
// were, made from buckets (see expand.Expander):
//
//	time     |........... 1h ...........|....... 5m .......|...... raw ......|
//	samples  from buckets of an hour     from 5 minutes     all
//
// The planner's answers are more precise if windows end inside buckets. The fallback serves the expressions that the
// planner leaves to the evaluator (requests of multiple tenants, some features and functions), remote read, exports and
// the plain JSON API.

// sourceSeries is a series of a SeriesSet: its raw samples and, for times without raw samples, its buckets.
type sourceSeries struct {
	labels   labels.Labels
	raw      *query.SelectedSeries // nil if it has none
	fallback []fallbackSeries
	// usesStarts is true if a function uses the start timestamps.
	usesStarts bool

	named *namedRollup // nil if the series isn't a rollup
}

// namedRollup describes a series with a rollup's name: the stored series, the aggregate, and the time until which it
// has values.
type namedRollup struct {
	stored    *query.SelectedSeries
	aggregate *aggregate
	until     int64
}

// fallbackSeries holds buckets of a series from which samples are made for a range of times, both ends included, in
// milliseconds. Other times are outside the request, or are answered at a finer resolution.
type fallbackSeries struct {
	*query.SelectedSeries
	from, to int64
	// errors, if not nil, computes the errors of values from the errors of single buckets, and passes the errors of
	// values to warn.
	errors *extendedErrors
	warn   func(error)
	// limit is the newest time for which no finer resolution has data. If limit cuts a bucket that is used as a whole,
	// limit is before to.
	limit int64
}

// appendSamples appends all samples of the series.
func (s *sourceSeries) appendSamples(into *chunk.Samples) error {
	if s.named != nil {
		return s.named.aggregate.appendNamed(into, s.named.stored, s.named.until)
	}
	if len(s.fallback) == 0 {
		if s.raw == nil {
			return nil // The client needs only labels.
		}
		return s.raw.Samples(into)
	}
	var x bucketExpander
	var errors *extendedErrors
	var warn func(error)
	x.UsesStarts = s.usesStarts
	for _, o := range s.fallback {
		if err := o.Buckets(&x.buckets, &x.buffers); err != nil {
			return err
		}
		if x.errors = o.errors; o.errors != nil {
			errors, warn = o.errors, o.warn
		}
		x.limit = o.limit
		x.appendRange(into, &x.buckets, o.from, o.to)
	}
	if s.raw != nil {
		var own chunk.Samples
		if err := s.raw.Samples(&own); err != nil {
			return err
		}
		x.dropCovered(&own)
		into.AppendAll(&own)
	}
	if errors != nil {
		errors.add(x.found, warn)
	}
	into.Normalize()
	return nil
}

// bucketExpander makes samples from buckets.
type bucketExpander struct {
	expand.Expander
	buckets rollup.Buckets
	buffers query.BucketBuffers
	samples chunk.Samples
	// errors, if not nil, computes the errors of buckets, which are appended to found.
	errors *extendedErrors
	found  []bucketError
	// limit is fallbackSeries.limit. covered are the parts, after limit, of the buckets that limit cuts.
	limit   int64
	covered []coveredPart
}

// appendRange appends the samples that buckets make in a range of times, both ends included, in milliseconds.
func (e *bucketExpander) appendRange(into *chunk.Samples, b *rollup.Buckets, from, to int64) {
	e.samples.Reset()
	for i, end := range b.End {
		if end >= from && b.Start[i] < to && !e.isCovered(end) {
			first := len(e.samples.V)
			e.Expand(&e.samples, b, i)
			if e.errors != nil {
				e.found = append(e.found, e.errors.bucketErrorOf(b, i, e.samples.V[first:]))
				e.addCovered(b, i)
			}
		}
	}
	e.samples.Clip(from, to)
	into.AppendAll(&e.samples)
}

// selectAll finds the series of a query, including series at times without raw samples. It also returns the resolutions
// that it reads. Times before asked, in milliseconds, are context and aren't part of the answer, so nothing is reported
// for them. hints may be nil.
func (r *reader) selectAll(ctx context.Context, q query.Query, asked int64,
	hints *promstorage.SelectHints) ([]sourceSeries, []SegmentStats, error) {
	function := hintedFunction(hints)
	raw, err := r.store.Select(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	series, starts := make([]sourceSeries, len(raw)), usesStarts(ctx, function)
	for i, s := range raw {
		series[i] = sourceSeries{labels: s.Labels, raw: s, usesStarts: starts}
	}
	horizons, err := r.store.BoundariesOf(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	horizon := latestBoundary(horizons, rollup.Raw)
	if q.MinT > horizon {
		return series, []SegmentStats{rawSegment(q, horizon, len(series))}, nil
	}
	at, how, extended := indexByLabels(series), resolutionParamsOf(ctx), extendedOf(ctx, hints)
	segments, lacks := []SegmentStats(nil), resolution.Shortfall{}
	for _, older := range query.OlderQueries(q, horizons, expand.Columns) {
		allowed := how.mode.Allows(older.Resolution, how.coarsest)
		if !allowed {
			older.Limit, older.Sorted = 1, false
		}
		list, err := r.store.Select(ctx, older)
		if err != nil {
			return nil, nil, err
		}
		if len(list) == 0 {
			continue
		}
		short := resolution.Shortfall{From: max(older.MinT, asked, 0), To: older.MaxT, Raw: horizon}
		if !allowed {
			if older.MaxT >= asked {
				short.Hidden = true
				lacks.Merge(short)
			}
			continue
		}
		segments = append(segments, rollupSegment(older, len(list)))
		short.Widest, short.Approximated = older.Resolution, true
		one := fallbackSeries{from: older.MinT, to: older.MaxT, limit: older.MaxT}
		switch {
		case extended != nil && extended.isAligned(older.Resolution):
			one.errors, one.warn = extended, q.Warn
			one.to = min(bucketfn.CeilTo(older.MaxT, older.Resolution.Width()), q.MaxT)
			short.Approximated, short.Extended = false, true
			extended.recordShortfall(short)
		case older.MaxT >= asked:
			segments[len(segments)-1].Approximate = true
			lacks.Merge(short)
		}
		series = appendFallback(series, at, list, one, starts)
	}
	if q.MaxT > horizon && len(raw) > 0 || segments == nil {
		segments = append(segments, rawSegment(q, horizon, len(raw)))
	}
	if !lacks.IsDegraded() {
		return sortAndLimit(q, series), segments, nil
	}
	if lacks.Approximated {
		if err := checkMadeSamples(ctx, function, horizon); err != nil {
			return nil, nil, err
		}
	}
	q.Warn(&resolution.MissingError{Shortfall: lacks})
	return sortAndLimit(q, series), segments, nil
}

// appendFallback adds the buckets of the series in list to series. at maps the bytes of labels to indices in series.
func appendFallback(series []sourceSeries, at map[string]int, list []*query.SelectedSeries, one fallbackSeries,
	usesStarts bool) []sourceSeries {
	var key []byte
	for _, s := range list {
		key = s.Labels.Bytes(key)
		i, ok := at[string(key)]
		if !ok {
			i = len(series)
			at[string(key)] = i
			series = append(series, sourceSeries{labels: s.Labels, usesStarts: usesStarts})
		}
		one.SelectedSeries = s
		series[i].fallback = append(series[i].fallback, one)
	}
	return series
}

type startsKey struct{}

// usesStarts reports whether the function uses start timestamps in the query of ctx.
func usesStarts(ctx context.Context, function string) bool {
	return ctx.Value(startsKey{}) != nil && functionsUsingStarts[function]
}

// indexByLabels returns a map from the bytes of labels to indices in series.
func indexByLabels(series []sourceSeries) map[string]int {
	at, key := make(map[string]int, len(series)), []byte(nil)
	for i := range series {
		key = series[i].labels.Bytes(key)
		at[string(key)] = i
	}
	return at
}

// sortAndLimit sorts the series if the query requires it, and applies the query's limit.
func sortAndLimit(q query.Query, series []sourceSeries) []sourceSeries {
	if q.Sorted {
		labelorder.Sort(series, func(s sourceSeries) labels.Labels { return s.labels })
	}
	if q.Limit > 0 && len(series) > q.Limit {
		series = series[:q.Limit]
	}
	return series
}

// rollupSegment returns the report of a query that reads a resolution's rollups.
func rollupSegment(q query.Query, series int) SegmentStats {
	return SegmentStats{
		From: time.UnixMilli(q.MinT).UTC(), To: time.UnixMilli(q.MaxT).UTC(), Resolution: q.Resolution.String(),
		Edges: resolution.FitAligned.String(), Series: series,
	}
}

// rawSegment returns the report of a query that reads samples. Samples up to horizon, in milliseconds, are no longer
// stored.
func rawSegment(q query.Query, horizon int64, series int) SegmentStats {
	q.Resolution, q.MinT = rollup.Raw, max(q.MinT, horizon+1)
	return rollupSegment(q, series)
}

// selectLabels finds series for a query that needs only their labels. With a limit, it may return any of the series.
// For times without raw samples, buckets determine which series existed, because rows of labels cover many days.
//
// A Reading also gets samples. Prometheus lists series by a remote read with the function name "series", and a streamed
// answer leaves out series without chunks.
func (r *reader) selectLabels(ctx context.Context, q query.Query) ([]sourceSeries, error) {
	found := labelSeries{ctx: ctx, limit: q.Limit, reading: readingOf(ctx)}
	if found.reading != nil {
		found.limit = 0
	}
	if err := r.findLabels(ctx, q, &found); err != nil {
		return nil, err
	}
	return sortAndLimit(q, found.series), nil
}

// findLabels finds the series. If there is a limit and enough series have unsealed samples, it adds only these.
// Otherwise it adds series of times with raw samples, then series with buckets.
func (r *reader) findLabels(ctx context.Context, q query.Query, found *labelSeries) error {
	all := q
	all.Sorted, all.Limit = false, found.limit
	if found.limit > 0 {
		list, err := r.store.SelectUnsealed(ctx, all)
		if err != nil || len(list) >= found.limit {
			found.add(list)
			return err
		}
	}
	horizons, err := r.store.BoundariesOf(ctx, q)
	if err != nil {
		return err
	}
	younger := all
	younger.MinT = earliestRawTime(q.MinT, horizons)
	columns := rollup.ColumnCount
	if found.makesSamples() {
		columns = expand.Columns
	}
	olderQueries := query.OlderQueries(all, horizons, columns)
	if len(olderQueries) > 0 {
		found.at = map[string]bool{}
	}
	if younger.MinT <= q.MaxT {
		list, err := r.store.Select(ctx, younger)
		if err != nil {
			return err
		}
		found.add(list)
	}
	for _, older := range olderQueries {
		for more := true; more && !found.isFull(); {
			list, err := r.store.Select(ctx, older)
			if err != nil {
				return err
			}
			if err := found.addOlder(list, older); err != nil {
				return err
			}
			// Some of the listed series may be known already, or have no bucket in the range. A longer list may contain
			// more.
			more = older.Limit > 0 && len(list) >= older.Limit
			older.Limit *= 4
		}
	}
	return nil
}

// labelSeries collects series whose labels are needed.
type labelSeries struct {
	ctx     context.Context
	limit   int // 0: none
	reading *Reading
	series  []sourceSeries
	at      map[string]bool // labels of the series; nil: duplicates can't occur
	key     []byte
	buckets rollup.Buckets
	buffers query.BucketBuffers
}

func (l *labelSeries) isFull() bool       { return l.limit > 0 && len(l.series) >= l.limit }
func (l *labelSeries) makesSamples() bool { return l.reading != nil && !l.reading.Refuse }

// isNew reports whether no series has these labels yet.
func (l *labelSeries) isNew(ls labels.Labels) bool {
	if l.at == nil {
		return true
	}
	l.key = ls.Bytes(l.key)
	return !l.at[string(l.key)]
}

// appendNew adds a series for which isNew has just returned true.
func (l *labelSeries) appendNew(one sourceSeries) {
	if l.at != nil {
		l.at[string(l.key)] = true
	}
	l.series = append(l.series, one)
}

func (l *labelSeries) add(list []*query.SelectedSeries) {
	l.series = slices.Grow(l.series, len(list))
	for _, s := range list {
		if l.isFull() {
			return
		}
		if !l.isNew(s.Labels) {
			continue
		}
		one := sourceSeries{labels: s.Labels}
		if l.reading != nil {
			one.raw = s
		}
		l.appendNew(one)
	}
}

// addOlder adds the series that have buckets in the range of the query that found them.
func (l *labelSeries) addOlder(list []*query.SelectedSeries, q query.Query) error {
	for i, s := range list {
		if l.isFull() {
			return nil
		}
		if i%cancelEvery == 0 && l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		if !l.isNew(s.Labels) {
			continue
		}
		if err := s.Buckets(&l.buckets, &l.buffers); err != nil {
			return err
		}
		for k, end := range l.buckets.End {
			if end < q.MinT || l.buckets.Start[k] >= q.MaxT {
				continue
			}
			one := sourceSeries{labels: s.Labels}
			if l.makesSamples() {
				l.reading.made.Store(true)
				one.fallback = []fallbackSeries{{SelectedSeries: s, from: q.MinT, to: q.MaxT}}
			}
			l.appendNew(one)
			break
		}
	}
	return nil
}

// earliestRawTime returns the earliest time since which some class has raw samples, or minT if minT is later.
func earliestRawTime(minT int64, horizons []retention.HiddenTimes) int64 {
	earliest := int64(math.MaxInt64)
	for _, h := range horizons {
		earliest = min(earliest, h.At[rollup.Raw]+1)
	}
	return max(minT, earliest)
}

// hintedStep returns the interval between the query's steps, in milliseconds.
func hintedStep(hints *promstorage.SelectHints) int64 {
	if hints == nil {
		return 0
	}
	return hints.Step
}

// hintedFunction returns the name of the function in the hints.
func hintedFunction(hints *promstorage.SelectHints) string {
	if hints == nil {
		return ""
	}
	return hints.Func
}
