package promql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/features"

	"github.com/cassia-db/cassia/storage/tenant"
)

// subqueryInterval is the step of a subquery without a step: Prometheus' default evaluation interval.
const subqueryInterval = time.Minute

// Options configure an Engine.
type Options struct {
	// Timeout is the maximum duration of a query, including its time in the queue. Default 2 minutes.
	Timeout time.Duration
	// MaxSamples is the maximum number of samples that a query may hold in memory. Default 50 million.
	MaxSamples int
	// MaxConcurrency is the maximum number of queries that run at once. Default 20.
	MaxConcurrency int
	// UnreadBytes bounds the memory of answers that clients haven't read. Large queries wait while the unread answers
	// of all queries reach the bound. Small queries wait only while the unread answers of small queries alone reach the
	// bound. 0: no bound. Default 256 MiB.
	UnreadBytes int64
	// Memory is the maximum memory of the process, in bytes. Queries wait or are ended before it is reached. 0: no
	// bound. Default 0.
	Memory int64
	// LookbackDelta is the maximum age of a sample that counts as current. Default 5 minutes.
	LookbackDelta time.Duration
	// Limiter applies the limits of tenants. nil: tenants have no limits.
	Limiter *tenant.Limiter
	// Parser selects the experimental syntax that is accepted. Default: durations with arithmetic, as in Prometheus.
	Parser parser.Options
	// PerStepStats, DelayedNameRemoval and StartTimestamps are optional features of the evaluator. Prometheus names
	// them promql-per-step-stats, promql-delayed-name-removal and use-start-timestamps. Without StartTimestamps, only
	// samples of tenants that have sent deltas have start timestamps.
	PerStepStats, DelayedNameRemoval, StartTimestamps bool
	// NoSnap disables moving the edges of windows by up to 1% of their range while raw samples exist. Raw samples are
	// read instead.
	NoSnap bool
	// NoPlanner leaves every query to Prometheus' evaluator. For tests and comparisons.
	NoPlanner bool
	// NoOrder returns series in the order of the store even if the answer depends on the order. For tests whose sums of
	// floats must be the same with and without the planner.
	NoOrder bool
	// LogSlowerThan is the minimum duration of a query that is logged. 0: no query is logged.
	LogSlowerThan time.Duration
	// Features receives the evaluator's features. May be nil.
	Features features.Collector
	// Logger receives events for operators.
	Logger *slog.Logger
	// Registerer registers the evaluator's metrics. nil: no metrics are kept.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		Timeout: 2 * time.Minute, MaxSamples: 50_000_000, MaxConcurrency: 20, UnreadBytes: 256 << 20,
		LookbackDelta: 5 * time.Minute,
		Parser:        parser.Options{ExperimentalDurationExpr: true},
		Logger:        slog.New(slog.DiscardHandler),
	}
}

// Engine runs queries with Prometheus' evaluator and a planner in front of it. It bounds the queries that run and wait,
// and adds the warnings of reading samples to the results. It implements Prometheus' promql.QueryEngine.
type Engine struct {
	engine *promengine.Engine
	gate   *gate
	opts   Options
	active activeQueries
	top    topQueries
	// samples counts the samples that queries read.
	samples sampleCounters
	// pressure bounds the memory of running queries.
	pressure pressure
}

