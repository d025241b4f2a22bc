package ruler

import (
	"context"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage"
)

// owner looks after the lease of the rules.
type owner struct {
	store *storage.Store
	heard *storage.Heard
}

func newOwner(store *storage.Store, now func() time.Time) *owner {
	return &owner{store: store, heard: storage.NewHeard(store, now)}
}

// look takes the lease if nobody has it who is heard of, and says whether it is this process'. After an error that isn't
// known: it may have been taken.
func (o *owner) look(ctx context.Context) (mine bool, err error) {
	others, err := o.heard.Others(ctx)
	if err != nil {
		return false, err
	}
	lease, err := o.store.RulesLease(ctx)
	if err != nil {
		return false, err
	}
	alive := func(writer string) bool {
		return slices.ContainsFunc(others, func(p storage.Process) bool { return p.Writer == writer })
	}
	switch {
	case lease.Owner == o.store.Writer():
		return true, nil
	case lease.Owner != "" && alive(lease.Owner):
		return false, nil
	}
	_, mine, err = o.store.TakeRules(ctx, lease, o.store.Writer())
	return mine, err
}

// free gives the lease up, so that others needn't wait for silence.
func (o *owner) free(ctx context.Context) error {
	lease, err := o.store.RulesLease(ctx)
	if err != nil || lease.Owner != o.store.Writer() {
		return err
	}
	_, _, err = o.store.TakeRules(ctx, lease, "")
	return err
}
