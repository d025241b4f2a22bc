// Package panics prevents a panic in one task from ending the process.
//
//	errgroup.Go(panics.WrapError("sealing", f)) ─► a panic is an error of the group
//	WaitGroup.Go(panics.WrapContained("sending alerts", f)) ─► the goroutine ends, the process continues
//	go panics.Repeat(ctx, "following", f) ─► the loop restarts a minute later
//	panics.Call("sealing", f) ─► a panic in the caller's own goroutine is an error
//
// Each panic is logged with its stack and counted by the name of the task, after a Recovery was started, which only
// servers do. In tests, in commands and in programs that embed the packages, panics aren't recovered, so that no bug is
// overlooked.
//
// A panic must not be recovered if the code holds a lock without defer, or leaves shared state half changed: the rest
// of the process would wait forever or read wrong state. Such goroutines are listed with their reason in
// cmd/internal/tidy.
package panics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrPanicked means that a task panicked. The log has the stack.
var ErrPanicked = errors.New("panics: a bug in Cassia; please report it with the stack trace in the log")

// restartDelay is the time after a panic after which Repeat calls its function again. It is long, so that a panic that
// some input triggers repeatedly doesn't use up the CPU.
const restartDelay = time.Minute

// Recovery logs and counts panics.
type Recovery struct {
	log   *slog.Logger
	count *prometheus.CounterVec
	delay time.Duration
}

// current is the recovery of the process. If it is nil, panics aren't recovered. It is global because panics affect the
// whole process.
var current atomic.Pointer[Recovery]

// New returns a recovery that logs to log and registers its counter in r, which may be nil. It has no effect before
// Start.
func New(log *slog.Logger, r prometheus.Registerer) *Recovery {
	to := &Recovery{log: log, delay: restartDelay, count: prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "cassia_panics_total",
			Help: "Background tasks or parts of queries that were aborted because of a bug, by task."},
		[]string{"work"},
	)}
	if r != nil {
		r.MustRegister(to.count)
	}
	return to
}

// Start makes r recover panics of this process. The returned function restores the previous state, for tests.
func (r *Recovery) Start() (stop func()) {
	before := current.Swap(r)
	return func() { current.Store(before) }
}

// Recover calls New and Start.
func Recover(log *slog.Logger, r prometheus.Registerer) (stop func()) { return New(log, r).Start() }

// Call calls f and returns its error. A panic is logged, counted under work, a short constant, and returned as an error
// that wraps ErrPanicked.
func Call(work string, f func() error) (err error) {
	to := current.Load()
	if to == nil {
		return f()
	}
	defer func() {
		if p := recover(); p != nil {
			to.count.WithLabelValues(work).Inc()
			err = fmt.Errorf("%w: %s: %v", ErrPanicked, work, p)
			to.log.Error("a task panicked and was aborted; please report this as a bug",
				"work", work, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	return f()
}

// WrapError returns f with panics converted to errors, for use with an errgroup.
func WrapError(work string, f func() error) func() error {
	return func() error { return Call(work, f) }
}

// WrapContained returns f with panics recovered, for a goroutine that has no receiver of errors.
func WrapContained(work string, f func()) func() {
	return func() {
		_ = Call(work, func() error { f(); return nil }) // Call logs it.
	}
}

// Repeat calls f, a loop that ends with ctx. After a panic it calls f again a minute later, until f returns or ctx
// ends.
func Repeat(ctx context.Context, work string, f func()) {
	for Call(work, func() error { f(); return nil }) != nil {
		to := current.Load()
		if to == nil {
			return
		}
		timer := time.NewTimer(to.delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// Registry is a Prometheus registry in which a panic of a collector loses only that collector's metrics. Each collector
// runs in its own goroutine.
type Registry struct{ *prometheus.Registry }

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{prometheus.NewRegistry()} }

func (r *Registry) Register(c prometheus.Collector) error {
	return r.Registry.Register(containedCollector{c})
}

func (r *Registry) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		r.Registry.MustRegister(containedCollector{c})
	}
}

type containedCollector struct{ prometheus.Collector }

func (c containedCollector) Collect(to chan<- prometheus.Metric) {
	WrapContained("collecting metrics", func() { c.Collector.Collect(to) })()
}
