package retention

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/rollup"
)

const (
	// boundariesFresh is how old a process' copy of a tenant's boundaries may be where others change them. A window that was shown
	// a moment ago isn't dropped for a week.
	boundariesFresh = 30 * time.Second
	// changeTries is how often boundaries are changed where others change them concurrently, and an expiry is inserted where the outcome is unknown.
	changeTries = 3
)

var boundariesPartition = engine.Key{engine.Text("horizons")}

// Boundaries are the boundaries of a tenant, as they were read. They don't change.
type Boundaries struct {
	boundaryRow
	value []byte // as stored; nil: there is no row
	// broken is true if the row can't be read: flags decide up to where rows are hidden, and nothing is dropped.
	broken bool
	read   time.Time
	// fixed are the expiries of the windows that may matter, see firstListed, in order, as they were read at listed; zero: they weren't, or nothing expires by
	// itself. firstExpiry is the first of them; 0: none expires.
	fixed       []fixedExpiry
	firstExpiry int64
	listed      time.Time
	// firstRaw are the first raw windows of the classes of which rows stand, beside those in fixed that have expired: see firstListed.
	firstRaw []int64
}

// get returns the boundary of a class, nil if none is stored, or known.
func (b *Boundaries) get(class int64, res rollup.Resolution) *Boundary {
	if b == nil {
		return nil
	}
	return b.Of(class, res)
}

// Missing returns up to where rows of a class may be missing, of a resolution; Never: of none.
func (b *Boundaries) Missing(class int64, res rollup.Resolution) int64 {
	if h := b.get(class, res); h != nil {
		return h.LackingMS
	}
	return Never
}

// Dropped returns up to where rows of a class are dropped, of a resolution.
func (b *Boundaries) Dropped(class int64, res rollup.Resolution) int64 {
	if h := b.get(class, res); h != nil {
		return h.DroppedMS
	}
	return Never
}

// Boundaries returns the boundaries of a tenant; those that were read a while ago are read again where others may have changed them.
func (k *Keeper) Boundaries(ctx context.Context, tenant string) (*Boundaries, error) {
	known := k.boundaries.At(tenant)
	if known != nil && (!k.env.Expires || !known.listed.IsZero()) && (!k.env.Shared || membership.Elapsed(known.read, k.env.Now()) < boundariesFresh) {
		return known, nil
	}
	return k.readBoundaries(ctx, tenant)
}

// Recall reads the boundaries of all tenants that have a row, when the store is opened: so that it is soon known which samples are refused.
func (k *Keeper) Recall(ctx context.Context) error {
	for row, err := range k.env.Engine.Scan(ctx, engine.Range{Table: engine.Store, Partition: boundariesPartition}) {
		if err != nil {
			return fmt.Errorf("storage: reading the retention boundaries: %w", err)
		}
		if r, err := parseBoundaries(row.Value); err == nil { // A row that can't be read is reported when it is needed.
			k.boundaries.Set(strings.Clone(row.Clustering[0].Text), &Boundaries{boundaryRow: r, value: slices.Clone(row.Value), read: k.env.Now()})
		}
	}
	return nil
}

// readBoundaries reads the boundaries of a tenant, and its expiries where those that are known are old, or of other boundaries.
func (k *Keeper) readBoundaries(ctx context.Context, tenant string) (*Boundaries, error) {
	item := engine.Key{engine.Text(tenant)}
	known, b := k.boundaries.At(tenant), &Boundaries{read: k.env.Now()}
	for row, err := range k.env.Engine.Scan(ctx, engine.Range{Table: engine.Store, Partition: boundariesPartition, From: item, To: item}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading the retention boundaries of tenant %q: %w", tenant, err)
		}
		b.value = slices.Clone(row.Value)
	}
	if b.value != nil {
		var err error
		if b.boundaryRow, err = parseBoundaries(b.value); err != nil {
			k.env.Corrupt(engine.Store, fmt.Errorf("%w: tenant %q", err, tenant))
			b.boundaryRow, b.broken = boundaryRow{}, true
		}
	}
	if err := k.listExpiries(ctx, tenant, b, known); err != nil {
		return nil, err
	}
	k.boundaries.Set(tenant, b)
	return b, nil
}

// errBoundariesChanged means that another process has changed a tenant's boundaries.
var errBoundariesChanged = errors.New("storage: another process changed the retention boundaries concurrently")

// change stores the boundaries that next makes of a tenant's; nil: they stay. It calls next again where another process has changed them. Boundaries that
// can't be read stay.
func (k *Keeper) change(ctx context.Context, tenant string, next func(before *Boundaries) (*boundaryRow, error)) (*Boundaries, error) {
	for try := 1; ; try++ {
		before, err := k.Boundaries(ctx, tenant)
		if err != nil || before.broken {
			return before, err
		}
		row, err := next(before)
		if row == nil || err != nil {
			return before, err
		}
		value, err := json.Marshal(row)
		if err != nil || bytes.Equal(value, before.value) {
			return before, err
		}
		after, err := k.replace(ctx, tenant, before, row, value)
		if err == nil {
			return after, nil
		}
		if !errors.Is(err, errBoundariesChanged) || try == changeTries {
			return before, err
		}
	}
}

// replace stores the boundaries of a tenant in place of those that were read, and returns them.
func (k *Keeper) replace(ctx context.Context, tenant string, before *Boundaries, next *boundaryRow, value []byte) (*Boundaries, error) {
	if err := k.env.Clock.MayRemove(); err != nil {
		return nil, err
	}
	ok, _, err := k.env.Engine.CompareAndSet(ctx, engine.Store, boundariesPartition, engine.Key{engine.Text(tenant)}, before.value, value)
	b := &Boundaries{boundaryRow: *next, value: value, read: k.env.Now()}
	switch {
	case err != nil: // It may have been written: it is read again.
		err = fmt.Errorf("storage: changing the retention boundaries of tenant %q: %w", tenant, err)
	case !ok:
		err = errBoundariesChanged
	default:
		err = k.listExpiries(ctx, tenant, b, nil)
	}
	if err != nil {
		k.boundaries.Delete(tenant)
		return nil, err
	}
	k.boundaries.Set(tenant, b)
	return b, nil // Not from the memory: another caller that fails to change them clears that.
}
