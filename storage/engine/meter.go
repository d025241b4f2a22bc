package engine

import (
	"context"
	"sync"
)

// WorkMeter measures the progress of a long operation, in units that take about the same time each, such as bytes read.
// The operation gets the meter from its context, and adds first its expected work and then its completed work. The
// methods of a nil WorkMeter do nothing. All methods may be called concurrently.
type WorkMeter struct {
	mu          sync.Mutex
	done, total int64
	changed     func(done, total int64)
}

// NewMeter returns a meter that calls changed after each change, one call at a time.
func NewMeter(changed func(done, total int64)) *WorkMeter { return &WorkMeter{changed: changed} }

type workMeterKey struct{}

// WithMeter returns a context for an operation that m measures.
func WithMeter(ctx context.Context, m *WorkMeter) context.Context {
	return context.WithValue(ctx, workMeterKey{}, m)
}

// MeterOf returns the meter of a context, or nil.
func MeterOf(ctx context.Context) *WorkMeter {
	m, _ := ctx.Value(workMeterKey{}).(*WorkMeter)
	return m
}

// AddExpected adds n units of expected work. An operation should call it once, before it starts.
func (m *WorkMeter) AddExpected(n int64) { m.add(0, n) }

// Add adds n units of completed work.
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
