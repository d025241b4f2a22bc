package promql

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/tenant"
)

// hintContext is how long before its range a query also reads samples, so that the first native histogram in the range
// can be compared with the previous one. It is the evaluator's default lookback, beyond which a series counts as
// interrupted.
const hintContext = 5 * time.Minute

// Queryable implements reads of a store for Prometheus' evaluator and HTTP API. The tenant is read from the context.
type Queryable struct {
	store *storage.Store
	names rollupNames
}

// NewQueryable returns a Queryable that reads store. It doesn't close the store. counters are the suffixes of metrics
// for which only the sum is available as a rollup.
func NewQueryable(store *storage.Store, counters ...string) *Queryable {
	return &Queryable{store: store, names: rollupNames{counters: counters}}
}

var _ promstorage.SampleAndChunkQueryable = (*Queryable)(nil)

// Querier implements promstorage.Queryable. It returns the errors of storage.Store.Ready.
func (q *Queryable) Querier(mint, maxt int64) (promstorage.Querier, error) {
	r, err := q.newReader(mint, maxt)
	if err != nil {
		return nil, err
	}
	return querier{r}, nil
}

// ChunkQuerier implements promstorage.ChunkQueryable.
func (q *Queryable) ChunkQuerier(mint, maxt int64) (promstorage.ChunkQuerier, error) {
	r, err := q.newReader(mint, maxt)
	if err != nil {
		return nil, err
	}
	return chunkQuerier{r}, nil
}

func (q *Queryable) newReader(mint, maxt int64) (*reader, error) {
	if err := q.store.Ready(); err != nil {
		return nil, asPrometheus(err)
	}
	return &reader{store: q.store, names: q.names, mint: mint, maxt: maxt}, nil
}

type querier struct{ *reader }

// Select implements promstorage.Querier.
func (q querier) Select(ctx context.Context, sorted bool, hints *promstorage.SelectHints,
	matchers ...*labels.Matcher) promstorage.SeriesSet {
	return q.selectSeries(ctx, sorted, hints, matchers)
}

type chunkQuerier struct{ *reader }

// Select implements promstorage.ChunkQuerier.
func (q chunkQuerier) Select(ctx context.Context, sorted bool, hints *promstorage.SelectHints,
	matchers ...*labels.Matcher) promstorage.ChunkSeriesSet {
	return chunkSet{q.selectSeries(ctx, sorted, hints, matchers)}
}

// reader reads the series of a tenant in a time range. The tenant is read from the context of each call.
type reader struct {
	store      *storage.Store
	names      rollupNames
	mint, maxt int64
}

// Close implements promstorage.LabelQuerier.
func (r *reader) Close() error { return nil }

// LabelNames implements promstorage.LabelQuerier.
func (r *reader) LabelNames(ctx context.Context, hints *promstorage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	if all := tenant.NamesFromContext(ctx); len(all) > 1 {
		return r.labelNamesInTenants(ctx, all, hints, matchers)
	}
	w := &warnings{}
	names, err := r.store.LabelNames(ctx, r.labelQuery(ctx, w, hints, matchers))
	return names, w.annotations(), asReadError(ctx, err)
}

// LabelValues implements promstorage.LabelQuerier.
func (r *reader) LabelValues(ctx context.Context, name string, hints *promstorage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	if all := tenant.NamesFromContext(ctx); len(all) > 1 {
		return r.labelValuesInTenants(ctx, all, name, hints, matchers)
	}
	w := &warnings{}
	values, err := r.store.LabelValues(ctx, name, r.labelQuery(ctx, w, hints, matchers))
	if name == labels.MetricName {
		values = r.names.addRollupNames(ctx, values, hints)
	}
	return values, w.annotations(), asReadError(ctx, err)
}

func (r *reader) labelQuery(ctx context.Context, w *warnings, hints *promstorage.LabelHints,
	matchers []*labels.Matcher) query.Query {
	q := query.Query{Tenant: tenant.FromContext(ctx), MinT: r.mint, MaxT: r.maxt, Matchers: matchers, Warn: w.add}
	if hints != nil {
		q.Limit = hints.Limit
	}
	return q
}

func (r *reader) selectSeries(ctx context.Context, sorted bool, hints *promstorage.SelectHints,
	matchers []*labels.Matcher) promstorage.SeriesSet {
	mint, _ := r.readRange(hints)
	set := &seriesSet{ctx: ctx, warnings: warningsOf(ctx), mint: mint}
	if hints != nil {
		set.shards, set.shard = hints.ShardCount, hints.ShardIndex
	}
	if all := tenant.NamesFromContext(ctx); len(all) > 1 {
		set.series, set.err = r.findInTenants(ctx, all, set.warnings, sorted, hints, matchers)
	} else {
		set.series, set.err = r.findSeries(ctx, set.warnings, sorted, hints, matchers)
	}
	set.err = asReadError(ctx, set.err)
	return set
}

