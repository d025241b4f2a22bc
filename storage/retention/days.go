package retention

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// listFor returns the id of the list that a window of raw rows takes if its first row is written now: of a day to come, that of the day.
func (k *Keeper) listFor(window int64) string {
	return k.InForce(max(k.env.Period.WindowStart(window), k.env.Clock.EngineTime().UnixMilli()))
}

// ClassesOn returns the list of classes of a window of raw rows. fixed is false if no row of it was written: then it is the list that it would take now.
func (k *Keeper) ClassesOn(ctx context.Context, tenant string, window int64) (l *ClassList, fixed bool, err error) {
	row, fixed, err := k.fixedExpiry(ctx, expiryAt{tenant, Shared, window})
	if err != nil {
		return nil, false, err
	}
	if !fixed {
		row.Classes = k.listFor(window)
	}
	l, err = k.List(ctx, row.Classes)
	return l, fixed, err
}

// FixClasses is ClassesOn the day of a slot, and fixes the list if it isn't.
func (k *Keeper) FixClasses(ctx context.Context, tenant string, slot int64) (*ClassList, error) {
	row, err := k.fixExpiry(ctx, expiryAt{tenant, Shared, k.env.Period.WindowOfSlot(rollup.Raw, slot)})
	if err != nil {
		return nil, err
	}
	return k.List(ctx, row.Classes)
}

// DayLists are the lists of classes of some days of a tenant.
type DayLists struct {
	k      *Keeper
	tenant string
	of     map[int64]*ClassList // by the window of raw rows
}

// Days returns the lists of classes of a tenant's days, which At reads.
func (k *Keeper) Days(tenant string) DayLists { return DayLists{k: k, tenant: tenant} }

// At returns the list of the day of a timestamp.
func (d *DayLists) At(ctx context.Context, t int64) (*ClassList, error) {
	if d.k.Classes() == 1 {
		return noClasses, nil
	}
	window := d.k.env.Period.RawWindowAt(t)
	if l := d.of[window]; l != nil {
		return l, nil
	}
	l, _, err := d.k.ClassesOn(ctx, d.tenant, window)
	if err != nil {
		return nil, err
	}
	if d.of == nil {
		d.of = map[int64]*ClassList{}
	}
	d.of[window] = l
	return l, nil
}

// ImportClasses returns the list of classes of the day of a slot, and fixes it, unless no rows come of some series of the day: then it returns nil. It returns
// an error for series of a day without rows that the classes of this process keep, if these aren't in force yet and those that are don't.
func (k *Keeper) ImportClasses(ctx context.Context, tenant string, slot int64, series iter.Seq[*head.Series]) (*ClassList, error) {
	list, fixed, err := k.ClassesOn(ctx, tenant, k.env.Period.WindowOfSlot(rollup.Raw, slot))
	if err != nil || fixed {
		return list, err
	}
	b, err := k.Boundaries(ctx, tenant)
	if err != nil {
		return nil, err
	}
	own, last, takesAny := k.ownList, k.history.Load().newest(), false
	if own != nil && (own == list || last.ID != own.id) {
		own = nil
	}
	for s := range series {
		takes := k.takesNew(b, tenant, list.Of(s), slot)
		takesAny = takesAny || takes
		if own != nil && !takes && k.takesNew(b, tenant, own.Of(s), slot) {
			return nil, fmt.Errorf("%w: the samples are past the retention that is in force; the retention classes of this process, which keep them, are in force from %s on: repeat the import then",
				engine.ErrUnavailable, Instant(last.FromMS).Format(time.RFC3339))
		}
	}
	if !takesAny {
		return nil, nil
	}
	return k.FixClasses(ctx, tenant, slot)
}

// takesNew reports whether the first rows of a class would be stored in the windows of a slot, at raw or 5m.
func (k *Keeper) takesNew(b *Boundaries, tenant string, class, slot int64) bool {
	for res := rollup.Raw; res <= rollup.FiveMinutes; res++ {
		past := k.isOutlived(res, slot, k.Keep(tenant, class)) // An import restores dropped windows.
		if k.env.Expires {
			past = k.isPast(k.wantedExpiry(b, expiryAt{tenant, class, k.env.Period.WindowOfSlot(res, slot)}))
		}
		if !past {
			return true
		}
	}
	return false
}
