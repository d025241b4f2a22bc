package engine

import (
	"context"
	"sync"
)

// WorkMeter measures how much of a long operation is done, in units that take about the same time each, such as bytes that are read. The operation finds it
// in its context, and adds the work that it expects, and then the work that it has done. A nil WorkMeter ignores both. Its methods may be called
// concurrently.
type WorkMeter struct {
	mu          sync.Mutex
	done, total int64
	changed     func(done, total int64)
}

// NewMeter returns a meter that calls changed, one call at a time, each time it changes.
func NewMeter(changed func(done, total int64)) *WorkMeter { return &WorkMeter{changed: changed} }

type workMeterKey struct{}

// WithMeter returns a context whose operation is measured.
func WithMeter(ctx context.Context, m *WorkMeter) context.Context {
	return context.WithValue(ctx, workMeterKey{}, m)
}

// MeterOf returns the meter of a context; nil: there is none.
func MeterOf(ctx context.Context) *WorkMeter {
	m, _ := ctx.Value(workMeterKey{}).(*WorkMeter)
	return m
}

// Expect adds work to be done. An operation should call it before it begins, with all of its work.
func (m *WorkMeter) Expect(n int64) { m.add(0, n) }

// Add adds work that is done.
func (m *WorkMeter) Add(n int64) { m.add(n, 0) }

func (m *WorkMeter) add(done, total int64) {
	if m == nil || done == 0 && total == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += done
	m.total += total
	m.changed(min(m.done, m.total), m.total)
}
