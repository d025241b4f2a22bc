package promql

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/features"
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
	// LookbackDelta is how old a sample may be to count as current. Default 5 minutes.
	LookbackDelta time.Duration
	// Parser says which experimental syntax is understood. Default: durations with arithmetic, as in Prometheus.
	Parser parser.Options
	// PerStepStats, DelayedNameRemoval and StartTimestamps are optional features of the evaluator, named
	// promql-per-step-stats, promql-delayed-name-removal and use-start-timestamps in Prometheus.
	PerStepStats, DelayedNameRemoval, StartTimestamps bool
	// Features is told which of the evaluator's features exist; may be nil.
	Features features.Collector
	// Logger gets what an operator should know.
	Logger *slog.Logger
	// Registerer gets the evaluator's metrics; nil: none are kept anywhere.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		Timeout: 2 * time.Minute, MaxSamples: 50_000_000, MaxConcurrency: 20, LookbackDelta: 5 * time.Minute,
		Parser: parser.Options{ExperimentalDurationExpr: true},
		Logger: slog.New(slog.DiscardHandler),
	}
}

// Engine is Prometheus' evaluator, with a bound on the queries that wait, and with the warnings that come
// up while samples are read. It implements Prometheus' promql.QueryEngine.
type Engine struct{ engine *promengine.Engine }

// NewEngine returns an evaluator. It is the caller's to close.
func NewEngine(opts Options) *Engine {
	return &Engine{promengine.NewEngine(promengine.EngineOpts{
		Logger:                   opts.Logger,
		Reg:                      opts.Registerer,
		MaxSamples:               opts.MaxSamples,
		Timeout:                  opts.Timeout,
		ActiveQueryTracker:       newGate(opts.MaxConcurrency),
		LookbackDelta:            opts.LookbackDelta,
		NoStepSubqueryIntervalFn: func(int64) int64 { return subqueryInterval.Milliseconds() },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		EnablePerStepStats:       opts.PerStepStats,
		EnableDelayedNameRemoval: opts.DelayedNameRemoval,
		UseStartTimestamps:       opts.StartTimestamps,
		FeatureRegistry:          opts.Features,
		Parser:                   parser.NewParser(opts.Parser),
	})}
}

// Close waits for running queries' resources to be given back.
func (e *Engine) Close() error { return e.engine.Close() }

// NewInstantQuery implements promql.QueryEngine.
func (e *Engine) NewInstantQuery(ctx context.Context, q promstorage.Queryable, opts promengine.QueryOpts, qs string, ts time.Time) (promengine.Query, error) {
	query, err := e.engine.NewInstantQuery(ctx, q, opts, qs, ts)
	if err != nil {
		return nil, err
	}
	return warningQuery{query}, nil
}

// NewRangeQuery implements promql.QueryEngine.
func (e *Engine) NewRangeQuery(ctx context.Context, q promstorage.Queryable, opts promengine.QueryOpts, qs string, start, end time.Time, step time.Duration) (promengine.Query, error) {
	query, err := e.engine.NewRangeQuery(ctx, q, opts, qs, start, end, step)
	if err != nil {
		return nil, err
	}
	return warningQuery{query}, nil
}

// warningQuery adds to a result what came up while samples were read: the evaluator asks a SeriesSet for
// its warnings before it iterates over the samples.
type warningQuery struct{ promengine.Query }

// Exec implements promql.Query.
func (q warningQuery) Exec(ctx context.Context) *promengine.Result {
	w := &warnings{}
	result := q.Query.Exec(w.into(ctx))
	result.Warnings = result.Warnings.Merge(w.annotations())
	return result
}
