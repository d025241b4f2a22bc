package retention

import (
	"context"
	"errors"
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Placement describes the rows that store samples of a class in a slot. The zero value means that the samples aren't
// stored.
type Placement struct {
	// Stored is true if the samples are stored. Finest is the finest resolution of their rows. Finer rows have been
	// removed, or are hidden by their retention.
	Stored bool
	Finest rollup.Resolution
	// Early is true if there are no raw rows although the slot is within the retention of raw samples: the day has
	// rollups but no raw rows, or its rows have expired.
	Early bool
}

// Placement fixes the expiries of a class in the windows that contain a slot, and returns the placement of samples that
// are sealed now.
func (k *Keeper) Placement(ctx context.Context, tenant string, class, slot int64) (Placement, error) {
	switch err := k.fixSlot(ctx, tenant, class, slot); {
	case err != nil:
		return Placement{}, err
	case !k.MayBeMissing(rollup.Raw, slot, tenant, class):
		return Placement{Stored: true}, nil
	}
	for _, res := range rollup.Resolutions {
		if !k.MayBeMissing(res, slot, tenant, class) {
			return Placement{Stored: true, Finest: res}, nil
		}
	}
	return Placement{}, nil
}

// ImportPlacement is like Placement, for an import. An import may restore windows.
func (k *Keeper) ImportPlacement(ctx context.Context, tenant string, class, slot int64) (Placement, error) {
	if err := k.fixSlot(ctx, tenant, class, slot); err != nil {
		return Placement{}, err
	}
	keep := k.RetentionOf(tenant, class)
	if err := k.restoreRollups(ctx, tenant, class, slot, keep); err != nil {
		return Placement{}, err
	}
	past := func(res rollup.Resolution) bool {
		return k.MayBeMissing(res, slot, tenant, class) || !k.env.Expires && k.isOutlived(res, slot, keep)
	}
	// On an engine that expires rows, rollups may have expired under an earlier retention. Raw samples without rollups
	// would then be lost with their window, and queries wouldn't find 1h rollups alone where raw rows exist. So the
	// samples aren't stored, and no boundary is changed.
	if past(rollup.FiveMinutes) &&
		(past(rollup.Raw) && !k.accepts1h(tenant, class, slot, keep) || k.env.Expires && !past(rollup.Raw)) {
		return Placement{}, nil
	}
	withoutRaw, err := k.importsWithoutRaw(ctx, tenant, class, slot, keep)
	placed := Placement{Stored: true, Finest: rollup.FiveMinutes, Early: !k.isOutlived(rollup.Raw, slot, keep)}
	switch {
	case err != nil:
		return Placement{}, err
	case !withoutRaw:
		return Placement{Stored: true}, nil
	case !past(rollup.FiveMinutes):
		return placed, nil
	}
	without5m, err := k.importsWithout5m(ctx, tenant, class, slot, keep)
	switch {
	case err != nil:
		return Placement{}, err
	case without5m:
		// The window may have expired in the meantime.
		placed.Finest, placed.Stored = rollup.OneHour, k.accepts1h(tenant, class, slot, keep)
	}
	return placed, nil
}

// accepts1h reports whether the 1h window that contains a slot accepts rows. A window accepts rows if it isn't past its
// retention and its rows aren't missing.
func (k *Keeper) accepts1h(tenant string, class, slot int64, keep Durations) bool {
	return !k.MayBeMissing(rollup.OneHour, slot, tenant, class) && !k.isOutlived(rollup.OneHour, slot, keep)
}

// importsWithout5m reports whether an import writes only 1h rollups for a slot, because 5m rollups are missing or
// hidden by their retention.
func (k *Keeper) importsWithout5m(
	ctx context.Context, tenant string, class, slot int64, keep Durations,
) (without bool, err error) {
	if k.env.Expires || !k.isOutlived(rollup.FiveMinutes, slot, keep) {
		return true, nil
	}
	_, err = k.updateBoundaries(ctx, tenant, func(before *Boundaries) (next *boundaryRow, err error) {
		without, next, err = k.recordHiddenMissing(ctx, tenant, before, class, slot, rollup.FiveMinutes)
		return next, err
	})
	return without && err == nil, err
}

// recordHiddenMissing returns boundaries that record rows of a slot's window as missing: the retention hides the
// window, and no import writes rows to it. If the tenant has older rows or unsealed older samples, boundaries can't
// express this, and without is false.
func (k *Keeper) recordHiddenMissing(
	ctx context.Context, tenant string, before *Boundaries, class, slot int64, res rollup.Resolution,
) (without bool, next *boundaryRow, err error) {
	window := k.env.Period.WindowOfSlot(res, slot)
	end := k.env.Period.WindowEnd(window)
	if h := before.Boundary(class, res); h != nil && h.mayMiss(end) {
		return true, nil, nil
	}
	shown := before.Missing(class, res) + 1
	older, err := k.env.Stands(ctx, tenant, k.env.Period.WindowAt(res, shown), window)
	if err != nil || older || k.env.Holds(k.env.Period.SlotOf(shown), slot) {
		return false, nil, err
	}
	next = before.clone()
	next.ensureBoundary(class, res).recordMissing(end)
	return true, next, nil
}

// importsWithoutRaw reports whether an import writes only rollups for a slot, because its raw window has expired or is
// hidden by its retention. If the engine doesn't expire rows:
//
//   - A window that the retention shows again gets raw rows only if it has no rows at all. If it has rollups, queries
//     would read the imported raw rows instead, although other raw rows are missing.
//   - A window that the retention hides gets no raw rows. The boundary records that they are missing, so that they
//     aren't expected if the retention is raised. If the tenant has older raw rows or unsealed older samples, raw rows
//     are written, and dropped together with the older rows.
func (k *Keeper) importsWithoutRaw(
	ctx context.Context, tenant string, class, slot int64, keep Durations,
) (without bool, err error) {
	window := k.env.Period.WindowOfSlot(rollup.Raw, slot)
	if k.env.Expires {
		_, err := k.Expiry(ctx, tenant, class, window)
		if errors.Is(err, ErrWindowOver) {
			return true, nil
		}
		return false, err
	}
	if _, err := k.completeBoundaries(ctx, tenant); err != nil {
		return false, err
	}
	start, end := k.env.Period.WindowStart(window), k.env.Period.WindowEnd(window)
	_, err = k.updateBoundaries(ctx, tenant, func(before *Boundaries) (*boundaryRow, error) {
		hidden := k.isOutlived(rollup.Raw, slot, keep)
		h := before.Boundary(class, rollup.Raw)
		missing := h != nil && h.mayMiss(end)
		without = missing && hidden
		switch {
		case missing == hidden:
			return nil, nil
		case hidden:
			var next *boundaryRow
			without, next, err = k.recordHiddenMissing(ctx, tenant, before, class, slot, rollup.Raw)
			return next, err
		}
		without = true
		if k.mayMissRollups(before, class, slot) { // The rollups would be dropped, and computed again.
			return nil, nil
		}
		if rolled, err := k.wasRolledUp(ctx, tenant, window); err != nil || rolled {
			return nil, err
		}
		next := before.clone()
		h = next.Boundary(class, rollup.Raw)
		k.applyRaised(tenant, h)
		if !h.restoreWindow(start, end) {
			return nil, nil
		}
		without = false
		return next, nil
	})
	return without && err == nil, err
}

// mayMissRollups reports whether rollups may be missing in the windows that contain a slot.
func (k *Keeper) mayMissRollups(b *Boundaries, class, slot int64) bool {
	for _, res := range rollup.Resolutions {
		if h := b.Boundary(class, res); h != nil &&
			h.mayMiss(k.env.Period.WindowEnd(k.env.Period.WindowOfSlot(res, slot))) {
			return true
		}
	}
	return false
}

// restoreRollups makes the rollup windows that contain a slot accept rows again, before an import, if the engine
// doesn't expire rows. It restores windows that were dropped, that the retention shows again, and that have no rows. It
// doesn't restore windows for which coarser rollups exist, because queries read the coarser rollups.
func (k *Keeper) restoreRollups(ctx context.Context, tenant string, class, slot int64, keep Durations) error {
	if k.env.Expires || k.isOutlived(rollup.OneHour, slot, keep) {
		return nil
	}
	_, err := k.updateBoundaries(ctx, tenant, func(before *Boundaries) (*boundaryRow, error) {
		if !k.mayMissRollups(before, class, slot) {
			return nil, nil
		}
		next := before.clone()
		for _, res := range rollup.Resolutions {
			window := k.env.Period.WindowOfSlot(res, slot)
			start, end := k.env.Period.WindowStart(window), k.env.Period.WindowEnd(window)
			h := next.Boundary(class, res)
			if h == nil || !h.mayMiss(end) || k.isOutlived(res, slot, keep) {
				continue
			}
			if rolled, err := k.hasCommitRecords(ctx, tenant, res, start, end); err != nil || rolled {
				return nil, err
			}
			if k.applyRaised(tenant, h); !h.restoreWindow(start, end) {
				return nil, nil
			}
		}
		return next, nil
	})
	return err
}

// wasRolledUp reports whether a raw window has rollups, or will get rollups from unsealed samples.
func (k *Keeper) wasRolledUp(ctx context.Context, tenant string, window int64) (bool, error) {
	start, end := k.env.Period.WindowStart(window), k.env.Period.WindowEnd(window)
	if k.env.Holds(k.env.Period.SlotOf(start+1), k.env.Period.SlotOf(end)) {
		return true, nil
	}
	return k.hasCommitRecords(ctx, tenant, rollup.FiveMinutes, start, end)
}

// hasCommitRecords reports whether slots in a range of time have commit records at this or a coarser resolution.
func (k *Keeper) hasCommitRecords(
	ctx context.Context, tenant string, res rollup.Resolution, start, end int64,
) (bool, error) {
	from, to := k.env.Period.SlotOf(start+1), k.env.Period.SlotOf(end)
	for ; res <= rollup.OneHour; res++ {
		for window := k.env.Period.WindowOfSlot(res, from); window <= k.env.Period.WindowOfSlot(res, to); window++ {
			for _, err := range k.env.Engine.Scan(ctx, engine.Range{
				Table: engine.Sealed, Partition: format.SealedPartition(window, tenant),
				From: engine.Key{engine.Int(from)}, To: engine.Key{engine.Int(to)}, KeysOnly: true, Limit: 1,
			}) {
				if err != nil {
					return false, fmt.Errorf("storage: reading the commit records of window %d of tenant %q: %w",
						window, tenant, err)
				}
				return true, nil
			}
		}
	}
	return false, nil
}

// applyRaised applies a raised retention to a boundary without waiting for Expire.
func (k *Keeper) applyRaised(tenant string, h *Boundary) {
	keptMS := k.keptMS(tenant, h.Class, h.Resolution)
	if !isShorter(h.KeptMS, keptMS) {
		return
	}
	seen := k.env.Clock.ObservedUptimeMS()
	now, _ := k.env.Clock.Times()
	h.setRetention(keptMS, seen)
	h.setTarget(min(k.target(now, h.Resolution, h.KeptMS), h.HiddenMS), seen, nil)
}
