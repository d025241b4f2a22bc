// Package panics keeps a bug in one piece of work from ending the process.
//
//	errgroup.Go(panics.AsError("sealing", f)) ─► a panic is an error of the group
//	WaitGroup.Go(panics.Contained("sending alerts", f)) ─► the goroutine ends, the process goes on
//	go panics.Repeat(ctx, "following", f) ─► the loop starts again a minute later
//	panics.Do("sealing", f) ─► a panic in the caller's own goroutine is an error
//
// Each panic is logged with its stack and counted by the name of the work, once a Recovery was started: a server does that. In tests, in
// commands and in programs that embed the packages, a panic stays a panic, so that no bug is overlooked.
//
// Work that holds a lock without defer, or that leaves shared state half changed, must not be recovered: the rest of the process would
// wait forever or read wrong state. Such goroutines are listed with their reason in cmd/internal/tidy.
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

// ErrPanicked means that a piece of work panicked. The log has the stack.
var ErrPanicked = errors.New("panics: a bug in Cassia; please report it with the stack trace in the log")

// restartDelay is how long after a panic Repeat calls its function again: a bug that input provokes must not occupy the processor.
const restartDelay = time.Minute

// Recovery logs and counts panics.
type Recovery struct {
	log   *slog.Logger
	count *prometheus.CounterVec
	delay time.Duration
}

// current is the process' recovery; nil: panics aren't recovered. The treatment of a panic is a property of the process, as the runtime's
// own is.
var current atomic.Pointer[Recovery]

// New returns a recovery that logs to log and counts in r, which may be nil. It has no effect before Start.
func New(log *slog.Logger, r prometheus.Registerer) *Recovery {
	to := &Recovery{log: log, delay: restartDelay, count: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cassia_panics_total",
		Help: "Background tasks or parts of queries that were aborted because of a bug, by task."}, []string{"work"})}
	if r != nil {
		r.MustRegister(to.count)
	}
	return to
}

// Start has panics of the process recovered from now on. The returned function ends that, for tests.
func (r *Recovery) Start() (stop func()) {
	before := current.Swap(r)
	return func() { current.Store(before) }
}

// Recover is New and Start.
func Recover(log *slog.Logger, r prometheus.Registerer) (stop func()) { return New(log, r).Start() }

// Do calls f and returns its error. A panic is logged and counted as that of the work, a short constant, and is returned as an error that wraps
// ErrPanicked.
func Do(work string, f func() error) (err error) {
	to := current.Load()
	if to == nil {
		return f()
	}
	defer func() {
		if p := recover(); p != nil {
			to.count.WithLabelValues(work).Inc()
			err = fmt.Errorf("%w: %s: %v", ErrPanicked, work, p)
			to.log.Error("a task panicked and was aborted; please report this as a bug", "work", work, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	return f()
}

// AsError returns f with panics as errors, for an errgroup.
func AsError(work string, f func() error) func() error {
	return func() error { return Do(work, f) }
}

// Contained returns f without panics, for a goroutine that nobody waits for an error of.
func Contained(work string, f func()) func() {
	return func() {
		_ = Do(work, func() error { f(); return nil }) // It is logged.
	}
}

// Repeat calls f, which is a loop that ends with ctx, again a minute after each panic, until it returns or ctx ends.
func Repeat(ctx context.Context, work string, f func()) {
	for Do(work, func() error { f(); return nil }) != nil {
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

// Registry is one of Prometheus whose collectors lose only their own metrics where they panic: each is asked in a goroutine of its own.
type Registry struct{ *prometheus.Registry }

// NewRegistry returns an empty one.
func NewRegistry() *Registry { return &Registry{prometheus.NewRegistry()} }

// Register implements prometheus.Registerer.
func (r *Registry) Register(c prometheus.Collector) error {
	return r.Registry.Register(containedCollector{c})
}

// MustRegister implements prometheus.Registerer.
func (r *Registry) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		r.Registry.MustRegister(containedCollector{c})
	}
}

type containedCollector struct{ prometheus.Collector }

// Collect implements prometheus.Collector.
func (c containedCollector) Collect(to chan<- prometheus.Metric) {
	Contained("collecting metrics", func() { c.Collector.Collect(to) })()
}
