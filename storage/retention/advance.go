package retention

import (
	"context"
	"errors"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Roller makes the rollups of raw windows before these are hidden, or dropped.
type Roller interface {
	// RollHidden makes the rollups of raw windows of a class that are to be hidden, from where rows are hidden and may be missing up to target, and returns up
	// to where they may be hidden.
	RollHidden(ctx context.Context, tenant string, class, hidden, missing, target int64) (to int64, err error)
	// RollUntil makes the rollups of the raw windows between two ends of windows, and returns up to where they are there.
	RollUntil(ctx context.Context, tenant string, from, to int64) (int64, error)
}

// Advancing brings the boundaries of tenants to their retentions.
type Advancing struct {
	k      *Keeper
	roller Roller
	logged int // changes
}

// Advance begins to bring boundaries to their retentions.
func (k *Keeper) Advance(roller Roller) *Advancing { return &Advancing{k: k, roller: roller} }

// Tenant brings the boundaries of a tenant to its retention, and returns them. Windows hidden from now on may
// be dropped when a week has passed; those hidden for so long may be dropped from now on, once it has rollups. It also fixes the expiries of windows that begin soon.
func (x *Advancing) Tenant(ctx context.Context, tenant string) (*Boundaries, error) {
	if _, err := x.k.readBoundaries(ctx, tenant); err != nil {
		return nil, err
	}
	var failed error
	var was, next *boundaryRow
	after, err := x.k.change(ctx, tenant, func(before *Boundaries) (*boundaryRow, error) {
		was, next, failed = &before.boundaryRow, before.clone(), nil
		x.k.aim(tenant, next, func(h *Boundary, target int64) int64 {
			to, err := x.roller.RollHidden(ctx, tenant, h.Class, h.HiddenMS, h.LackingMS, target)
			failed = errors.Join(failed, err)
			return to
		})
		failed = errors.Join(failed, x.dropDue(ctx, tenant, next))
		return next, nil
	})
	if err == nil && next != nil {
		x.logChanged(ctx, tenant, was, next)
	}
	if err = errors.Join(failed, err); after == nil {
		return nil, err
	}
	return after, errors.Join(err, x.k.fixAhead(ctx, tenant))
}

// aim hides whole windows that are past the retention of each class, and shows those again that aren't any more. Samples are
// hidden when their rollups are there, which answer from then on: roll makes them, and returns up to where it has.
func (k *Keeper) aim(tenant string, next *boundaryRow, roll func(h *Boundary, target int64) int64) {
	seen := k.env.Clock.SeenMS()
	now, _ := k.env.Clock.Times()
	for class := range k.Classes() {
		for res := rollup.Raw; res <= rollup.OneHour; res++ {
			keptMS, known := k.keptMS(tenant, class, res), next.Of(class, res) != nil
			target, h := k.target(now, res, keptMS), next.at(class, res)
			if !known {
				h.KeptMS = keptMS
			}
			if res == rollup.Raw {
				target = roll(h, target)
			}
			var was *keptBefore
			if shorter(keptMS, h.KeptMS) {
				was = &keptBefore{KeptMS: h.KeptMS, HiddenMS: h.HiddenMS}
			}
			h.aim(target, seen, was)
			h.keep(keptMS, seen)
		}
	}
}

// keptMS returns how long rows of a class are to be kept at a resolution, milliseconds; 0: forever.
func (k *Keeper) keptMS(tenant string, class int64, res rollup.Resolution) int64 {
	return k.Keep(tenant, class).Of(res).Milliseconds()
}

// dropDue notes what may be dropped from now on. Raw never goes before its rollups are there: where they can't be made,
// newer windows stay, too.
func (x *Advancing) dropDue(ctx context.Context, tenant string, next *boundaryRow) error {
	seen := x.k.env.Clock.SeenMS()
	var failed error
	for i := range next.List {
		h := &next.List[i]
		to := h.due(seen)
		if to == h.DroppedMS {
			continue
		}
		if h.Resolution == rollup.Raw {
			var err error
			if to, err = x.roller.RollUntil(ctx, tenant, h.DroppedMS, to); err != nil {
				failed = err
			}
		}
		if to > h.DroppedMS {
			h.drop(to, x.k.env.Expires)
		}
	}
	return failed
}

// AllDropped reports whether the rows of all classes are dropped from a window.
func (k *Keeper) AllDropped(b *Boundaries, window int64) bool {
	for class := range k.Classes() {
		if k.env.Period.WindowEnd(window) > b.Dropped(class, format.ResolutionOf(window)) {
			return false
		}
	}
	return true
}

// complete returns the boundaries of a tenant, of all its classes: from then on they hold what retention is in force, also before Expire has first run.
func (k *Keeper) complete(ctx context.Context, tenant string) (*Boundaries, error) {
	return k.change(ctx, tenant, func(before *Boundaries) (next *boundaryRow, err error) {
		now, _ := k.env.Clock.Times()
		for class := range k.Classes() {
			for res := rollup.Raw; res <= rollup.OneHour; res++ {
				if before.Of(class, res) != nil { // As a rule: an import asks for each series.
					continue
				}
				if next == nil {
					next = before.clone()
				}
				h := next.at(class, res)
				h.KeptMS = k.keptMS(tenant, class, res)
				h.aim(k.target(now, res, h.KeptMS), k.env.Clock.SeenMS(), nil)
			}
		}
		return next, nil
	})
}
