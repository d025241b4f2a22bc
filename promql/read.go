package promql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/tenant"
)

// read is a query of the evaluator, or another read, with its place and the memory that it holds. Its place outlasts Prometheus'
// evaluator, which gives it back before the answer is counted: whoever waited would begin in between. It implements meter.Meter.
type read struct {
	gate   *gate
	cancel context.CancelCauseFunc
	shares []share
	// unlimited are its shares of the large queue: it counts among its tenants' queries in the other.
	unlimited []share
	place     int // 0: none was taken; the gate's lock guards it
	began     time.Time

	// entered is when it took its place, nanoseconds of Unix time.
	entered atomic.Int64

	// ending: it was told to end. The gate's lock guards it.
	ending bool

	// bytes are those that it holds, estimated. large: it has its turn among large ones.
	bytes atomic.Int64
	large atomic.Bool
	// loads: its loads may hold much, since it has its turn, or doesn't wait for one.
	loads atomic.Bool

	// mu is held while the read waits for its turn, and before the gate's lock.
	mu sync.Mutex
	// size is what the large queue counts for the read.
	size int64
	left bool
}

type readKey struct{}

func readOf(ctx context.Context) *read {
	r, _ := ctx.Value(readKey{}).(*read) // Without one nothing is metered.
	return r
}

// begin returns the context of a read, which ends when memory is short. The place that it takes is kept until leave is called.
func (g *gate) begin(ctx context.Context) (_ context.Context, r *read) {
	ctx, cancel := context.WithCancelCause(ctx)
	r = &read{gate: g, cancel: cancel, shares: g.sharesOf(ctx), unlimited: unlimited(tenant.All(ctx)), began: time.Now()}
	ctx = context.WithValue(ctx, readKey{}, r)
	if g.largeBytes > 0 {
		ctx = meter.WithMeter(ctx, r)
	}
	return ctx, r
}

// Grow implements meter.Meter. A read that comes to hold more than a small one waits for its turn among large ones, and while memory
// is full it waits until others have ended.
func (r *read) Grow(ctx context.Context, n int64) error {
	total := r.bytes.Add(n)
	if total <= r.gate.largeBytes {
		return nil
	}
	if err := r.enlarge(ctx, total); err != nil {
		return err
	}
	return r.gate.pressure.wait(ctx)
}

// Load implements meter.Meter.
func (r *read) Load(ctx context.Context, n int64) error {
	if r.bytes.Add(n) <= r.gate.largeBytes {
		return nil
	}
	if !r.large.Load() && !r.loads.Load() {
		r.bytes.Add(-n)
		return meter.ErrNoTurn
	}
	return r.gate.pressure.wait(ctx)
}

// Turn implements meter.Meter.
func (r *read) Turn(ctx context.Context) error {
	if err := r.enlarge(ctx, max(r.bytes.Load(), r.gate.largeBytes)); err != nil {
		return err
	}
	r.loads.Store(true)
	return nil
}

// Working implements meter.Meter. A read that has had its place for longer than small ones do waits for its turn among large ones, and others
// get its place meanwhile.
func (r *read) Working(ctx context.Context) {
	if r.large.Load() || time.Since(time.Unix(0, r.entered.Load())) < smallTime {
		return
	}
	if err := r.enlarge(ctx, max(r.bytes.Load(), r.gate.largeBytes)); errors.Is(err, ErrTooManyQueries) {
		r.cancel(err)
	}
}

// answer waits for its turn among large ones if the read holds little besides a large answer: it is what the evaluator made of little.
func (r *read) answer(ctx context.Context, bytes int64) error {
	if r == nil || r.gate.largeBytes == 0 || bytes <= r.gate.largeBytes || r.large.Load() {
		return nil
	}
	return r.Grow(ctx, bytes)
}

// enlarge counts the read as large, of so many bytes.
func (r *read) enlarge(ctx context.Context, total int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.left:
		return nil
	case r.large.Load():
		if more := total - r.size; more >= r.gate.largeBytes {
			r.gate.large.hold(r.shares, more)
			r.size = total
		}
		return nil
	}
	g := r.gate
	g.mu.Lock()
	parks := r.place != 0
	g.mu.Unlock()
	if !parks {
		return nil // A read without a place is one of the process itself.
	}
	g.queries.park()
	total = max(total, g.usualSize())
	err := g.large.enterWith(ctx, r.unlimited, total)
	if errors.Is(err, ErrTooManyQueries) {
		err = fmt.Errorf("%w: %d large queries are running or waiting; query less data, or retry later, or raise --memory.max-bytes", err, smallReads)
	}
	if err != nil {
		g.queries.unpark()
		return err
	}
	r.size = total
	r.large.Store(true)
	return nil
}

// leave gives the place back. It may be called more than once.
func (r *read) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left {
		return
	}
	r.left = true
	g := r.gate
	g.mu.Lock()
	e, entered := g.entered[r.place]
	delete(g.entered, r.place)
	g.mu.Unlock()
	switch {
	case !entered:
	case r.large.Load():
		g.noteSize(r.bytes.Load())
		g.large.leave(r.unlimited)
		g.large.hold(r.shares, -r.size)
		g.queries.leaveParked(e.shares)
	default:
		g.queries.leave(e.shares)
	}
}

// enterAgain waits for a place after leave. The read counts as a small one until it grows.
func (r *read) enterAgain(ctx context.Context) error {
	r.gate.mu.Lock()
	r.place = 0
	r.gate.mu.Unlock()
	if _, err := r.gate.Insert(ctx, ""); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left, r.size = false, 0
	r.large.Store(false)
	r.loads.Store(false)
	return nil
}

// end is called once the read's context isn't used any more.
func (r *read) end() {
	r.cancel(nil)
	r.leave()
}
