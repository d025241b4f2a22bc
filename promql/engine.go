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

// subqueryInterval is the step of a subquery that names none: Prometheus' default evaluation interval.
const subqueryInterval = time.Minute

// Options configure an Engine.
type Options struct {
	// Timeout bounds a query, its time in the queue included. Default 2 minutes.
	Timeout time.Duration
	// MaxSamples bounds the samples that a query may hold in memory. Default 50 million.
	MaxSamples int
	// MaxConcurrency bounds the queries that run at once. Default 20.
	MaxConcurrency int
	// UnreadBytes bounds what answers take in memory until they are read: above it, large queries wait, and small ones if the answers of small
	// ones are above it. 0: nothing does. Default 256 MiB.
	UnreadBytes int64
	// Memory is what the process may use in all, bytes: queries wait or end before it is reached. 0: nothing bounds it. Default 0.
	Memory int64
	// LookbackDelta is how old a sample may be to count as current. Default 5 minutes.
	LookbackDelta time.Duration
	// Limiter holds tenants to their limits; nil: they have none.
	Limiter *tenant.Limiter
	// Parser selects the experimental syntax that is parsed. Default: durations with arithmetic, as in Prometheus.
	Parser parser.Options
	// PerStepStats, DelayedNameRemoval and StartTimestamps are optional features of the evaluator, named
	// promql-per-step-stats, promql-delayed-name-removal and use-start-timestamps in Prometheus. Without StartTimestamps, only
	// samples of tenants that have sent deltas have start timestamps.
	PerStepStats, DelayedNameRemoval, StartTimestamps bool
	// NoSnap reads samples, where they are there, rather than move the edges of windows by up to a hundredth of their range.
	NoSnap bool
	// NoPlanner leaves every query wholly to Prometheus' evaluator: for tests, and to compare.
	NoPlanner bool
	// NoOrder has series in the order in which the store returns them, also where the answer depends on it: for tests, whose sums of floats
	// are to be the same with the planner and without.
	NoOrder bool
	// LogSlowerThan is the time from which on a query gets a line in the log; 0: none does.
	LogSlowerThan time.Duration
	// Features gets the evaluator's features; may be nil.
	Features features.Collector
	// Logger gets events for operators.
	Logger *slog.Logger
	// Registerer gets the evaluator's metrics; nil: none are kept anywhere.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		Timeout: 2 * time.Minute, MaxSamples: 50_000_000, MaxConcurrency: 20, UnreadBytes: 256 << 20, LookbackDelta: 5 * time.Minute,
		Parser: parser.Options{ExperimentalDurationExpr: true},
		Logger: slog.New(slog.DiscardHandler),
	}
}

// Engine is Prometheus' evaluator, with a planner in front, a bound on the queries that wait, and the warnings
// that come up while samples are read. It implements Prometheus' promql.QueryEngine.
type Engine struct {
	engine *promengine.Engine
	gate   *gate
	opts   Options
	active activeQueries
	top    topQueries
	// samples are metrics.
	samples sampleCounters
	// pressure looks after the memory.
	pressure pressure
}

// NewEngine returns an evaluator. It is the caller's to close.
func NewEngine(opts Options) *Engine {
	gate := newGate(opts)
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cassia_query_unread_bytes", Help: "Estimated memory of query results that clients have not read yet, in bytes.",
		}, func() float64 { return float64(gate.unread.Load()) }))
	}
	samples := newSampleCounters()
	e := &Engine{opts: opts, gate: gate, samples: samples, engine: promengine.NewEngine(promengine.EngineOpts{
		Logger:                   opts.Logger,
		Reg:                      samples.registerer(opts.Registerer),
		MaxSamples:               opts.MaxSamples,
		Timeout:                  opts.Timeout,
		ActiveQueryTracker:       queued{gate},
		LookbackDelta:            opts.LookbackDelta,
		NoStepSubqueryIntervalFn: func(int64) int64 { return subqueryInterval.Milliseconds() },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		EnablePerStepStats:       opts.PerStepStats,
		EnableDelayedNameRemoval: opts.DelayedNameRemoval,
		UseStartTimestamps:       true, // Where they aren't to be used, samples have none.
		FeatureRegistry:          opts.Features,
		Parser:                   NewParser(opts.Parser),
	})}
	e.pressure = pressure{memory: opts.Memory, used: inUse, gate: gate}
	gate.pressure = &e.pressure
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cassia_memory_used_bytes", Help: "Memory used by the process in bytes, without free memory retained by the Go runtime.",
		}, func() float64 { used, _ := e.Memory(); return float64(used) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cassia_memory_limit_bytes", Help: "Maximum memory of the process in bytes (--memory.max-bytes).",
		}, func() float64 { _, most := e.Memory(); return float64(most) }))
	}
	return e
}

// Close waits for running queries' resources to be given back.
func (e *Engine) Close() error { return e.engine.Close() }

// NewInstantQuery implements promql.QueryEngine.
func (e *Engine) NewInstantQuery(ctx context.Context, q promstorage.Queryable, opts promengine.QueryOpts, qs string, ts time.Time) (promengine.Query, error) {
	return e.newQuery(ctx, q, func(q promstorage.Queryable) (promengine.Query, error) {
		return e.engine.NewInstantQuery(ctx, q, opts, qs, ts)
	})
}

// NewRangeQuery implements promql.QueryEngine.
func (e *Engine) NewRangeQuery(ctx context.Context, q promstorage.Queryable, opts promengine.QueryOpts, qs string, start, end time.Time, step time.Duration) (promengine.Query, error) {
	return e.newQuery(ctx, q, func(q promstorage.Queryable) (promengine.Query, error) {
		return e.engine.NewRangeQuery(ctx, q, opts, qs, start, end, step)
	})
}

// newQuery makes a query with a plan, if q is a Queryable of this package.
func (e *Engine) newQuery(ctx context.Context, q promstorage.Queryable, with func(promstorage.Queryable) (promengine.Query, error)) (promengine.Query, error) {
	made, err := e.planned(ctx, q, with)
	if refused := (notLetIn{}); errors.As(err, &refused) {
		return refusedQuery{refused}, nil
	}
	return made, err
}

func (e *Engine) planned(ctx context.Context, q promstorage.Queryable, unbounded func(promstorage.Queryable) (promengine.Query, error)) (promengine.Query, error) {
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
		exact: e.opts.NoSnap, unordered: e.opts.NoOrder, queryable: ours, delayed: e.opts.DelayedNameRemoval, starts: e.opts.StartTimestamps,
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
