package promql

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// TestPlannerPassesPrometheusSuite runs Prometheus' own test suite of the query language with the planner, and with the
// features of the evaluator that the suite needs. These features prevent the replacement of many fragments. So each
// query is also run without the features, by an engine with a planner and by one without. Their answers must be equal,
// even if the suite expects an error.
func TestPlannerPassesPrometheusSuite(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("some 2,000 queries, thrice, twice")
	}
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprintf("sealed=%v", sealed), func(t *testing.T) {
			o := DefaultOptions()
			o.MaxSamples, o.Timeout, o.Parser = promqltest.DefaultMaxSamplesPerQuery, 100*time.Second,
				promqltest.TestParserOpts
			r := newRivals(t, nil, func(into *Options) { *into = o; into.NoOrder = true })
			o.DelayedNameRemoval, o.StartTimestamps = true, true
			e := &suiteEngine{Engine: NewEngine(o), rivals: r}
			defer e.Close()
			store := readyStore(t)
			tenants := 0
			promqltest.RunBuiltinTestsWithStorage(t, e, func(testing.TB) promstorage.Storage {
				tenants++
				return &suiteStorage{Queryable: NewQueryable(store), name: "suite-" + strconv.Itoa(tenants),
					sealed: sealed}
			})
			t.Logf("with the suite's features %d fragments were computed, without %v; %d queries have no one answer",
				e.computed, r.fragments, r.undecided)
			require.Greater(t, e.computed, 1000)
			require.Greater(t, r.fragments[""], 5000)
		})
	}
}

// suiteEngine adds the tenant of a suiteStorage to the context.
type suiteEngine struct {
	*Engine
	rivals   *rivals
	computed int // number of fragments that the planner computed
}

func (e *suiteEngine) NewInstantQuery(ctx context.Context, q promstorage.Queryable, opts promengine.QueryOpts,
	qs string, ts time.Time) (promengine.Query, error) {
	s := q.(*suiteStorage)
	query, err := e.Engine.NewInstantQuery(ctx, s.Queryable, opts, qs, ts)
	return suiteQuery{query, e, s, asked{text: qs, start: ts.UnixMilli()}}, err
}

func (e *suiteEngine) NewRangeQuery(ctx context.Context, q promstorage.Queryable, opts promengine.QueryOpts,
	qs string, start, end time.Time, step time.Duration) (promengine.Query, error) {
	s := q.(*suiteStorage)
	query, err := e.Engine.NewRangeQuery(ctx, s.Queryable, opts, qs, start, end, step)
	return suiteQuery{query, e, s, asked{text: qs, start: start.UnixMilli(), end: end.UnixMilli(), step: step}}, err
}

type suiteQuery struct {
	promengine.Query
	e     *suiteEngine
	s     *suiteStorage
	asked asked
}

func (q suiteQuery) Exec(ctx context.Context) *promengine.Result {
	r := q.e.rivals
	r.ctx, r.q = tenant.NewContext(ctx, q.s.name), q.s.Queryable
	if d, _ := r.difference(q.asked); d != "" {
		r.t.Errorf("%s\n%s", q.asked, d)
	}
	result := q.Query.Exec(r.ctx)
	for _, p := range planOf(q.Query) {
		if p.Refused == "" {
			q.e.computed++
		}
	}
	return result
}

// suiteStorage passes a tenant of a store to Prometheus' tests as their storage.
type suiteStorage struct {
	*Queryable
	name   string
	sealed bool
}

var _ promstorage.Storage = (*suiteStorage)(nil)

func (s *suiteStorage) Close() error              { return nil }
func (s *suiteStorage) StartTime() (int64, error) { return 0, nil }

func (s *suiteStorage) Appender(context.Context) promstorage.Appender {
	panic("the suite appends with AppenderV2")
}

func (s *suiteStorage) AppenderV2(ctx context.Context) promstorage.AppenderV2 {
	return &suiteAppender{ctx: ctx, s: s, batch: s.store.NewBatch(s.name)}
}

type suiteAppender struct {
	ctx   context.Context
	s     *suiteStorage
	batch *storage.Batch
}

func (a *suiteAppender) Append(_ promstorage.SeriesRef, ls labels.Labels, st, t int64, v float64,
	h *histogram.Histogram, fh *histogram.FloatHistogram, _ promstorage.AppendV2Options) (promstorage.SeriesRef,
	error) {
	series, err := a.batch.Define(nil, ls)
	if err != nil {
		return 0, err
	}
	switch {
	case fh != nil:
		err = a.batch.Histogram(series, t, st, nil, fh.Copy())
	case h != nil:
		err = a.batch.Histogram(series, t, st, h.Copy(), nil)
	default:
		err = a.batch.Float(series, t, st, v)
	}
	return 0, err
}

func (a *suiteAppender) Rollback() error { a.batch.Release(); return nil }

func (a *suiteAppender) Commit() error {
	if a.batch.Len() == 0 {
		a.batch.Release()
		return nil
	}
	if err := a.batch.Commit(a.ctx); err != nil {
		return err
	}
	if a.s.sealed {
		return a.s.store.SealAll(a.ctx)
	}
	return nil
}
