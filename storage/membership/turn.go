package membership

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// turnInterval is the interval at which a waiting process reads the lease.
const turnInterval = 50 * time.Millisecond

// Turn is a mutex across processes, for read-modify-write changes. Goroutines of one process exclude each other with a
// lock, and processes with a lease. As with other leases, a process that stops sending heartbeats loses the lease.
type Turn struct {
	m    *Member
	name string

	// held is a lock: a channel of capacity one that contains an item while a goroutine has the turn.
	held chan struct{}
	// left is true if releasing the lease failed, so that this process may still own it. The holder of held may access
	// it.
	left bool
}

func newTurn(m *Member, name string) *Turn {
	return &Turn{m: m, name: name, held: make(chan struct{}, 1)}
}

// Begin acquires the turn once no other process or goroutine has it. The caller must call end to release it.
func (t *Turn) Begin(ctx context.Context) (end func(), err error) {
	select {
	case t.held <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("membership: waiting until %s ends: %w", t.name, ctx.Err())
	}
	release := func() { <-t.held }
	if t.m.IsAlone() {
		return release, nil
	}
	if err := t.acquireLease(ctx); err != nil { // The lease may have been acquired despite the error.
		t.left = true
		release()
		return nil, err
	}
	return func() {
		defer release()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CommitTimeout)
		defer cancel()
		err := t.releaseLease(ctx)
		if t.left = err != nil; t.left {
			t.m.o.Logger.Warn("other processes wait until this one can release its turn", "of", t.name, "err", err)
		}
	}, nil
}

// releaseLeftover releases the lease if this process failed to release it at the end of a turn.
func (t *Turn) releaseLeftover(ctx context.Context) error {
	select {
	case t.held <- struct{}{}:
	default:
		return nil // The current turn releases it.
	}
	defer func() { <-t.held }()
	if !t.left {
		return nil
	}
	err := t.releaseLease(ctx)
	t.left = err != nil
	return err
}

func (t *Turn) acquireLease(ctx context.Context) error {
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
			if _, mine, err := t.m.setLeaseOwner(ctx, t.name, 0, lease, t.m.Writer()); err != nil || mine {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("membership: waiting for other processes to finish %s: %w", t.name, ctx.Err())
		case <-time.After(turnInterval):
		}
	}
}

func (t *Turn) releaseLease(ctx context.Context) error {
	lease, err := t.lease(ctx)
	if err != nil || lease.Owner != t.m.Writer() {
		return err
	}
	_, _, err = t.m.setLeaseOwner(ctx, t.name, 0, lease, "")
	return err
}

func (t *Turn) lease(ctx context.Context) (Lease, error) {
	leases, err := t.m.leases(ctx, t.name, 1)
	if err != nil {
		return Lease{}, err
	}
	return leases[0], nil
}
