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

// confirmationTimeout is the time for which a process may evaluate rules after it has confirmed that it owns the rules.
// The timeout is half of the time after which another process takes over. So a process that was suspended for longer
// checks the lease before it evaluates.
const confirmationTimeout = membership.LivenessTimeout / 2

// errNotAnnounced means that this process can read but hasn't sent a heartbeat for so long that other processes may
// assume that it has stopped.
var errNotAnnounced = errors.New("ruler: this process could not send its heartbeat")

// owner holds the lease of the rules.
type owner struct {
	store    *storage.Store
	liveness *membership.Liveness
	now      func() time.Time

	mu sync.Mutex
	// confirmedAt is the start of the newest check that confirmed this process as the owner.
	confirmedAt time.Time
}

func newOwner(store *storage.Store, now func() time.Time) *owner {
	return &owner{store: store, liveness: membership.NewLiveness(store.Member(), now), now: now}
}

// isConfirmed reports whether a recent check has confirmed that this process owns the rules.
func (o *owner) isConfirmed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.confirmedAt.IsZero() && membership.Elapsed(o.confirmedAt, o.now()) < confirmationTimeout
}

func (o *owner) setConfirmed(begun time.Time, mine bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !mine {
		begun = time.Time{}
	}
	o.confirmedAt = begun
}

// renewLease calls takeLease. If this confirms the process as the owner, it records the time.
func (o *owner) renewLease(ctx context.Context) (mine bool, err error) {
	begun := o.now()
	if mine, err = o.takeLease(ctx); err == nil {
		o.setConfirmed(begun, mine)
	}
	return mine, err
}

// takeLease takes the lease if no live process holds it, and reports whether this process owns it. After an error, it
// is unknown whether this process has taken the lease.
func (o *owner) takeLease(ctx context.Context) (mine bool, err error) {
	if unheard := o.store.Member().HeartbeatAge(); unheard > membership.LivenessTimeout-confirmationTimeout {
		return false, fmt.Errorf("%w for %v", errNotAnnounced, unheard.Round(time.Second))
	}
	if err := o.store.Member().MayRemove(); err != nil {
		// With its untrusted clock, this process would evaluate at wrong times. Other processes evaluate at the right
		// times.
		return false, errors.Join(err, o.releaseLease(ctx))
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
	_, mine, err = o.store.Member().SetRulesLeaseOwner(ctx, lease, o.store.Member().Writer())
	return mine, err
}

// releaseLease releases the lease, so that other processes don't have to wait for LivenessTimeout.
func (o *owner) releaseLease(ctx context.Context) error {
	lease, err := o.store.Member().RulesLease(ctx)
	if err != nil || lease.Owner != o.store.Member().Writer() {
		return err
	}
	_, _, err = o.store.Member().SetRulesLeaseOwner(ctx, lease, "")
	return err
}
