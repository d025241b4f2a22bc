package ruler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/membership"
)

// confirmedFor is for how long a process evaluates that has seen that the rules are its own: long before another one takes
// them that hasn't heard of it. A process that was stopped where it stood, and goes on, looks first.
const confirmedFor = membership.LivenessTimeout / 2

// errNotAnnounced means that other processes may take this one for dead, though it can read.
var errNotAnnounced = errors.New("ruler: this process could not send its heartbeat")

// owner looks after the lease of the rules.
type owner struct {
	store    *storage.Store
	liveness *membership.Liveness
	now      func() time.Time

	mu sync.Mutex
	// seen is when the newest look began that found the rules to be this process'.
	seen time.Time
}

func newOwner(store *storage.Store, now func() time.Time) *owner {
	return &owner{store: store, liveness: membership.NewLiveness(store.Member(), now), now: now}
}

// confirmed reports whether a look has found of late that the rules are this process'.
func (o *owner) confirmed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.seen.IsZero() && membership.Elapsed(o.seen, o.now()) < confirmedFor
}

func (o *owner) confirm(begun time.Time, mine bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !mine {
		begun = time.Time{}
	}
	o.seen = begun
}

// renew is take, and notes its result.
func (o *owner) renew(ctx context.Context) (mine bool, err error) {
	begun := o.now()
	if mine, err = o.take(ctx); err == nil {
		o.confirm(begun, mine)
	}
	return mine, err
}

// take takes the lease if nobody has it who is heard of, and reports whether it is this process'. After an error that isn't
// known: it may have been taken.
func (o *owner) take(ctx context.Context) (mine bool, err error) {
	if unheard := o.store.Member().Unheard(); unheard > membership.LivenessTimeout-confirmedFor {
		return false, fmt.Errorf("%w for %v", errNotAnnounced, unheard.Round(time.Second))
	}
	if err := o.store.Member().MayRemove(); err != nil { // It would evaluate at a wrong time; others do at the right one.
		return false, errors.Join(err, o.free(ctx))
	}
	others, err := o.liveness.Others(ctx)
	if err != nil {
		return false, err
	}
	lease, err := o.store.Member().RulesLease(ctx)
	if err != nil {
		return false, err
	}
	alive := func(writer string) bool {
		return slices.ContainsFunc(others, func(p membership.Process) bool { return p.Writer == writer })
	}
	switch {
	case lease.Owner == o.store.Member().Writer():
		return true, nil
	case lease.Owner != "" && alive(lease.Owner):
		return false, nil
	}
	_, mine, err = o.store.Member().TakeRules(ctx, lease, o.store.Member().Writer())
	return mine, err
}

// free gives the lease up, so that others needn't wait for silence.
func (o *owner) free(ctx context.Context) error {
	lease, err := o.store.Member().RulesLease(ctx)
	if err != nil || lease.Owner != o.store.Member().Writer() {
		return err
	}
	_, _, err = o.store.Member().TakeRules(ctx, lease, "")
	return err
}