// NewEngine returns an Engine. The caller must close it.
func NewEngine(opts Options) *Engine {
	gate := newGate(opts)
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cassia_query_unread_bytes",
			Help: "Estimated memory of query results that clients have not read yet, in bytes.",
		}, func() float64 { return float64(gate.unread.Load()) }))
	}
	samples := newSampleCounters()
	e := &Engine{opts: opts, gate: gate, samples: samples, engine: promengine.NewEngine(promengine.EngineOpts{
		Logger:                   opts.Logger,
		Reg:                      samples.registerer(opts.Registerer),
		MaxSamples:               opts.MaxSamples,
		Timeout:                  opts.Timeout,
		ActiveQueryTracker:       errorTracker{gate},
		LookbackDelta:            opts.LookbackDelta,
		NoStepSubqueryIntervalFn: func(int64) int64 { return subqueryInterval.Milliseconds() },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		EnablePerStepStats:       opts.PerStepStats,
		EnableDelayedNameRemoval: opts.DelayedNameRemoval,
		UseStartTimestamps:       true, // Queryable decides which samples have start timestamps.
		FeatureRegistry:          opts.Features,
		Parser:                   NewParser(opts.Parser),
	})}
	e.pressure = pressure{memory: opts.Memory, used: memoryInUse, gate: gate}
	gate.pressure = &e.pressure
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cassia_memory_used_bytes",
			Help: "Memory used by the process in bytes, without free memory retained by the Go runtime.",
		}, func() float64 { used, _ := e.Memory(); return float64(used) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "cassia_memory_limit_bytes", Help: "Maximum memory of the process in bytes (--memory.max-bytes).",
			}, func() float64 { _, most := e.Memory(); return float64(most) }))
	}
	return e
}

// Close waits until running queries have released their resources.
func (e *Engine) Close() error { return e.engine.Close() }

// NewInstantQuery implements promql.QueryEngine.
func (e *Engine) NewInstantQuery(ctx context.Context, q promstorage.Queryable, opts promengine.QueryOpts, qs string,
	ts time.Time) (promengine.Query, error) {
	return e.newQuery(ctx, q, func(q promstorage.Queryable) (promengine.Query, error) {
		return e.engine.NewInstantQuery(ctx, q, opts, qs, ts)
	})
}

// NewRangeQuery implements promql.QueryEngine.
func (e *Engine) NewRangeQuery(ctx context.Context, q promstorage.Queryable, opts promengine.QueryOpts,
	qs string, start, end time.Time, step time.Duration) (promengine.Query, error) {
	return e.newQuery(ctx, q, func(q promstorage.Queryable) (promengine.Query, error) {
		return e.engine.NewRangeQuery(ctx, q, opts, qs, start, end, step)
	})
}

// newQuery returns a query with a plan if q is a Queryable of this package.
func (e *Engine) newQuery(
	ctx context.Context, q promstorage.Queryable, with func(promstorage.Queryable) (promengine.Query, error),
) (promengine.Query, error) {
	made, err := e.planQuery(ctx, q, with)
	if refused := (notAdmittedError{}); errors.As(err, &refused) {
		return refusedQuery{refused}, nil
	}
	return made, err
}

func (e *Engine) planQuery(
	ctx context.Context, q promstorage.Queryable, unbounded func(promstorage.Queryable) (promengine.Query, error),
) (promengine.Query, error) {
	with := func(q promstorage.Queryable) (promengine.Query, error) {
		made, err := unbounded(q)
		if err != nil {
			return nil, err
		}
		if stmt, ok := made.Statement().(*parser.EvalStmt); ok {
			err = checkSteps(stmt, e.opts.MaxSamples)
		}
		return made, err
	}
	ours, ok := q.(*Queryable)
	if !ok || e.opts.NoPlanner {
		limited := &orderedQueryable{Queryable: q}
		inner, err := with(limited)
		if err != nil {
			return nil, err
		}
		if stmt, ok := inner.Statement().(*parser.EvalStmt); ok {
			limited.ordered = !e.opts.NoOrder && hasLimitK(stmt.Expr)
		}
		return &plannedQuery{Query: inner, engine: e, limiter: e.opts.Limiter}, nil
	}
	p := &plan{
		noSnap: e.opts.NoSnap, unordered: e.opts.NoOrder, queryable: ours, delayed: e.opts.DelayedNameRemoval,
		starts: e.opts.StartTimestamps,
		budget: budget{limit: int64(e.opts.MaxSamples)}, gate: e.gate,
	}
	inner, err := with(p)
	if err != nil {
		return nil, err
	}
	p.stmt, ok = inner.Statement().(*parser.EvalStmt)
	if !ok {
		return nil, fmt.Errorf("promql: unsupported statement type %T", inner.Statement())
	}
	return &plannedQuery{Query: inner, engine: e, limiter: e.opts.Limiter, plan: p}, nil
}
