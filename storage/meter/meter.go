package meter

import (
	"context"
	"errors"
)

// Meter tracks the memory and the time of a query or another read.
type Meter interface {
	// Grow is called before the read holds about n more bytes. It may wait until other reads hold less. After an error,
	// which may be the context's, the read must end with that error. It may be called concurrently.
	Grow(ctx context.Context, n int64) error
	// Load is Grow for a load into a cache. Other reads, including large ones, may wait for the load, so it never waits
	// for a turn. It returns ErrNoTurn instead; the caller then cancels the load and starts it again after Turn.
	Load(ctx context.Context, n int64) error
	// Turn waits until the read may hold a large amount of memory for a load. load identifies the load, and is
	// comparable: reads that need the same load may have their turns together.
	Turn(ctx context.Context, load any) error
	// Working is called regularly by work that may take long and holds no memory, and while a read waits for a load of
	// another read. load identifies that load, as in Turn; nil: none. Working may block until the read may continue, or
	// cancel the read's context.
	Working(ctx context.Context, load any)
}

// ErrNoTurn is returned by Meter.Load if the read must call Turn first.
var ErrNoTurn = errors.New("storage: a large read must call Turn before Load")

type loadKey struct{}

// WithLoading returns the context of a load into a cache.
func WithLoading(ctx context.Context) context.Context { return context.WithValue(ctx, loadKey{}, true) }

// IsLoading reports whether ctx belongs to a load into a cache, for which other reads may wait.
func IsLoading(ctx context.Context) bool { return ctx.Value(loadKey{}) != nil }

type meterKey struct{}

// WithMeter returns a context whose reads are metered.
func WithMeter(ctx context.Context, m Meter) context.Context {
	return context.WithValue(ctx, meterKey{}, m)
}

// Grow calls the meter of ctx; without a meter it returns nil.
func Grow(ctx context.Context, n int64) error {
	if m := meterOf(ctx); m != nil && n > 0 {
		if IsLoading(ctx) {
			return m.Load(ctx, n)
		}
		return m.Grow(ctx, n)
	}
	return nil
}

// WaitTurn calls Turn of the meter of ctx; without a meter it returns nil.
func WaitTurn(ctx context.Context, load any) error {
	if m := meterOf(ctx); m != nil {
		return m.Turn(ctx, load)
	}
	return nil
}

// Working calls Working of the meter of ctx, except for loads, because other reads may wait for them.
func Working(ctx context.Context, load any) {
	if m := meterOf(ctx); m != nil && !IsLoading(ctx) {
		m.Working(ctx, load)
	}
}

func meterOf(ctx context.Context) Meter {
	m, _ := ctx.Value(meterKey{}).(Meter) // nil: no meter
	return m
}

// AtOnce is the number of bytes after which a load, or a read of label names or values, calls the meter again.
const AtOnce = 64 << 10
