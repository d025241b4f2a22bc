package meter

import (
	"context"
	"errors"
)

// Meter follows the memory that one query, or another read, holds, and the time that it takes.
type Meter interface {
	// Grow is called before the read holds n more bytes, estimated. It may wait until other reads hold less. After an error the read
	// must end with it; the context's is one of them. It may be called by many goroutines.
	Grow(ctx context.Context, n int64) error
	// Load is Grow for a load into a cache. Other reads may wait for the load, even ones that hold much, so it never waits for a turn
	// among them: it returns ErrNoTurn, the load is given up, and begun again after Turn.
	Load(ctx context.Context, n int64) error
	// Turn waits until the read may hold much.
	Turn(ctx context.Context) error
	// Working is called at times by work that may take long and holds nothing, and while a read waits for another's load. It may wait until the read may go on, or end the read's context.
	Working(ctx context.Context)
}

// ErrNoTurn is returned by Meter.Load where the read must call Turn first.
var ErrNoTurn = errors.New("storage: a large read must call Turn before Load")

type loadKey struct{}

// Loading returns the context of a load into a cache.
func Loading(ctx context.Context) context.Context { return context.WithValue(ctx, loadKey{}, true) }

// IsLoading reports whether ctx is that of a load into a cache, for which others may wait.
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
func WaitTurn(ctx context.Context) error {
	if m := meterOf(ctx); m != nil {
		return m.Turn(ctx)
	}
	return nil
}

// Working calls Working of the meter of ctx, except for loads, for which others may wait.
func Working(ctx context.Context) {
	if m := meterOf(ctx); m != nil && !IsLoading(ctx) {
		m.Working(ctx)
	}
}

func meterOf(ctx context.Context) Meter {
	m, _ := ctx.Value(meterKey{}).(Meter) // Without one nothing is metered.
	return m
}

// AtOnce is how many bytes of loads, and of texts, are metered at once.
const AtOnce = 64 << 10
