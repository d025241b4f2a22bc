package retention

import (
	"context"
	"errors"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Roller computes the rollups of raw windows before the windows are hidden or dropped.
type Roller interface {
	// RollHidden computes the rollups of the raw windows that will be hidden, up to target, and of the next window
	// after target. target must be the end of a window. h is the current boundary of the class. RollHidden returns the
	// time until which rollups are complete.
	RollHidden(ctx context.Context, tenant string, h *Boundary, target int64) (to int64, err error)
	// RollUntil computes the rollups of the raw windows between two window ends, and returns the time until which
	// rollups are complete.
	RollUntil(ctx context.Context, tenant string, from, to int64) (int64, error)
}

// Advancing adjusts the boundaries of tenants to their retention.
type Advancing struct {
	k      *Keeper
	roller Roller
	logged int // number of logged changes
}

// Advance returns an Advancing for one pass over all tenants.
func (k *Keeper) Advance(roller Roller) *Advancing { return &Advancing{k: k, roller: roller} }

// Tenant adjusts the boundaries of a tenant to its retention, and returns them. Windows that it hides may be dropped
// after a week. Windows that have been hidden for a week may be dropped once their rollups are complete. Tenant also
// fixes the expiries of windows that start soon.
func (x *Advancing) Tenant(ctx context.Context, tenant string) (*Boundaries, error) {
	if _, err := x.k.readBoundaries(ctx, tenant); err != nil {
		return nil, err
	}
	var failed error
	var was, next *boundaryRow
	after, err := x.k.updateBoundaries(ctx, tenant, func(before *Boundaries) (*boundaryRow, error) {
		was, next, failed = &before.boundaryRow, before.clone(), nil
		x.k.applyRetention(tenant, next, func(h *Boundary, target int64) int64 {
			to, err := x.roller.RollHidden(ctx, tenant, h, target)
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

// applyRetention hides the windows that are entirely past the retention of a class, and shows hidden windows that
// aren't past it any more. Raw samples are hidden only after their rollups were computed, because queries then read the
// rollups. roll computes the rollups, and returns the time until which no rollups are missing. If this time is after
// target, the rollups of the window after target also exist, and queries may hide the samples of that window as they
// pass the retention.
func (k *Keeper) applyRetention(tenant string, next *boundaryRow, roll func(h *Boundary, target int64) int64) {
	seen := k.env.Clock.ObservedUptimeMS()
	now, _ := k.env.Clock.Times()
	for class := range k.Classes() {
		for res := rollup.Raw; res <= rollup.OneHour; res++ {
			keptMS, known := k.keptMS(tenant, class, res), next.Boundary(class, res) != nil
			target, h := k.target(now, res, keptMS), next.ensureBoundary(class, res)
			if !known {
				h.KeptMS = keptMS
			}
			rolled := int64(Never)
			if res == rollup.Raw {
				rolled = roll(h, target)
				target = min(target, rolled)
			}
			var was *loweredFrom
			if isShorter(keptMS, h.KeptMS) {
				was = &loweredFrom{KeptMS: h.KeptMS, HiddenMS: h.HiddenMS}
			}
			h.setTarget(target, seen, was)
			h.NextRolled = rolled > h.HiddenMS
			h.setRetention(keptMS, seen)
		}
	}
}

// keptMS returns the retention of a class at a resolution, in milliseconds; 0 means forever.
func (k *Keeper) keptMS(tenant string, class int64, res rollup.Resolution) int64 {
	return k.RetentionOf(tenant, class).Duration(res).Milliseconds()
}

// dropDue advances DroppedMS over the windows that may be dropped. A raw window is never dropped before its rollups are
// complete. If the rollups of a window can't be computed, the window and all newer windows are kept.
func (x *Advancing) dropDue(ctx context.Context, tenant string, next *boundaryRow) error {
	seen := x.k.env.Clock.ObservedUptimeMS()
	var failed error
	for i := range next.List {
		h := &next.List[i]
		to := h.dueUntil(seen)
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
			h.recordDropped(to, x.k.env.Expires)
		}
	}
	return failed
}

// AllDropped reports whether the rows of all classes in a window are dropped.
func (k *Keeper) AllDropped(b *Boundaries, window int64) bool {
	for class := range k.Classes() {
		if k.env.Period.WindowEnd(window) > b.Dropped(class, format.ResolutionOf(window)) {
			return false
		}
	}
	return true
}

// completeBoundaries returns the boundaries of a tenant. It first creates the missing boundaries of all classes, so
// that they record the current retention even before Expire runs for the first time.
func (k *Keeper) completeBoundaries(ctx context.Context, tenant string) (*Boundaries, error) {
	return k.updateBoundaries(ctx, tenant, func(before *Boundaries) (next *boundaryRow, err error) {
		now, _ := k.env.Clock.Times()
		for class := range k.Classes() {
			for res := rollup.Raw; res <= rollup.OneHour; res++ {
				if before.Boundary(class, res) != nil { // The usual case: imports call this for each series.
					continue
				}
				if next == nil {
					next = before.clone()
				}
				h := next.ensureBoundary(class, res)
				h.KeptMS = k.keptMS(tenant, class, res)
				h.setTarget(k.target(now, res, h.KeptMS), k.env.Clock.ObservedUptimeMS(), nil)
			}
		}
		return next, nil
	})
}
