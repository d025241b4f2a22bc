package retention

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Change is a range of samples of a tenant's class at a resolution that a new retention hides or shows again.
type Change struct {
	Tenant, Class string
	Resolution    rollup.Resolution
	// Was is the previous retention, as stored, and Is is the current one; 0 means forever.
	Was, Is time.Duration
	// Shown is true if the samples in (From, To] are shown again, and false if they are hidden. From is zero if the
	// range has no start.
	Shown    bool
	From, To time.Time
	// Samples is the approximate number of raw samples that are hidden, or -1 if they weren't counted.
	Samples int64
	// Goes is the time at which the hidden rows will be dropped unless the retention changes. Gone is the time until
	// which rows are already deleted, or zero if none are.
	Goes, Gone time.Time
}

// Changes returns the ranges that the configured retention will hide or show again. It only reads.
func (k *Keeper) Changes(ctx context.Context) ([]Change, error) {
	return k.changesOfTenants(ctx, func(tenant string, b *Boundaries) []Change {
		next := b.clone()
		k.applyRetention(tenant, next, func(_ *Boundary, target int64) int64 { return target })
		return k.changes(ctx, tenant, &b.boundaryRow, next, func(was *Boundary, is *Boundary) bool {
			return was == nil || isChanged(was, is)
		})
	})
}

// HiddenByLowering returns the ranges that are hidden because a retention was lowered, and aren't dropped yet. It
// doesn't count samples. It omits ranges without windows.
func (k *Keeper) HiddenByLowering(ctx context.Context) ([]Change, error) {
	return k.changesOfTenants(ctx, func(tenant string, b *Boundaries) (list []Change) {
		for i := range b.List {
			h := &b.List[i]
			for _, step := range h.Steps {
				if step.Was != nil && step.ToMS > h.LackingMS {
					c := k.newChange(tenant, h, step.Was.KeptMS, step.Was.HiddenMS, step.ToMS)
					c.Goes = k.dropTime(step.SeenMS)
					list = append(list, c)
				}
			}
		}
		return list
	})
}