// findSeries finds the series of the tenant of ctx.
func (r *reader) findSeries(ctx context.Context, w *warnings, sorted bool, hints *promstorage.SelectHints,
	matchers []*labels.Matcher) ([]sourceSeries, error) {
	mint, maxt := r.readRange(hints)
	q := query.Query{
		Tenant: tenant.FromContext(ctx), MinT: subtractClamped(mint, hintContext), MaxT: maxt,
		Matchers: matchers, Sorted: sorted, Warn: w.add,
	}
	if hints != nil {
		q.Limit = hints.Limit
		if hints.Func == "series" { // The client needs only labels.
			q.MinT, q.LabelsOnly = mint, true
		}
		if hints.ShardCount > 0 {
			q.Limit = 0
		}
	}
	use := r.store.Limiter().Use(ctx, q.Tenant)
	if !w.isQuery && !q.LabelsOnly { // Queries are checked as a whole.
		if err := use.CheckRange(
			time.Duration(min(maxt-mint, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond,
		); err != nil {
			return nil, err
		}
	}
	series, err := r.selectAndReport(ctx, q, mint, hints)
	if err == nil {
		err = use.AddSeries(len(series))
	}
	if err == nil {
		err = meter.Grow(ctx, int64(len(series))*(meteredFound+pointBytes*evaluatedSteps(w, hints)))
	}
	return series, err
}

// evaluatedSteps returns the number of steps for which the evaluator computes values of the selected series. It returns
// 0 for reads outside the evaluator.
func evaluatedSteps(w *warnings, hints *promstorage.SelectHints) int64 {
	if !w.isQuery || hints == nil || hints.Step <= 0 || hints.End < hints.Start {
		return 0
	}
	return 1 + (hints.End-hints.Start)/hints.Step
}

// selectAndReport finds the series of a query or, if the query names a rollup, the series of the rollup. It adds the
// resolutions that are read to the report of ctx. Samples before asked, in milliseconds, aren't part of the answer.
func (r *reader) selectAndReport(ctx context.Context, q query.Query, asked int64,
	hints *promstorage.SelectHints) (series []sourceSeries, err error) {
	var read []SegmentStats
	if q.LabelsOnly {
		series, err = r.selectLabels(ctx, q)
	} else {
		series, read, err = r.selectAll(ctx, q, asked, hints)
	}
	if err != nil {
		return nil, err
	}
	if len(series) == 0 {
		if series, err = r.selectNamed(ctx, q, hints); err != nil || len(series) > 0 {
			return series, err
		}
	}
	if len(read) > 0 {
		noteRead(ctx, q.Matchers, len(series), read)
	}
	return series, nil
}

// readRange returns the range to read. The range of the hints is narrower than the querier's, which covers all
// selectors of a query. Hints of a remote reader without times are ignored.
func (r *reader) readRange(hints *promstorage.SelectHints) (mint, maxt int64) {
	if hints == nil || (hints.Start == 0 && hints.End == 0) || hints.Start > hints.End {
		return r.mint, r.maxt
	}
	return max(r.mint, hints.Start), min(r.maxt, hints.End)
}

func subtractClamped(t int64, d time.Duration) int64 {
	if t < math.MinInt64+d.Milliseconds() {
		return math.MinInt64
	}
	return t - d.Milliseconds()
}

// seriesSet implements promstorage.SeriesSet.
type seriesSet struct {
	ctx    context.Context
	series []sourceSeries
	at     *sourceSeries
	warm   int // number of series that are in the processor's cache
	mint   int64
	err    error
	// shards is the number of shards into which the caller divides the series. If it isn't 0, only the series in shard
	// are returned.
	shards, shard uint64
	warnings      *warnings
}

func (s *seriesSet) Next() bool {
	for s.err == nil && len(s.series) > 0 {
		if s.err = asReadError(s.ctx, s.ctx.Err()); s.err != nil {
			return false
		}
		if s.warm == 0 {
			s.warmUp()
		}
		s.at, s.series, s.warm = &s.series[0], s.series[1:], s.warm-1
		if s.shards == 0 || labels.StableHash(s.at.labels)%s.shards == s.shard {
			return true
		}
	}
	return false
}

// warmedAtOnce is the number of series that are loaded into the processor's cache at once.
const warmedAtOnce = 16

// warmSink keeps the loads of warmUp from being optimized away.
var warmSink atomic.Bool

// warmUp loads the next series into the processor's cache.
func (s *seriesSet) warmUp() {
	s.warm = min(warmedAtOnce, len(s.series))
	sum := byte(1)
	for i := range s.series[:s.warm] {
		if raw := s.series[i].raw; raw != nil {
			sum |= raw.Warm()
		}
	}
	if sum == 0 {
		warmSink.Store(true)
	}
}

func (s *seriesSet) At() promstorage.Series            { return series{s.at, s} }
func (s *seriesSet) Err() error                        { return s.err }
func (s *seriesSet) Warnings() annotations.Annotations { return s.warnings.annotations() }

// series implements promstorage.Series. It shares with its set the fields that are the same for all series.
type series struct {
	*sourceSeries
	set *seriesSet
}

func (s series) Labels() labels.Labels { return s.labels }

// Iterator implements promstorage.SampleIterable.
func (s series) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	ctx := s.set.ctx
	return iteratorFor(it, s.set.mint, func(into *chunk.Samples) error {
		before := bufferBytes(into)
		err := s.appendSamples(into)
		if more := bufferBytes(into) - before; err == nil && more > 0 {
			err = meter.Grow(ctx, more)
		}
		return asReadError(ctx, err)
	})
}
