package membership

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// turnLook is how often a process that waits for its turn looks again.
const turnLook = 50 * time.Millisecond

// Turn keeps apart what one process at a time may do, where the result follows from an earlier read. Goroutines of a process
// exclude each other by a lock, processes by a lease. A process that isn't heard of any more loses its turn, as with other leases.
type Turn struct {
	m    *Member
	name string

	mu sync.Mutex
	// left is whether the lease may still be this process', though its turn has ended. mu guards it.
	left bool
}

// Begin waits until nobody else has the turn, and keeps others from it until the caller calls end.
func (t *Turn) Begin(ctx context.Context) (end func(), err error) {
	t.mu.Lock()
	if t.m.Alone() {
		return t.mu.Unlock, nil
	}
	if err := t.take(ctx); err != nil { // It may have been taken.
		t.left = true
		t.mu.Unlock()
		return nil, err
	}
	return func() {
		defer t.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CommitTimeout)
		defer cancel()
		err := t.give(ctx)
		if t.left = err != nil; t.left {
			t.m.o.Logger.Warn("other processes wait until this one can release its turn", "of", t.name, "err", err)
		}
	}, nil
}

// giveLeft frees the lease where that could not be done when the turn ended.
func (t *Turn) giveLeft(ctx context.Context) error {
	if !t.mu.TryLock() {
		return nil // It is freed afterwards.
	}
	defer t.mu.Unlock()
	if !t.left {
		return nil
	}
	err := t.give(ctx)
	t.left = err != nil
	return err
}

func (t *Turn) take(ctx context.Context) error {
	heard := NewLiveness(t.m, time.Now)
	for {
		lease, err := t.lease(ctx)
		if err != nil {
			return err
		}
		others, err := heard.Others(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(others, func(p Process) bool { return p.Writer == lease.Owner }) {
			if _, mine, err := t.m.take(ctx, t.name, 0, lease, t.m.Writer()); err != nil || mine {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("membership: waiting for the turn of %s: %w", t.name, ctx.Err())
		case <-time.After(turnLook):
		}
	}
}

// give frees the lease.
func (t *Turn) give(ctx context.Context) error {
	lease, err := t.lease(ctx)
	if err != nil || lease.Owner != t.m.Writer() {
		return err
	}
	_, _, err = t.m.take(ctx, t.name, 0, lease, "")
	return err
}

func (t *Turn) lease(ctx context.Context) (Lease, error) {
	leases, err := t.m.leases(ctx, t.name, 1)
	if err != nil {
		return Lease{}, err
	}
	return leases[0], nil
}
