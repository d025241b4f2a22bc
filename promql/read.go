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

// read is a query of the evaluator, or an external read, with its place and the memory that it holds. It keeps its
// place until its answer is counted. The evaluator itself would release the place earlier, and a waiting read would
// start before the memory of the answer is known. It implements meter.Meter.
type read struct {
	gate   *gate
	cancel context.CancelCauseFunc
	shares []share
	// unlimited are the read's shares of the queue of large reads. They have no limits, because the queue of all
	// queries applies the limits of the tenants.
	unlimited []share
	place     int // 0: not taken. Guarded by the gate's lock.
	began     time.Time

	// entered is the time at which the read took its place, in nanoseconds of Unix time.
	entered atomic.Int64

	// ending is true if the read was canceled. Guarded by the gate's lock.
	ending bool

	// bytes is the estimated memory that the read holds. large is true if the read has its turn among large reads.
	bytes atomic.Int64
	large atomic.Bool
	// loads is true if the read may hold much memory for loads into caches: it has its turn, or doesn't have to wait
	// for one.
	loads atomic.Bool

	// mu is held while the read waits for its turn. It is acquired before the gate's lock.
	mu sync.Mutex
	// size is the number of bytes that the large queue counts for the read.
	size int64
	left bool
}

type readKey struct{}

func readOf(ctx context.Context) *read {
	r, _ := ctx.Value(readKey{}).(*read) // Without a read, nothing is metered.
	return r
}

// startRead returns the context of a read, which is canceled when memory is short. The read keeps its place until leave
// is called.
func (g *gate) startRead(ctx context.Context) (_ context.Context, r *read) {
	ctx, cancel := context.WithCancelCause(ctx)
	r = &read{
		gate:      g,
		cancel:    cancel,
		shares:    g.sharesOf(ctx),
		unlimited: unlimitedShares(tenant.NamesFromContext(ctx)),
		began:     time.Now(),
	}
	ctx = context.WithValue(ctx, readKey{}, r)
	if g.largeBytes > 0 {
		ctx = meter.WithMeter(ctx, r)
	}
	return ctx, r
}

// Grow implements meter.Meter. A read that grows beyond the size of a small read waits for its turn among large reads.
// While memory is full, it waits until other reads have ended.
func (r *read) Grow(ctx context.Context, n int64) error {
	total := r.bytes.Add(n)
	if total <= r.gate.largeBytes {
		return nil
	}
	if err := r.becomeLarge(ctx, nil, total); err != nil {
		return err
	}
	return r.gate.pressure.waitForRelief(ctx)
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
	return r.gate.pressure.waitForRelief(ctx)
}

// Turn implements meter.Meter.
func (r *read) Turn(ctx context.Context, load any) error {
	if err := r.becomeLarge(ctx, load, max(r.bytes.Load(), r.gate.largeBytes)); err != nil {
		return err
	}
	r.loads.Store(true)
	return nil
}

// Working implements meter.Meter. A read that has had its place for maxSmallTime waits for its turn among large reads.
// While it waits, its place is given to other reads.
func (r *read) Working(ctx context.Context, load any) {
	if r.large.Load() || time.Since(time.Unix(0, r.entered.Load())) < maxSmallTime {
		return
	}
	if err := r.becomeLarge(ctx, load, max(r.bytes.Load(), r.gate.largeBytes)); errors.Is(err, ErrTooManyQueries) {
		r.cancel(err)
	}
}

// growForAnswer waits for a turn among large reads if the read holds little but has a large answer, as when the
// evaluator makes many values from few samples.
func (r *read) growForAnswer(ctx context.Context, bytes int64) error {
	if r == nil || r.gate.largeBytes == 0 || bytes <= r.gate.largeBytes || r.large.Load() {
		return nil
	}
	return r.Grow(ctx, bytes)
}

// becomeLarge makes the read a large one that holds total bytes. It waits for the read's turn among large reads. load
// identifies the load that the read needs, or is nil. If the read already has its turn, becomeLarge counts the
// additional bytes.
func (r *read) becomeLarge(ctx context.Context, load any, total int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.left:
		return nil
	case r.large.Load():
		if more := total - r.size; more >= r.gate.largeBytes {
			r.gate.large.addHeld(r.shares, more)
			r.size = total
		}
		return nil
	}
	g := r.gate
	g.mu.Lock()
	parks := r.place != 0
	g.mu.Unlock()
	if !parks {
		return nil // A read without a place was started by the process itself.
	}
	g.queries.park()
	total = max(total, g.averageLargeSize())
	err := g.large.enterForLoad(ctx, r.unlimited, total, load)
	if errors.Is(err, ErrTooManyQueries) {
		err = fmt.Errorf(
			"%w: %d large queries are running or waiting; query less data, or retry later, or raise --memory.max-bytes",
			err, maxWaitingReads,
		)
	}
	if err != nil {
		g.queries.unpark()
		return err
	}
	r.size = total
	r.large.Store(true)
	return nil
}

// leave releases the place. It may be called more than once.
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
		g.recordLargeSize(r.bytes.Load())
		g.large.leave(r.unlimited)
		g.large.addHeld(r.shares, -r.size)
		g.queries.leaveParked(e.shares)
	default:
		g.queries.leave(e.shares)
	}
}

// enterAgain waits for a place after leave. The read counts as small until it grows.
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

// end releases the read. The read's context must not be used afterwards.
func (r *read) end() {
	r.cancel(nil)
	r.leave()
}
