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
	// boundariesFresh is the maximum age of a cached copy of a tenant's boundaries in a shared store. An outdated copy
	// is harmless: it may show windows that were hidden since, but these aren't dropped for a week.
	boundariesFresh = 30 * time.Second
	// changeTries is the number of attempts to change boundaries while other processes also change them. It is also the
	// number of attempts to insert an expiry while the outcome of an insert is unknown.
	changeTries = 3
)

var boundariesPartition = engine.Key{engine.Text("horizons")}

// Boundaries holds the boundaries of a tenant, as read from the store. It is immutable.
type Boundaries struct {
	boundaryRow
	value []byte // as stored; nil if there is no row
	// broken is true if the row is unreadable. Then the configured retention alone decides which rows are hidden, and
	// nothing is dropped.
	broken bool
	read   time.Time
	// fixed are the fixed expiries that may matter (see firstListed), ordered by window. They were read at time listed,
	// which is zero if they weren't read or the engine doesn't expire rows. firstExpiry is the earliest of these
	// expiries, or 0 if no window expires.
	fixed       []fixedExpiry
	firstExpiry int64
	listed      time.Time
	// firstRaw is, for each class, the first raw window that may have rows. Later windows also have rows, except
	// windows in fixed that have expired. See firstListed.
	firstRaw []int64
}

// get returns the boundary of a class at a resolution, or nil if it isn't stored or b is nil.
func (b *Boundaries) get(class int64, res rollup.Resolution) *Boundary {
	if b == nil {
		return nil
	}
	return b.Boundary(class, res)
}

// Missing returns the time until which rows of a class may be missing at a resolution, or Never.
func (b *Boundaries) Missing(class int64, res rollup.Resolution) int64 {
	if h := b.get(class, res); h != nil {
		return h.LackingMS
	}
	return Never
}

// Dropped returns the time until which rows of a class are dropped at a resolution, or Never.
func (b *Boundaries) Dropped(class int64, res rollup.Resolution) int64 {
	if h := b.get(class, res); h != nil {
		return h.DroppedMS
	}
	return Never
}

// Boundaries returns the boundaries of a tenant. It reads them from the store if the cached copy is old and other
// processes may have changed them.
func (k *Keeper) Boundaries(ctx context.Context, tenant string) (*Boundaries, error) {
	known := k.boundaries.Value(tenant)
	if known != nil && (!k.env.Expires || !known.listed.IsZero()) &&
		(!k.env.Shared || membership.Elapsed(known.read, k.env.Now()) < boundariesFresh) {
		return known, nil
	}
	return k.readBoundaries(ctx, tenant)
}

// LoadBoundaries reads the boundaries of all tenants that have a row. It must be called when the store is opened,
// because the cached boundaries decide which samples are accepted.
func (k *Keeper) LoadBoundaries(ctx context.Context) error {
	for row, err := range k.env.Engine.Scan(ctx, engine.Range{Table: engine.Store, Partition: boundariesPartition}) {
		if err != nil {
			return fmt.Errorf("storage: reading the retention boundaries: %w", err)
		}
		if r, err := parseBoundaries(row.Value); err == nil { // An unreadable row is reported by readBoundaries.
			k.boundaries.Set(strings.Clone(row.Clustering[0].Text), &Boundaries{
				boundaryRow: r, value: slices.Clone(row.Value), read: k.env.Now(),
			})
		}
	}
	return nil
}

// readBoundaries reads the boundaries of a tenant. It also reads the tenant's expiries if the cached expiries are old
// or were read with other boundaries.
func (k *Keeper) readBoundaries(ctx context.Context, tenant string) (*Boundaries, error) {
	item := engine.Key{engine.Text(tenant)}
	known, b := k.boundaries.Value(tenant), &Boundaries{read: k.env.Now()}
	for row, err := range k.env.Engine.Scan(ctx, engine.Range{
		Table: engine.Store, Partition: boundariesPartition, From: item, To: item,
	}) {
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

// updateBoundaries stores the boundaries that next returns for a tenant's current boundaries. If next returns nil,
// nothing is stored. If another process changes the boundaries concurrently, next is called again. Unreadable
// boundaries aren't changed.
func (k *Keeper) updateBoundaries(
	ctx context.Context, tenant string, next func(before *Boundaries) (*boundaryRow, error),
) (*Boundaries, error) {
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
		after, err := k.replaceBoundaries(ctx, tenant, before, row, value)
		if err == nil {
			return after, nil
		}
		if !errors.Is(err, errBoundariesChanged) || try == changeTries {
			return before, err
		}
	}
}

// replaceBoundaries stores new boundaries of a tenant and returns them. It fails if the stored boundaries no longer
// equal before.
func (k *Keeper) replaceBoundaries(
	ctx context.Context, tenant string, before *Boundaries, next *boundaryRow, value []byte,
) (*Boundaries, error) {
	if err := k.env.Clock.MayRemove(); err != nil {
		return nil, err
	}
	ok, _, err := k.env.Engine.CompareAndSet(
		ctx, engine.Store, boundariesPartition, engine.Key{engine.Text(tenant)}, before.value, value,
	)
	b := &Boundaries{boundaryRow: *next, value: value, read: k.env.Now()}
	switch {
	case err != nil: // The outcome is unknown, so the cached copy is cleared.
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
	return b, nil // Not from the cache, which a concurrent failed change may clear.
}