// changesOfTenants lists the changes that find returns for each tenant. The range of each change starts at its first
// listed window. Changes without windows are omitted.
func (k *Keeper) changesOfTenants(
	ctx context.Context, find func(tenant string, b *Boundaries) []Change,
) (list []Change, err error) {
	err = k.eachTenant(ctx, func(tenant string, b *Boundaries) error {
		for _, c := range find(tenant, b) {
			from := format.FirstWindow(c.Resolution)
			if c.From.Before(c.Gone) {
				c.From = c.Gone
			}
			if !c.From.IsZero() {
				from = k.env.Period.WindowAt(c.Resolution, c.From.UnixMilli()+1)
			}
			windows, err := k.env.Windows(ctx, tenant, from, k.env.Period.WindowAt(c.Resolution, c.To.UnixMilli()))
			if err != nil {
				return err
			}
			if len(windows) > 0 {
				c.From = timeOf(k.env.Period.WindowStart(windows[0]))
				list = append(list, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// eachTenant calls do with the boundaries of each tenant, until do returns an error.
func (k *Keeper) eachTenant(ctx context.Context, do func(tenant string, b *Boundaries) error) error {
	tenants, err := k.env.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		b, err := k.Boundaries(ctx, tenant)
		if err != nil {
			return err
		}
		if err := do(tenant, b); err != nil {
			return err
		}
	}
	return nil
}

// newChange returns the change of a boundary between from and to, which are ends of windows. wasMS is the previous
// retention.
func (k *Keeper) newChange(tenant string, h *Boundary, wasMS, from, to int64) Change {
	return Change{
		Tenant: tenant, Class: k.nameOf(h.Class), Resolution: h.Resolution, Samples: -1,
		Was: time.Duration(wasMS) * time.Millisecond, Is: time.Duration(h.KeptMS) * time.Millisecond,
		From: timeOf(from), To: timeOf(to), Gone: timeOf(h.LackingMS),
	}
}

// dropTime returns the time at which rows will be dropped that were hidden at this observed uptime.
func (k *Keeper) dropTime(seenMS int64) time.Time {
	return k.env.Now().UTC().Add(Grace - time.Duration(k.env.Clock.ObservedUptimeMS()-seenMS)*time.Millisecond)
}

// changes returns the differences between boundaries before and next. It only considers boundaries for which the
// function counts returns true, and omits changes that hide nothing.
func (k *Keeper) changes(
	ctx context.Context, tenant string, before, next *boundaryRow, counts func(was, is *Boundary) bool,
) (list []Change) {
	for i := range next.List {
		h := &next.List[i]
		was := before.Boundary(h.Class, h.Resolution)
		if !counts(was, h) {
			continue
		}
		was = cmp.Or(was, &Boundary{HiddenMS: Never, KeptMS: h.KeptMS}) // The previous retention is unknown.
		if was.HiddenMS == h.HiddenMS {
			continue
		}
		c := k.newChange(tenant, h, was.KeptMS, min(was.HiddenMS, h.HiddenMS), max(was.HiddenMS, h.HiddenMS))
		if c.Shown = h.HiddenMS < was.HiddenMS; !c.Shown {
			since, ok := h.hiddenSince(h.HiddenMS)
			if !ok {
				since = k.env.Clock.ObservedUptimeMS()
			}
			c.Goes = k.dropTime(since)
			if n, err := k.estimateHidden(ctx, tenant, h, was.HiddenMS); err == nil {
				c.Samples = n
			}
			if c.Samples == 0 {
				continue // No samples are hidden, for example at the first start with a retention.
			}
		}
		list = append(list, c)
	}
	return list
}

// estimateHidden estimates the number of raw samples that a boundary hides after a time. It returns -1 if no estimate
// is possible, for example for rollups.
func (k *Keeper) estimateHidden(ctx context.Context, tenant string, h *Boundary, after int64) (int64, error) {
	windows, err := k.env.Windows(
		ctx, tenant, k.env.Period.WindowAt(h.Resolution, after+1), k.env.Period.WindowAt(h.Resolution, h.HiddenMS),
	)
	switch {
	case err != nil || len(windows) == 0:
		return 0, err
	case h.Resolution != rollup.Raw:
		return -1, nil
	default:
		return k.env.Samples(ctx, tenant, h.Class, windows)
	}
}

// maxLoggedChanges is the maximum number of changes that one Expire logs.
const maxLoggedChanges = 50

// logChanged logs the ranges that a changed retention has hidden or shown again, and the rows to which a longer
// retention doesn't apply.
func (x *Advancing) logChanged(ctx context.Context, tenant string, before, next *boundaryRow) {
	for i := range next.List {
		if was := before.Boundary(next.List[i].Class, next.List[i].Resolution); was != nil {
			x.logRaised(tenant, was, &next.List[i])
		}
	}
	if x.logged >= maxLoggedChanges {
		return
	}
	for _, c := range x.k.changes(
		ctx, tenant, before, next, func(was, is *Boundary) bool { return was != nil && isChanged(was, is) },
	) {
		about := []any{"tenant", c.Tenant, "class", c.Class, "resolution", c.Resolution}
		if c.Was != c.Is { // Otherwise logRaised logs the previous retention.
			about = append(about, "was", durationText(c.Was))
		}
		about = append(about, "is", durationText(c.Is))
		if c.Shown {
			x.log(slog.LevelInfo, "a longer retention shows hidden samples again",
				append(about, "after", c.From, "until", c.To)...)
			continue
		}
		if c.Samples >= 0 {
			about = append(about, "samples (estimate)", c.Samples)
		}
		x.log(slog.LevelWarn,
			"a shorter retention hides samples; they are deleted in a week. Until then, a server started with a "+
				"longer retention shows them again",
			append(about, "after", c.From, "until", c.To, "deleted from", c.Goes)...)
	}
}

// isChanged reports whether a boundary hides more because its retention was lowered, or shows windows again. The normal
// advance by days and weeks doesn't count, even if the retention was raised: samples that have passed the new retention
// since the last run are hidden as usual.
func isChanged(was, is *Boundary) bool {
	return is.HiddenMS < was.HiddenMS || isShorter(is.KeptMS, was.KeptMS)
}

// logRaised logs the time from which a longer retention applies in full. It logs nothing if the engine doesn't expire
// rows.
func (x *Advancing) logRaised(tenant string, was, h *Boundary) {
	k := x.k
	if !k.env.Expires || !isShorter(was.KeptMS, h.KeptMS) {
		return
	}
	window := k.env.Period.WindowAt(h.Resolution, k.env.Now().UnixMilli())
	for fixed := true; fixed; { // Expiries of later windows may already be fixed.
		window++
		_, fixed = k.expiries.get(expiryAt{tenant, Shared, window})
	}
	x.log(slog.LevelInfo,
		"a longer retention applies to windows without rows: later ones, and older ones that an import creates; "+
			"others expire as fixed with their first row",
		"tenant", tenant, "class", k.nameOf(h.Class), "resolution", h.Resolution,
		"was", durationText(time.Duration(was.KeptMS)*time.Millisecond),
		"is", durationText(time.Duration(h.KeptMS)*time.Millisecond),
		"in full from", timeOf(k.env.Period.WindowStart(window)))
}

// log logs a change, for the first maxLoggedChanges changes.
func (x *Advancing) log(level slog.Level, msg string, args ...any) {
	switch x.logged++; {
	case x.logged <= maxLoggedChanges:
		x.k.env.Logger.Log(context.Background(), level, msg, args...)
	case x.logged == maxLoggedChanges+1:
		x.k.env.Logger.Warn("the new retention has more effects than are logged; run cassia retention to list them")
	}
}

// LaterRetention is a retention that doesn't apply to the rows of current windows, because their expiries are already
// fixed. It applies in full to later windows.
type LaterRetention struct {
	Tenant, Class string
	Resolution    rollup.Resolution
	// Expire is the time at which the current window's rows expire. From is the end of the last window whose rows
	// expire too early.
	Expire, From time.Time
}

// LaterRetentions returns the retentions that don't apply in full yet, because they were raised or belong to new
// classes.
func (k *Keeper) LaterRetentions(ctx context.Context) (list []LaterRetention, err error) {
	if !k.env.Expires {
		return nil, nil
	}
	err = k.eachTenant(ctx, func(tenant string, b *Boundaries) error {
		for class := range k.Classes() {
			for res := rollup.Raw; res <= rollup.OneHour; res++ {
				later, err := k.laterRetention(ctx, b, tenant, class, res)
				if err != nil {
					return err
				}
				if !later.From.IsZero() {
					list = append(list, later)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// laterRetention returns the LaterRetention of a class at a resolution. Its From is zero if the retention applies in
// full.
func (k *Keeper) laterRetention(
	ctx context.Context, b *Boundaries, tenant string, class int64, res rollup.Resolution,
) (LaterRetention, error) {
	later := LaterRetention{Tenant: tenant, Class: k.nameOf(class), Resolution: res}
	for window := k.env.Period.WindowAt(res, k.env.Now().UnixMilli()); ; window++ { // Later windows may be fixed.
		at := expiryAt{tenant, class, window}
		shared, ok, err := k.fixedExpiry(ctx, expiryAt{tenant, Shared, window})
		if err != nil {
			return later, err
		}
		own, _, err := k.fixedExpiry(ctx, at)
		fixed := earlierExpiry(own.Expires, shared.Expires)
		if wanted := k.wantedExpiry(b, at); err != nil || !ok || fixed == 0 || wanted != 0 && wanted <= fixed {
			return later, err
		}
		if later.From.IsZero() {
			later.Expire = time.Unix(fixed, 0).UTC()
		}
		later.From = timeOf(k.env.Period.WindowEnd(window))
	}
}
